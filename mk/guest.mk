# What runs inside boxes: the IPython kernel and the Python zygote, with a Python environment to try them in. A makefile that needs
# more in that environment says KERNEL_PACKAGES += name, and lets its target depend on | venv-kernel.
KERNEL_PACKAGES += ipykernel==7.4.0 ipywidgets jupyter_kernel_test==0.7.0 matplotlib numpy pandas pytest

VENV_KERNEL     := $(BUILD)/venv-kernel
KERNEL_PYTHON   := $(VENV_KERNEL)/bin/python

.PHONY: venv-kernel

## venv-kernel: the Python environment that the tests' kernels run in
venv-kernel: | packages
	@test "$$(cat $(VENV_KERNEL)/.packages 2>/dev/null)" = "$(sort $(KERNEL_PACKAGES))" || { \
	    mkdir -p $(BUILD) && /usr/bin/python3 -m venv $(VENV_KERNEL) && \
	    $(VENV_KERNEL)/bin/pip install --quiet --disable-pip-version-check $(sort $(KERNEL_PACKAGES)) && \
	    echo "$(sort $(KERNEL_PACKAGES))" >$(VENV_KERNEL)/.packages; }

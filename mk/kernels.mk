# Kernels through the API: results, bounds, deaths, hostile kernels. The real one needs IPython, the others bring their own.
TEST_TARGETS += kernels

.PHONY: kernels
## kernels: running code in boxes through the API, with IPython and with kernels that break every rule
kernels: all | $(VENV)/bin/pytest venv-kernel
	@CARREL_BUILD=$(abspath $(BUILD)) KERNEL_PYTHON=$(abspath $(KERNEL_PYTHON)) timeout 900 \
	    $(VENV)/bin/python -m pytest -q -p no:cacheprovider tests/kernels $(KERNELS_ARGS)

# `make demo`: from a fresh machine to boxes and kernels on the screen.
PACKAGES += python3 procps iproute2

.PHONY: demo
## demo: build, then show on the screen what boxes and kernels do
demo: all | venv-kernel
	@tools/demo $(abspath $(BUILD)/carrel)
	@$(KERNEL_PYTHON) -B tools/demo-kernels $(abspath $(BUILD)/carrel) $(abspath $(BUILD))/demo-plot.png
	@$(KERNEL_PYTHON) -B tools/demo-scoped $(abspath $(BUILD)/carrel)

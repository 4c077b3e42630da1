# `make demo`: from a fresh machine to boxes on the screen in a minute.
PACKAGES += python3 procps iproute2

.PHONY: demo
## demo: build, then show on the screen what boxes do
demo: $(BUILD)/carrel
	@tools/demo $(abspath $(BUILD)/carrel)

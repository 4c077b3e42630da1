# ZeroMQ's wire protocol, and what speaks it: the bridge for stock kernels in a box.
BRIDGE         := $(BUILD)/guest/carrel-bridge
ALL_TARGETS    += $(BRIDGE)
all: $(BRIDGE)
BRIDGE_SOURCES := guest/bridge/bridge.c $(wildcard src/zmtp/*.c) $(addprefix src/,base/buf.c base/fd.c base/err.c base/sha256.c proto/names.c)

$(BRIDGE): $(BRIDGE_SOURCES) $(wildcard src/zmtp/*.h src/base/*.h src/proto/*.h) | packages $(KERNEL_HEADERS)/linux
	@mkdir -p $(@D)
	$(call say,link,$@)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(BRIDGE_SOURCES)

PURE_EXTRA      += $(wildcard src/zmtp/*.c)

KERNEL_PACKAGES += bash_kernel==0.10.0 xeus-python==0.19.0
TEST_TARGETS    += bridge
.PHONY: bridge
## bridge: stock kernels (ipykernel, xeus-python, bash) through the bridge, and kernels that lie
bridge: all | venv-kernel
	@CARREL_BUILD=$(abspath $(BUILD)) timeout 900 $(KERNEL_PYTHON) -B -m pytest -q -p no:cacheprovider tests/bridge

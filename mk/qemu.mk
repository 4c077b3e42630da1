# Suites on another kernel with a pure cgroup v2 tree, in emulated machines.
#   SUITES="root:limits user:e2e"  QEMU_TIMEOUT=SECONDS (for each)  QEMU_SHOW=1 (the console on the terminal)
# There are boot, limits, attack, fork, family and e2e, each for root and user, root:engine and root:units; all of them take more than an hour.
SUITES         ?= $(foreach s,boot limits attack family,root:$(s) user:$(s)) root:engine root:units
QEMU_TIMEOUT   ?= 1800
QEMU_SHOW      ?=
QEMU_PROGRAMS  ?= $(BUILD)/carrel $(BUILD)/carrel-server $(PROBE) $(BUILD)/tests/zygote $(BUILD)/engine/test_engine
QEMU_OUT       := $(BUILD)/qemu
PACKAGES_QEMU  := qemu-system-x86 busybox-static squashfs-tools e2fsprogs

.PHONY: proof-qemu qemu-packages
qemu-packages:
	@$(MAKE) --no-print-directory packages PACKAGES="$(PACKAGES_QEMU)"

## proof-qemu: run SUITES in emulated machines with Debian's kernel and pure cgroup v2
proof-qemu: qemu-packages venv $(QEMU_PROGRAMS)
	@/usr/bin/python3 tests/qemu/image.py --out $(QEMU_OUT) --source . --venv $(VENV) $(QEMU_PROGRAMS)
	@/usr/bin/python3 tests/qemu/run.py --out $(QEMU_OUT) --timeout $(QEMU_TIMEOUT) $(if $(QEMU_SHOW),--show) $(SUITES)

# Death at random moments.
STORM_ROUNDS   ?= 200
STORM_SEED     ?=
.PHONY: storm
PROOF_TARGETS  += storm proof-qemu

## storm: kill carrel at random moments, STORM_ROUNDS times one by one and again several at once; nothing may stay
storm: $(BUILD)/carrel
	@for parallel in 1 6; do \
	    timeout 300 /usr/bin/python3 -B tests/storm/storm.py --carrel $(abspath $(BUILD)/carrel) \
	        --errors $(BUILD)/storm.log --rounds $(STORM_ROUNDS) --parallel $$parallel \
	        $(if $(STORM_SEED),--seed $(STORM_SEED)) || exit 1; \
	done

# Everything that the command line promises, through the real program, as root and as ordinary users.
#   E2E_ARGS="-k terminal -x"
PACKAGES     += python3-venv uidmap busybox-static
TEST_TARGETS += e2e

# In a mount namespace of its own where that is possible, so that a mount that is left can only be ours.
E2E_OWN_MOUNTS := $(shell test "$$(id -u)" = 0 && echo unshare --mount --propagation private)

.PHONY: e2e
## e2e: carrel run, plan, doctor and gc from outside, as root and as ordinary users
e2e: $(BUILD)/carrel venv
	@CARREL=$(abspath $(BUILD)/carrel) timeout 1800 $(E2E_OWN_MOUNTS) $(PYTHON) -B -m pytest -q -p no:cacheprovider tests/e2e $(E2E_ARGS)

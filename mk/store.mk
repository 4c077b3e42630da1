# Boxes whose files are on disk: the keeper with real images, spoken to as a front does.
PACKAGES     += e2fsprogs
TEST_TARGETS += store

STORE_TEST_SOURCES := $(wildcard tests/store/*.c) tests/engine/support.c src/box/link.c src/proto/command.c src/proto/mounts.c src/proto/names.c src/base/fd.c src/base/fdpass.c src/base/err.c
STORE_TEST_HEADERS := $(wildcard tests/store/*.h tests/engine/support.h src/base/*.h src/box/*.h src/box/*/*.h src/keeper/*.h src/proto/*.h)

PROOF_TARGETS += store-proof

.PHONY: store store-proof

## store: boxes on disk images, and volumes: the limit, what survives, what is refused, what is left
store: $(BUILD)/store/test_store $(BUILD)/carrel $(BUILD)/carrel-server $(VENV)/bin/pytest
	@log=$(BUILD)/store/store.log; \
	CMOCKA_MESSAGE_OUTPUT=stdout CARREL=$(BUILD)/carrel timeout 600 $< >$$log 2>&1 || { cat $$log; echo "store: failed"; exit 1; }; \
	sed -n -e 's/^store: \(.*\)/  \1/p' -e 's/^\[  PASSED  \] \([0-9]*\) test(s).*/  \1 passed/p' $$log; tools/bound-skips store $$log
	@CARREL_BUILD=$(abspath $(BUILD)) timeout 600 $(PYTHON) -m pytest -q -p no:cacheprovider tests/store/test_stop.py tests/store/test_volumes.py >$(BUILD)/store/stop.log 2>&1 || \
	{ cat $(BUILD)/store/stop.log; echo "store: failed"; exit 1; }; tail -n 1 $(BUILD)/store/stop.log | sed 's/^/  through the server: /'

## store-proof: volumes: front and keeper killed 40 times in each kind of moment
store-proof: all $(VENV)/bin/pytest
	@CARREL_BUILD=$(abspath $(BUILD)) CARREL_KILLS=40 timeout 1800 $(PYTHON) -m pytest -q -p no:cacheprovider tests/store/test_volumes.py -k "kill"

$(BUILD)/store/test_store: $(STORE_TEST_SOURCES) $(STORE_TEST_HEADERS) | packages
	@mkdir -p $(@D)
	$(call say,link,$@)$(HOSTCC) $(UNIT_CFLAGS) -Itests/store -Itests/engine -o $@ $(filter %.c,$^) -lcmocka

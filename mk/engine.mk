# The keeper with real boxes, spoken to as a front does; and the file helper, alone (with sanitizers) and in a box.
TEST_TARGETS += engine files
PURE_EXTRA   += $(wildcard src/files/*.c) src/box/accounts.c src/box/link.c src/box/plan.c src/box/programs.c src/box/spec.c src/devices/cdi.c src/devices/notation.c

FILES_TEST_SOURCES  := $(wildcard tests/files/*.c)
ENGINE_TEST_SOURCES := $(wildcard tests/engine/*.c) tests/files/client.c src/box/link.c src/proto/command.c src/proto/mounts.c src/proto/names.c src/base/fd.c src/base/fdpass.c src/base/err.c
ENGINE_TEST_HEADERS := $(wildcard tests/engine/*.h tests/files/*.h src/base/*.h src/box/*.h src/box/*/*.h src/keeper/*.h src/files/*.h src/proto/*.h)

.PHONY: engine files

## files: the file helper on a folder of its own, with sanitizers
files: $(BUILD)/engine/test_files
	@log=$(BUILD)/engine/files.log; \
	CMOCKA_MESSAGE_OUTPUT=stdout timeout 600 $< >$$log 2>&1 || { cat $$log; echo "files: failed"; exit 1; }; \
	sed -n -e 's/^files: \(.*\)/  \1/p' -e 's/^\[  PASSED  \] \([0-9]*\) test(s).*/  \1 passed/p' $$log; tools/bound-skips files $$log

## engine: the keeper's frames with real boxes, on this host's cgroups and without their v2 tree
engine: $(BUILD)/engine/test_engine $(BUILD)/carrel $(BUILD)/tests/zygote
	@for layout in host v1; do \
	    log=$(BUILD)/engine/engine-$$layout.log; \
	    CMOCKA_MESSAGE_OUTPUT=stdout CARREL=$(BUILD)/carrel CARREL_ZYGOTE=$(ZYGOTE) timeout 600 $< $$layout >$$log 2>&1 || \
	    { cat $$log; echo "engine: failed on layout $$layout"; exit 1; }; \
	    sed -n -e 's/^engine: \(.*\)/  \1/p' -e 's/^\[  PASSED  \] \([0-9]*\) test(s).*/  \1 passed/p' $$log | sed "s/^/  $$layout:/"; \
	done; tools/bound-skips engine $(BUILD)/engine/engine-host.log $(BUILD)/engine/engine-v1.log

$(BUILD)/engine/test_files: $(FILES_TEST_SOURCES) $(wildcard src/files/*.c) src/base/fd.c $(ENGINE_TEST_HEADERS) | packages
	@mkdir -p $(@D)
	$(call say,link,$@)$(HOSTCC) $(UNIT_CFLAGS) -Itests/files -o $@ $(filter %.c,$^) -lcmocka

$(BUILD)/engine/test_engine: $(ENGINE_TEST_SOURCES) $(ENGINE_TEST_HEADERS) | packages
	@mkdir -p $(@D)
	$(call say,link,$@)$(HOSTCC) $(UNIT_CFLAGS) -Itests/engine -Itests/files -o $@ $(filter %.c,$^) -lcmocka

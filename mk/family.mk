# Families: boxes whose payloads are forked from a zygote. The stand-in for an interpreter is a static program of ours.
TEST_TARGETS     += family
ZYGOTE           := $(BUILD)/tests/zygote
# What guest/zygote shares with the engine: the sealing of a payload, and what that needs.
ZYGOTE_LIBRARY   := $(addprefix guest/zygote/,zygote.c memory.c gather.c immortal.c libraries.c) $(addprefix src/,box/seal.c box/link.c proto/command.c proto/names.c sys/rights.c sys/landlock.c policy/policy.c \
                    base/err.c base/fd.c base/fdpass.c)
ZYGOTE_SOURCES   := $(ZYGOTE_LIBRARY) $(wildcard tests/zygote/*.c)

.PHONY: family zygote
zygote: $(ZYGOTE)
$(ZYGOTE): $(ZYGOTE_SOURCES) $(POLICY_GENERATED) $(wildcard guest/zygote/*.h tests/zygote/*.h src/box/*.h src/box/*/*.h src/sys/*.h src/proto/*.h) \
           | packages $(KERNEL_HEADERS)/linux
	@mkdir -p $(@D)
	$(call say,link,$@)$(CC) $(CFLAGS) -Iguest/zygote -I. $(LDFLAGS) -o $@ $(ZYGOTE_SOURCES) $(POLICY_GENERATED)

FAMILY_TEST      := $(BUILD)/tests/test_family
$(FAMILY_TEST): tests/family/test_family.c $(filter-out $(foreach d,cli keeper files,$(BUILD)/obj/$(d)/%),$(ENGINE_OBJECTS))
	@mkdir -p $(@D)
	$(call say,link,$@)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^

## family: boxes whose payloads are forked from a zygote
family: $(BUILD)/carrel $(ZYGOTE) $(FAMILY_TEST) venv
	@timeout 600 $(FAMILY_TEST) $(abspath $(ZYGOTE))
	@CARREL=$(abspath $(BUILD)/carrel) CARREL_ZYGOTE=$(abspath $(ZYGOTE)) timeout 1800 $(E2E_OWN_MOUNTS) $(PYTHON) -B -m pytest -q -p no:cacheprovider \
	    tests/family $(FAMILY_ARGS)

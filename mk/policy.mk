# Seccomp filters: tools/gen-seccomp turns src/policy/syscalls.tbl into C, which mk/build.mk compiles into the engine.
POLICY_GENERATED := $(BUILD)/gen/filters.c
TEST_TARGETS     += seccomp
POLICY_CFLAGS    := -std=gnu17 -D_GNU_SOURCE= -O2 -g -Isrc -include base/banned.h -Wall -Wextra -Wshadow -Wstrict-prototypes \
                    -Wmissing-prototypes -Wformat=2 -Wvla -Wconversion -Wno-sign-conversion -Werror
POLICY_TEST      := $(BUILD)/seccomp

.PHONY: seccomp seccomp-golden

$(BUILD)/gen/gen-seccomp: $(wildcard tools/gen-seccomp*.c) tools/gen-seccomp.h | packages
	@mkdir -p $(@D)
	gcc $(POLICY_CFLAGS) -fsanitize=address,undefined -fno-sanitize-recover=all -o $@ $(filter %.c,$^)

$(BUILD)/gen/filters.c: src/policy/syscalls.tbl $(BUILD)/gen/gen-seccomp
	ASAN_OPTIONS=detect_leaks=0 $(BUILD)/gen/gen-seccomp $< $@.new
	@mv $@.new $@

$(POLICY_TEST)/probe: tests/seccomp/probe.c $(BUILD)/gen/filters.c src/policy/filters.h src/policy/policy.h | packages
	@mkdir -p $(@D)
	gcc $(POLICY_CFLAGS) -o $@ $(filter %.c,$^)

$(POLICY_TEST)/reference: tests/seccomp/reference.c | packages
	@mkdir -p $(@D)
	gcc $(POLICY_CFLAGS) -o $@ $< -lseccomp

POLICY_CHECK = env GEN=$(abspath $(BUILD)/gen/gen-seccomp) PROBE=$(abspath $(POLICY_TEST)/probe) \
               REFERENCE=$(abspath $(POLICY_TEST)/reference) ASAN_OPTIONS=detect_leaks=0 PYTHONDONTWRITEBYTECODE=1 \
               /usr/bin/python3 tests/seccomp/check.py

## seccomp: prove the system call filters by simulation, by the kernel and with real programs
seccomp: $(POLICY_TEST)/probe $(POLICY_TEST)/reference
	$(POLICY_CHECK)

## seccomp-golden: write the table of verdicts after a change of policy
seccomp-golden: $(POLICY_TEST)/probe $(POLICY_TEST)/reference
	$(POLICY_CHECK) golden

# `make test`: everything that can be proved in minutes. A suite in another makefile joins with TEST_TARGETS += its-target.
include $(filter-out mk/setup.mk mk/build.mk mk/policy.mk mk/test.mk mk/proof.mk,$(sort $(wildcard mk/*.mk)))

SANITIZE     := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
# What can be tested without a box: everything in base and policy, the pure parts of the rest.
PURE_SOURCES := $(sort $(wildcard src/base/*.c src/proto/*.c src/policy/*.c) $(POLICY_GENERATED) $(PURE_EXTRA) \
                $(addprefix src/box/,spec.c plan.c plan_print.c procfile.c command.c) \
                $(addprefix src/cli/options/,envfile.c envlist.c exec_limits.c mountarg.c options.c strings.c suggest.c))
PURE_HEADERS := $(wildcard src/*/*.h src/*/*/*.h)

.PHONY: test unit lint fuzz fuzz-long

# With AGAIN=1 a suite that is the only one to fail is run once more at the end: one race in thousands of tests is then named, and not the
# verdict. Never so in `make proof`.
AGAIN        ?=

## test: build, then every suite; what .ci/run calls. AGAIN=1: one that failed alone gets a second run
test: all
	@failed=; times=; start=$$(date +%s); \
	run() { \
	    echo "== $$1"; \
	    case $$1 in unit|lint) jobs=-j$$(nproc);; *) jobs=;; esac; \
	    began=$$(date +%s); \
	    $(MAKE) --no-print-directory $$jobs $$1 </dev/null; status=$$?; \
	    times="$$times $$1 $$(( $$(date +%s) - began ))s,"; \
	    return $$status; \
	}; \
	for suite in unit lint bounds $(TEST_TARGETS); do \
	    run $$suite || failed="$$failed $$suite"; \
	done; \
	set -- $$failed; \
	if test -n "$(AGAIN)" && test $$# -eq 1 && run $$1; then \
	    failed=; \
	    echo "make test: UNSTEADY: $$1 failed, then passed: see above, and mend it"; \
	fi; \
	echo "make test: took$$times all in all $$(( $$(date +%s) - start ))s"; \
	if test -n "$$failed"; then echo "make test: FAILED:$$failed"; exit 1; fi; \
	echo "make test: all suites passed"

# Skipped tests are bounded: tests/skips.
$(TEST_TARGETS): private export SUITE = $@
$(TEST_TARGETS): private export PYTEST_PLUGINS = bounds
$(TEST_TARGETS): private export PYTHONPATH = $(abspath tests/plugins)

.PHONY: bounds
## bounds: that more skipped tests than tests/skips allows fail a suite
bounds: | $(VENV)/bin/pytest
	@TEST_TARGETS="$(TEST_TARGETS)" $(PYTHON) -B -m pytest -q -p no:cacheprovider tests/plugins

# --- unit tests: cmocka, glibc, sanitizers ---
UNIT_TESTS   := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(wildcard tests/unit/test_*.c))
UNIT_OBJECTS := $(patsubst %.c,$(BUILD)/unit/obj/%.o,$(subst $(BUILD)/,,$(PURE_SOURCES)))
UNIT_CFLAGS   = -O1 -g $(COMMON) $(SANITIZE) -D_FORTIFY_SOURCE=0

## unit: unit tests with address and undefined-behaviour sanitizers
unit: $(UNIT_TESTS)
	@failed=0; \
	for t in $(UNIT_TESTS); do \
	    if CMOCKA_MESSAGE_OUTPUT=stdout timeout 120 $$t >$$t.log 2>&1; \
	    then echo "  $${t##*/}: $$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test(s).*/\1 passed/p' $$t.log)"; \
	    else cat $$t.log; echo "  $${t##*/}: FAILED"; failed=1; fi; \
	done; tools/bound-skips unit $(UNIT_TESTS:=.log) || failed=1; exit $$failed

$(BUILD)/unit/obj/%.o: %.c | packages
	@mkdir -p $(@D)
	$(call say,cc,$<)$(HOSTCC) $(UNIT_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/unit/obj/gen/%.o: $(BUILD)/gen/%.c | packages
	@mkdir -p $(@D)
	$(call say,cc,$<)$(HOSTCC) $(UNIT_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/unit/libpure.a: $(UNIT_OBJECTS)
	@rm -f $@
	@ar rcs $@ $^

$(BUILD)/unit/%: tests/unit/%.c tests/unit/unit.h $(BUILD)/unit/libpure.a | packages
	$(call say,link,$@)$(HOSTCC) $(UNIT_CFLAGS) -Itests -MMD -MP -o $@ $< $(BUILD)/unit/libpure.a -lcmocka

-include $(UNIT_OBJECTS:.o=.d) $(UNIT_TESTS:=.d)

# --- lint: structure, then clang's analyzer with the headers of the build ---
OTHER_SOURCES := $(filter-out $(ENGINE_SOURCES),$(wildcard src/*/*.c src/*/*/*.c))
LINTED        := $(ENGINE_SOURCES:src/%.c=$(BUILD)/lint/%.ok) $(OTHER_SOURCES:src/%.c=$(BUILD)/lint/%.ok)
# Dead stores are off: the analyzer does not see that a cleanup attribute reads the variable (FD, TAKE_FD).
ANALYZE       := $(CLANG) --analyze -Xclang -analyzer-werror -Xclang -analyzer-output=text \
                 -Xclang -analyzer-disable-checker=deadcode.DeadStores \
                 -Xclang -analyzer-disable-checker=unix.Vfork,security.insecureAPI.vfork -Wall -Wextra -Werror -std=gnu17 \
                 -D_GNU_SOURCE= -DCARREL_VERSION='"$(VERSION)"' -Isrc -include base/banned.h
MUSL_HEADERS   = -nostdinc -isystem /usr/include/$(shell $(HOSTCC) -dumpmachine | sed s/-gnu/-musl/) \
                 -isystem $(shell $(CLANG) -print-resource-dir)/include -idirafter $(KERNEL_HEADERS)

## lint: layers, sizes and banned functions; clang --analyze without a warning
lint: check-layers $(LINTED)
	@echo "lint: $(words $(LINTED)) files analyzed"

.PHONY: check-layers
check-layers:
	@/usr/bin/python3 tests/unit/check_layers_test.py --quiet
	@/usr/bin/python3 tools/check-layers

$(ENGINE_SOURCES:src/%.c=$(BUILD)/lint/%.ok): ANALYZE_HEADERS = $(MUSL_HEADERS)
$(BUILD)/lint/%.ok: src/%.c $(PURE_HEADERS) | packages $(KERNEL_HEADERS)/linux
	@mkdir -p $(@D)
	$(call say,analyze,$<)$(ANALYZE) $(ANALYZE_HEADERS) -o /dev/null $<
	@touch $@

## format: rewrap the lines of C that are longer than 120 columns, and only those
.PHONY: format
format:
	@$(MAKE) --no-print-directory packages PACKAGES=clang-format
	@for f in $(wildcard src/*/*.[ch] src/*/*/*.[ch] guest/*/*.[ch] bench/*/*.[ch] tests/*/*.[ch] bench/*.[ch] tools/*.[ch] guest/*.[ch]); do \
	    lines=$$(awk 'length($$0) > 120 { printf "--lines=%d:%d ", NR, NR }' $$f); \
	    test -z "$$lines" || { echo "$$f"; clang-format -i $$lines $$f; }; \
	done

# --- fuzzing: libFuzzer on every parser ---
FUZZ_TESTS   := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_OBJECTS := $(patsubst %.c,$(BUILD)/fuzz/obj/%.o,$(subst $(BUILD)/,,$(PURE_SOURCES)))
FUZZ_CFLAGS  := -O1 -g -std=gnu17 -D_GNU_SOURCE= -Isrc -include base/banned.h -fsanitize=fuzzer-no-link,address,undefined \
                -fno-sanitize-recover=all
FUZZ_SECONDS ?= 10

## fuzz: every parser for FUZZ_SECONDS (10) seconds
fuzz: $(FUZZ_TESTS:$(BUILD)/fuzz/%=run-%)
run-fuzz_%: $(BUILD)/fuzz/fuzz_%
	@t=$<; corpus=$$t.corpus; mkdir -p $$corpus; seeds=tests/fuzz/seeds/$*; test -d $$seeds || seeds=; \
	timeout $$(( $(FUZZ_SECONDS) + 60 )) $$t -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=5 -artifact_prefix=$$t. \
	    $$corpus $$seeds >$$t.log 2>&1 || { tail -60 $$t.log; echo "fuzz: $* FAILED, input in $$t.*"; exit 1; }; \
	echo "$*: $$(sed -n 's/^Done \([0-9]*\) runs.*/\1 runs, nothing found/p' $$t.log)"

## fuzz-long: the same for PROOF_SECONDS each
fuzz-long:
	@$(MAKE) --no-print-directory -j$$(nproc) fuzz FUZZ_SECONDS=$(PROOF_SECONDS)

$(BUILD)/fuzz/obj/%.o: %.c | packages
	@mkdir -p $(@D)
	$(call say,cc,$<)$(CLANG) $(FUZZ_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/fuzz/obj/gen/%.o: $(BUILD)/gen/%.c | packages
	@mkdir -p $(@D)
	$(call say,cc,$<)$(CLANG) $(FUZZ_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/fuzz/libpure.a: $(FUZZ_OBJECTS)
	@rm -f $@
	@ar rcs $@ $^

$(BUILD)/fuzz/%: tests/fuzz/%.c $(BUILD)/fuzz/libpure.a | packages
	$(call say,link,$@)$(CLANG) $(FUZZ_CFLAGS) -fsanitize=fuzzer -Itests/fuzz -MMD -MP -o $@ $< $(BUILD)/fuzz/libpure.a $(FUZZ_LIBS)

-include $(FUZZ_OBJECTS:.o=.d) $(FUZZ_TESTS:=.d)

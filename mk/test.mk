# `make test`: everything that can be proved in minutes. A suite in another makefile joins with TEST_TARGETS += its-target.
include $(filter-out mk/setup.mk mk/build.mk mk/policy.mk mk/sanitize.mk mk/test.mk mk/proof.mk,$(sort $(wildcard mk/*.mk)))

# What can be tested without a box: everything in base and policy, the pure parts of the rest.
PURE_SOURCES := $(sort $(wildcard src/base/*.c src/proto/*.c src/policy/*.c) $(POLICY_GENERATED) $(PURE_EXTRA) \
                $(addprefix src/box/,accounts.c indexes.c plan.c plan_print.c plan_trust.c procfile.c programs.c) \
                $(addprefix src/cli/options/,envfile.c envlist.c exec_limits.c keyarg.c mountarg.c netarg.c options.c))

.PHONY: check test test-build unit lint lint-deep fuzz fuzz-long

# The order in which lanes take the suites, three lanes for two processors: those that take longest first, then the others.
# Beside each other run only suites that share nothing but the machine; one that measures it, or changes what others see of it, is in TEST_ALONE.
TEST_FIRST   := installed frameworks front guest engine attack
TEST_ALONE   :=
TEST_SUITES  := $(TEST_FIRST) unit bounds check-layers $(filter-out $(TEST_FIRST),$(TEST_TARGETS))

## check: about a minute, for every commit: structure, units, the front's scenes with each 31st fault, the controller's units, a door
CHECKED := check-layers unit front controller-unit door
check:
	@$(MAKE) --no-print-directory -j$$(nproc) BUILD_ONLY=1 all $(filter-out check-layers,$(CHECKED))
	@FRONT_STRIDE=31 CONTROLLER_FUZZ_SECONDS=1 tools/run-suites $(BUILD)/check -- $(CHECKED)

## test: build, then every suite, three beside each other on two processors; what .ci/run calls
test: test-build
	@tools/run-suites $(BUILD)/test --alone $(TEST_ALONE) -- $(TEST_SUITES)

# Whether this is root, in a checkout that others cannot enter.
ONLY_ROOT_ENTERS := $(shell test "$$(id -u)" != 0 || setpriv --reuid 65534 --regid 65534 --clear-groups test -r $(CURDIR)/Makefile || echo yes)

# All that the suites are made from is made first: two makes beside each other must find nothing left to do. A suite's own recipe, and those of
# its parts, are then commands of /bin/true.
## test-build: all that the suites of `make test` need, without running them
test-build:
	@$(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$$(nproc)) BUILD_ONLY=1 all $(filter-out check-layers,$(TEST_SUITES))
ifdef BUILD_ONLY
$(TEST_SUITES) $(TEST_PARTS): private SHELL = /bin/true
else ifeq ($(ONLY_ROOT_ENTERS),yes)
$(TEST_TARGETS) $(TEST_PARTS) $(PROOF_TARGETS) bounds: private SHELL = tools/window
$(TEST_TARGETS) $(TEST_PARTS) $(PROOF_TARGETS) bounds: private .SHELLFLAGS = $(CURDIR) -c
endif

# Skipped tests are bounded: tests/skips.
$(TEST_TARGETS): private export SUITE = $@
$(TEST_TARGETS): private export PYTEST_PLUGINS = bounds
$(TEST_TARGETS): private export PYTHONPATH = $(abspath tests/plugins)
# No test makes the environment of this machine's kernels.
$(TEST_TARGETS): private export CARREL_SETUP = no
# What takes longest is in the log of each suite. Plugins for proofs alone take a second each time to load.
$(TEST_TARGETS): private export PYTEST_ADDOPTS = --durations=10 --durations-min=1 -p no:schemathesis -p no:hypothesispytest

.PHONY: bounds
## bounds: that more skipped tests than tests/skips allows fail a suite
bounds: | $(VENV)/bin/pytest
	@TEST_TARGETS="$(TEST_TARGETS)" $(PYTHON) -B -m pytest -q -p no:cacheprovider tests/plugins

# --- unit tests: cmocka, glibc, sanitizers ---
UNIT_TESTS   := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(wildcard tests/unit/test_*.c))

## unit: unit tests with address and undefined-behaviour sanitizers
unit: $(UNIT_TESTS)
	@failed=0; \
	for t in $(UNIT_TESTS); do \
	    if CMOCKA_MESSAGE_OUTPUT=stdout timeout 120 $$t >$$t.log 2>&1; \
	    then echo "  $${t##*/}: $$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test(s).*/\1 passed/p' $$t.log)"; \
	    else cat $$t.log; echo "  $${t##*/}: FAILED"; failed=1; fi; \
	done; tools/bound-skips unit $(UNIT_TESTS:=.log) || failed=1; exit $$failed

$(BUILD)/unit/libpure.a: $(call asan_objects,$(PURE_SOURCES))
	@mkdir -p $(@D) && rm -f $@
	@ar rcs $@ $^

$(BUILD)/unit/%: $(BUILD)/asan/obj/tests/unit/%.o $(BUILD)/unit/libpure.a
	$(call say,link,$@)$(HOSTCC) $(SANITIZE) -o $@ $^ -lcmocka

# --- lint: structure, then clang's analyzer with the headers of the build ---
# `make lint` ends the analysis of a function after a quarter of the paths that clang would follow, which takes a third of the time; lint-deep follows them all.
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

## lint-deep: the same, with as many paths as clang follows by itself
PROOF_TARGETS += lint lint-deep
lint-deep: check-layers $(LINTED:$(BUILD)/lint/%=$(BUILD)/lint-deep/%)
	@echo "lint-deep: $(words $(LINTED)) files analyzed"

.PHONY: check-layers
check-layers:
	@/usr/bin/python3 tests/unit/check_layers_test.py --quiet
	@/usr/bin/python3 tools/check-layers
	@/usr/bin/python3 tools/check-words
	@/usr/bin/python3 tools/limits --check

define analyze
@mkdir -p $(@D)
$(call say,$(1),$<)$(ANALYZE) $(ANALYZE_HEADERS) $(2) -MMD -MP -MT $@ -MF $(@:.ok=.d) -o /dev/null $<
@touch $@
endef
$(ENGINE_SOURCES:src/%.c=$(BUILD)/lint/%.ok) $(ENGINE_SOURCES:src/%.c=$(BUILD)/lint-deep/%.ok): ANALYZE_HEADERS = $(MUSL_HEADERS)
$(BUILD)/lint/%.ok: src/%.c | packages $(KERNEL_HEADERS)/linux
	$(call analyze,analyze,-Xclang -analyzer-config -Xclang max-nodes=50000)
$(BUILD)/lint-deep/%.ok: src/%.c | packages $(KERNEL_HEADERS)/linux
	$(call analyze,deeply,)

-include $(LINTED:.ok=.d) $(LINTED:$(BUILD)/lint/%.ok=$(BUILD)/lint-deep/%.d)

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

$(BUILD)/fuzz/libpure.a: $(call fuzz_objects,$(PURE_SOURCES))
	@mkdir -p $(@D) && rm -f $@
	@ar rcs $@ $^

$(BUILD)/fuzz/%: tests/fuzz/%.c $(BUILD)/fuzz/libpure.a | packages
	$(call say,link,$@)$(CLANG) $(FUZZ_CFLAGS) -fsanitize=fuzzer -Itests/fuzz -MMD -MP -o $@ $< $(BUILD)/fuzz/libpure.a $(FUZZ_LIBS)

-include $(FUZZ_TESTS:=.d)

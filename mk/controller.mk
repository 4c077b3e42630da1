# The cluster's controller: a program of its own beside the server. New files in the folders below are found by themselves.
PACKAGES           += libssl-dev libyaml-dev
TEST_TARGETS       += controller-unit controller-e2e
TEST_PARTS         += controller-fuzz
PROOF_TARGETS      += controller-proof

CONTROLLER         := $(BUILD)/carrel-controller
CONTROLLER_BASE    := $(addprefix src/base/,arena.c budget.c buf.c err.c fd.c fdpass.c jsonout.c jsonscan.c parse.c)
CONTROLLER_SOURCES := $(sort $(wildcard src/kube/*.c src/cluster/*.c src/http/*.c) $(CONTROLLER_BASE))
CONTROLLER_OBJECTS := $(CONTROLLER_SOURCES:src/%.c=$(BUILD)/server/obj/%.o)
CONTROLLER_LIBS    := -lssl -lcrypto -lyaml

# mk/build.mk has read ALL_TARGETS before this file comes, hence the second line.
ALL_TARGETS        += $(CONTROLLER)
all: $(CONTROLLER)

.PHONY: controller controller-unit controller-e2e controller-fuzz controller-proof controller-clean
## controller: build carrel-controller only
controller: $(CONTROLLER)

$(CONTROLLER): $(CONTROLLER_OBJECTS)
	$(call say,link,$@)$(HOSTCC) $(SERVER_LDFLAGS) -o $@ $(CONTROLLER_OBJECTS) $(CONTROLLER_LIBS)

-include $(CONTROLLER_OBJECTS:.o=.d)

# --- tests: all of them with sanitizers ---
CONTROLLER_OUT     := $(BUILD)/controller
CONTROLLER_ASAN    := $(CONTROLLER_OUT)/carrel-controller
CONTROLLER_UNITS   := $(patsubst tests/controller/%.c,$(CONTROLLER_OUT)/%,$(wildcard tests/controller/test_*.c))
CONTROLLER_FUZZERS := $(patsubst tests/controller/%.c,$(CONTROLLER_OUT)/%,$(wildcard tests/controller/fuzz_*.c))
CONTROLLER_LIBRARY := $(filter-out src/cluster/main.c,$(CONTROLLER_SOURCES))
CONTROLLER_FUZZ_SECONDS ?= 3

$(CONTROLLER_OUT)/libcontroller.a: $(call asan_objects,$(CONTROLLER_LIBRARY))
	@mkdir -p $(@D) && rm -f $@
	@ar rcs $@ $^

$(CONTROLLER_OUT)/libfuzz.a: $(call fuzz_objects,$(CONTROLLER_LIBRARY))
	@mkdir -p $(@D) && rm -f $@
	@ar rcs $@ $^

$(CONTROLLER_ASAN): $(BUILD)/asan/obj/src/cluster/main.o $(CONTROLLER_OUT)/libcontroller.a
	$(call say,link,$@)$(HOSTCC) $(SANITIZE) -o $@ $^ $(CONTROLLER_LIBS)

$(CONTROLLER_OUT)/test_%: $(BUILD)/asan/obj/tests/controller/test_%.o $(CONTROLLER_OUT)/libcontroller.a
	$(call say,link,$@)$(HOSTCC) $(SANITIZE) -o $@ $^ -lcmocka $(CONTROLLER_LIBS)

$(CONTROLLER_OUT)/fuzz_%: $(BUILD)/fuzz/obj/tests/controller/fuzz_%.o $(CONTROLLER_OUT)/libfuzz.a
	$(call say,link,$@)$(CLANG) -fsanitize=fuzzer,address,undefined -o $@ $^ $(CONTROLLER_LIBS)

## controller-unit: its reconcilers as tables of states, its cache, its parsers; each parser under libFuzzer for 3 s
controller-unit: $(CONTROLLER_UNITS) controller-fuzz
	@failed=0; \
	for t in $(CONTROLLER_UNITS); do \
	    if CMOCKA_MESSAGE_OUTPUT=stdout timeout 120 $$t >$$t.log 2>&1; \
	    then echo "  $${t##*/}: $$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test(s).*/\1 passed/p' $$t.log)"; \
	    else cat $$t.log; echo "  $${t##*/}: FAILED"; failed=1; fi; \
	done; exit $$failed

controller-fuzz: $(CONTROLLER_FUZZERS)
	@for t in $^; do mkdir -p $$t.corpus; seeds=tests/controller/seeds/$${t##*/fuzz_}; test -d $$seeds || seeds=; \
	    timeout $$(( $(CONTROLLER_FUZZ_SECONDS) + 60 )) $$t -max_total_time=$(CONTROLLER_FUZZ_SECONDS) -max_len=131072 -timeout=10 \
	        -artifact_prefix=$$t. $$t.corpus $$seeds >$$t.log 2>&1 || \
	        { tail -60 $$t.log; echo "controller: $${t##*/} FAILED, input in $$t.*"; exit 1; }; \
	    echo "  $${t##*/}: $$(sed -n 's/^Done \([0-9]*\) runs.*/\1 runs, nothing found/p' $$t.log)"; done

# Most of the time is spent waiting (leases, Retry-After), hence two at once.
## controller-e2e: the controller against an API server of the tests that can lie
controller-e2e: $(CONTROLLER_ASAN) | venv
	@export CARREL_CONTROLLER=$(abspath $(CONTROLLER_ASAN)); run="timeout 900 $(VENV)/bin/python -m pytest -q -p no:cacheprovider"; \
	log=$(CONTROLLER_OUT)/faults.log; $$run tests/controller/test_faults.py >$$log 2>&1 & faults=$$!; \
	$$run tests/controller --ignore=tests/controller/test_faults.py; result=$$?; \
	wait $$faults || result=1; cat $$log; exit $$result

## controller-proof: every fault at every response, and long fuzzing
controller-proof: $(CONTROLLER_ASAN) | venv
	@$(MAKE) --no-print-directory controller-fuzz CONTROLLER_FUZZ_SECONDS=$(PROOF_SECONDS)
	@CARREL_CONTROLLER=$(abspath $(CONTROLLER_ASAN)) CONTROLLER_FAULTS=all timeout 3600 \
	    $(VENV)/bin/python -m pytest -q -p no:cacheprovider tests/controller/test_faults.py

controller-clean:
	rm -rf $(CONTROLLER_OUT) $(CONTROLLER)
clean: controller-clean

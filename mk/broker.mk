# The broker: a program of its own that ends TLS for boxes and holds keys. New files in its folder are found by themselves.
PACKAGES        += libssl-dev
TEST_TARGETS    += broker broker-unit
PROOF_TARGETS   += broker-proof

BROKER          := $(BUILD)/carrel-broker
BROKER_BASE     := $(addprefix src/base/,arena.c budget.c buf.c err.c fd.c fdpass.c jsonout.c parse.c) src/proto/net.c src/proto/net_judge.c src/egress/lockdown.c src/policy/policy.c src/sys/landlock.c \
                   $(addprefix src/http/,loop.c parse.c fault.c chunked.c text.c)
BROKER_SOURCES  := $(sort $(wildcard src/broker/*.c) $(BROKER_BASE))
BROKER_OBJECTS  := $(BROKER_SOURCES:src/%.c=$(BUILD)/server/obj/%.o) $(POLICY_GENERATED:$(BUILD)/gen/%.c=$(BUILD)/server/obj/gen/%.o)
BROKER_LIBS     := -lssl -lcrypto

# mk/build.mk has read ALL_TARGETS before this file comes, hence the second line.
ALL_TARGETS     += $(BROKER)
all: $(BROKER)

.PHONY: broker broker-program broker-unit broker-proof broker-clean
## broker-program: build carrel-broker only
broker-program: $(BROKER)

$(BROKER): $(BROKER_OBJECTS)
	$(call say,link,$@)$(HOSTCC) $(SERVER_LDFLAGS) -o $@ $(BROKER_OBJECTS) $(BROKER_LIBS)

-include $(BROKER_OBJECTS:.o=.d)

# --- tests: all of them with sanitizers ---
BROKER_OUT      := $(BUILD)/broker
BROKER_ASAN     := $(BROKER_OUT)/carrel-broker
BROKER_UNITS    := $(patsubst tests/broker/%.c,$(BROKER_OUT)/%,$(wildcard tests/broker/test_*.c))
BROKER_LIBRARY  := $(filter-out src/broker/main.c,$(BROKER_SOURCES)) $(POLICY_GENERATED)

$(BROKER_OUT)/libbroker.a: $(call asan_objects,$(BROKER_LIBRARY))
	@mkdir -p $(@D) && rm -f $@
	@ar rcs $@ $^

$(BROKER_OUT)/test_%: $(BUILD)/asan/obj/tests/broker/test_%.o $(BROKER_OUT)/libbroker.a
	$(call say,link,$@)$(HOSTCC) $(SANITIZE) -o $@ $^ -lcmocka $(BROKER_LIBS)

# LeakSanitizer needs ptrace, which the filter of the program refuses; the units look for leaks.
$(BROKER_ASAN): $(call asan_objects,src/broker/main.c) $(BROKER_OUT)/libbroker.a
	$(call say,link,$@)$(HOSTCC) $(SANITIZE) -o $@ $^ $(BROKER_LIBS)

## broker-unit: values masked in streams, heads of requests and answers, authorities of boxes
broker-unit: $(BROKER_UNITS)
	@failed=0; \
	for t in $(BROKER_UNITS); do \
	    if CMOCKA_MESSAGE_OUTPUT=stdout timeout 120 $$t >$$t.log 2>&1; \
	    then echo "  $${t##*/}: $$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test(s).*/\1 passed/p' $$t.log)"; \
	    else cat $$t.log; echo "  $${t##*/}: FAILED"; failed=1; fi; \
	done; exit $$failed

## broker: keys in boxes of root and of an ordinary user, attacks, kills, where the values are (root)
broker: all $(BROKER_ASAN) | venv venv-kernel
	@CARREL_BUILD=$(abspath $(BUILD)) CARREL_BROKER_ASAN=$(abspath $(BROKER_ASAN)) CARREL=$(abspath $(BUILD))/carrel \
	    KERNEL_PYTHON=$(abspath $(KERNEL_PYTHON)) timeout 900 $(VENV)/bin/python -B -m pytest -q -p no:cacheprovider tests/broker

## broker-proof: official clients of model providers, node, Go, Java and git with keys (root; the package index of this host)
broker-proof: all | venv
	@CARREL_BUILD=$(abspath $(BUILD)) CARREL=$(abspath $(BUILD))/carrel timeout 1200 $(VENV)/bin/python -B -m pytest -q -p no:cacheprovider tests/broker/proof_clients.py

broker-clean:
	rm -rf $(BROKER_OUT) $(BROKER)
clean: broker-clean

# --- fuzzing: with the others, by `make fuzz` ---
$(BROKER_OUT)/libfuzz.a: $(call fuzz_objects,src/broker/mask.c src/broker/message.c $(addprefix src/http/,parse.c fault.c chunked.c text.c))
	@mkdir -p $(@D) && rm -f $@
	@ar rcs $@ $^
$(BUILD)/fuzz/fuzz_broker: $(BROKER_OUT)/libfuzz.a
$(BUILD)/fuzz/fuzz_broker: FUZZ_LIBS := $(BROKER_OUT)/libfuzz.a $(BUILD)/fuzz/libpure.a

# Egress: the only program with network. New files in its folder are found by themselves.
PACKAGES        += libc-ares-dev dnsmasq-base bind9-dnsutils netcat-openbsd nftables iproute2 curl openssl
TEST_TARGETS    += egress egress-unit
PROOF_TARGETS   += egress-proof
# What the proof and the benchmark need beside that: PROGRAM:PACKAGE. A program of another origin is taken as it is.
# Servers of these packages that start by themselves are not used.
EGRESS_PROGRAMS := nginx:nginx-light fcgiwrap:fcgiwrap initdb:postgresql redis-server:redis-server redis-cli:redis-tools wget:wget git:git \
                   ping:iputils-ping node:nodejs npm:npm javac:default-jdk-headless go:golang-go pasta:passt slirp4netns:slirp4netns

EGRESS          := $(BUILD)/carrel-egress
EGRESS_BASE     := $(addprefix src/base/,buf.c err.c fd.c fdpass.c parse.c) src/proto/dns.c src/proto/net.c src/proto/net_judge.c src/http/loop.c src/policy/policy.c src/sys/landlock.c
EGRESS_SOURCES  := $(sort $(wildcard src/egress/*.c) $(EGRESS_BASE))
EGRESS_OBJECTS  := $(EGRESS_SOURCES:src/%.c=$(BUILD)/server/obj/%.o) $(POLICY_GENERATED:$(BUILD)/gen/%.c=$(BUILD)/server/obj/gen/%.o)
EGRESS_LIBS     := -lcares

# mk/build.mk has read ALL_TARGETS before this file comes, hence the second line.
ALL_TARGETS     += $(EGRESS)
all: $(EGRESS)

.PHONY: egress egress-unit egress-proof egress-proof-packages bench-egress egress-program egress-clean
## egress-program: build carrel-egress only
egress-program: $(EGRESS)

$(EGRESS): $(EGRESS_OBJECTS)
	$(call say,link,$@)$(HOSTCC) $(SERVER_LDFLAGS) -o $@ $(EGRESS_OBJECTS) $(EGRESS_LIBS)

-include $(EGRESS_OBJECTS:.o=.d)

# --- tests: all of them with sanitizers ---
EGRESS_OUT      := $(BUILD)/egress
EGRESS_ASAN     := $(EGRESS_OUT)/carrel-egress
EGRESS_UNITS    := $(patsubst tests/egress/%.c,$(EGRESS_OUT)/%,$(wildcard tests/egress/test_*.c))
EGRESS_LIBRARY  := $(filter-out src/egress/main.c src/egress/lockdown.c,$(EGRESS_SOURCES)) $(POLICY_GENERATED)

$(EGRESS_OUT)/libegress.a: $(call asan_objects,$(EGRESS_LIBRARY))
	@mkdir -p $(@D) && rm -f $@
	@ar rcs $@ $^

# LeakSanitizer needs ptrace, which the filter of the program refuses; the units look for leaks.
$(EGRESS_ASAN): $(call asan_objects,src/egress/main.c src/egress/lockdown.c) $(EGRESS_OUT)/libegress.a
	$(call say,link,$@)$(HOSTCC) $(SANITIZE) -o $@ $^ $(EGRESS_LIBS)

$(EGRESS_OUT)/test_%: $(BUILD)/asan/obj/tests/egress/test_%.o $(EGRESS_OUT)/libegress.a
	$(call say,link,$@)$(HOSTCC) $(SANITIZE) -o $@ $^ -lcmocka $(EGRESS_LIBS)

## egress-unit: rules of the network, DNS messages, TLS hellos, packets, names, refusals, the pump
egress-unit: $(EGRESS_UNITS)
	@failed=0; \
	for t in $(EGRESS_UNITS); do \
	    if CMOCKA_MESSAGE_OUTPUT=stdout timeout 120 $$t >$$t.log 2>&1; \
	    then echo "  $${t##*/}: $$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test(s).*/\1 passed/p' $$t.log)"; \
	    else cat $$t.log; echo "  $${t##*/}: FAILED"; failed=1; fi; \
	done; exit $$failed

## egress: real clients in network namespaces of the tests' own, through carrel-egress to real servers (root)
egress: all $(EGRESS_ASAN) | venv venv-kernel
	@CARREL_BUILD=$(abspath $(BUILD)) CARREL_EGRESS=$(abspath $(EGRESS)) CARREL_EGRESS_ASAN=$(abspath $(EGRESS_ASAN)) \
	    KERNEL_PYTHON=$(abspath $(KERNEL_PYTHON)) timeout 900 $(VENV)/bin/python -B -m pytest -q -p no:cacheprovider tests/egress

## egress-proof: programs that people use as root and as an ordinary user, attacks, kills under load (root; ten minutes)
egress-proof: all $(EGRESS_ASAN) egress-proof-packages | venv venv-kernel
	@CARREL_BUILD=$(abspath $(BUILD)) CARREL_EGRESS=$(abspath $(EGRESS)) CARREL_EGRESS_ASAN=$(abspath $(EGRESS_ASAN)) \
	    KERNEL_PYTHON=$(abspath $(KERNEL_PYTHON)) timeout 3000 $(VENV)/bin/python -B -m pytest -q -p no:cacheprovider $(wildcard tests/egress/proof_*.py)

egress-proof-packages:
	@PATH="$$PATH:/usr/sbin:$$(echo /usr/lib/postgresql/*/bin | tr ' ' :)"; missing=; \
	for each in $(EGRESS_PROGRAMS); do command -v $${each%:*} >/dev/null || missing="$$missing $${each#*:}"; done; \
	[ -z "$$missing" ] || apt-get install -y -q $$missing

## bench-egress: what egress costs beside plain connections, pasta and slirp4netns, with targets; the broker beside egress (root)
bench-egress: all egress-proof-packages | venv
	@CARREL=$(abspath $(BUILD))/carrel CARREL_EGRESS=$(abspath $(EGRESS)) $(VENV)/bin/python -B tests/egress/measure.py
	@CARREL=$(abspath $(BUILD))/carrel $(VENV)/bin/python -B tests/broker/measure.py

egress-clean:
	rm -rf $(EGRESS_OUT) $(EGRESS)
clean: egress-clean

# --- fuzzing: with the others, by `make fuzz` ---
EGRESS_FUZZED   := $(addprefix $(BUILD)/fuzz/fuzz_,hello packet egress)
$(EGRESS_OUT)/libfuzz.a: $(call fuzz_objects,$(filter-out src/egress/main.c src/egress/lockdown.c,$(wildcard src/egress/*.c)) src/http/loop.c)
	@mkdir -p $(@D) && rm -f $@
	@ar rcs $@ $^
$(EGRESS_FUZZED): $(EGRESS_OUT)/libfuzz.a
$(EGRESS_FUZZED): FUZZ_LIBS := $(EGRESS_OUT)/libfuzz.a $(BUILD)/fuzz/libpure.a $(EGRESS_LIBS)

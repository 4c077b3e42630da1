# Attacks from inside a box, judged from inside and from outside; and what must work inside. CARREL_WAY=fork runs them over a zygote.
PACKAGES        += musl-tools python3-venv libcap2-bin nodejs gcc git bash iproute2 curl openssl tmux
TEST_TARGETS    += attack

PROBE           := $(BUILD)/tests/probe
PROBE_SOURCES   := $(sort $(wildcard tests/probe/*.c))
PROBE_CFLAGS     = -std=gnu17 -D_GNU_SOURCE= -O1 -g -static -no-pie -fno-pie $(WARNINGS) -Wno-conversion -idirafter $(KERNEL_HEADERS)
WORKS_VENV      := $(BUILD)/works-venv

.PHONY: attack works probe
probe: $(PROBE)
$(PROBE): $(PROBE_SOURCES) tests/probe/probe.h | packages $(KERNEL_HEADERS)/linux
	@mkdir -p $(@D)
	$(CC) $(PROBE_CFLAGS) -o $@ $(PROBE_SOURCES)

$(WORKS_VENV)/.done: | packages
	@/usr/bin/python3 -m venv $(WORKS_VENV)
	@$(RETRY) $(WORKS_VENV)/bin/pip install --quiet --disable-pip-version-check $(PINNED) numpy pandas matplotlib psutil
	@touch $@

ATTACK_ENV       = CARREL=$(abspath $(BUILD)/carrel) CARREL_PROBE=$(abspath $(PROBE)) CARREL_WORKS_VENV=$(abspath $(WORKS_VENV))
PYTEST_RUN       = $(ATTACK_ENV) timeout 1800 $(E2E_OWN_MOUNTS) $(PYTHON) -B -m pytest -q -p no:cacheprovider

## attack: attacks from inside a box, and what must work inside
attack: $(BUILD)/carrel $(PROBE) $(WORKS_VENV)/.done venv
	@$(PYTEST_RUN) tests/attack tests/works $(ATTACK_ARGS)

## works: only what must work inside
works: $(BUILD)/carrel $(PROBE) $(WORKS_VENV)/.done venv
	@$(PYTEST_RUN) tests/works $(ATTACK_ARGS)

# The programs and packages of tests/works/programs.py; those of Debian are installed on this machine.
PROGRAMS_VENV   := $(BUILD)/works-programs
PROGRAMS        = $(shell python3 -B tests/works/programs.py $(1))
PROOF_TARGETS   += works-proof
.PHONY: works-proof
## works-proof: some seventy real programs and packages in plain boxes (installs them)
works-proof: $(BUILD)/carrel $(PROBE) venv
	@$(MAKE) --no-print-directory packages PACKAGES="$(call PROGRAMS,debian)"
	@test -x $(PROGRAMS_VENV)/bin/python || /usr/bin/python3 -m venv $(PROGRAMS_VENV)
	@$(RETRY) $(PROGRAMS_VENV)/bin/pip install --quiet --disable-pip-version-check $(call PROGRAMS,pip)
	@CARREL_LONG=1 CARREL_PROGRAMS_VENV=$(abspath $(PROGRAMS_VENV)) $(PYTEST_RUN) tests/works/test_programs.py $(ATTACK_ARGS)

## attack-fork: the same over a zygote
.PHONY: attack-fork proof-attack
attack-fork: $(BUILD)/carrel $(PROBE) $(WORKS_VENV)/.done zygote venv
	@CARREL_WAY=fork CARREL_ZYGOTE=$(abspath $(BUILD)/tests/zygote) $(PYTEST_RUN) tests/attack tests/works $(ATTACK_ARGS)

# Races and leaks, long enough to meet rare orders of events.
PROOF_TARGETS   += proof-attack attack-fork
proof-attack: $(BUILD)/carrel $(PROBE) zygote venv
	@for way in exec fork; do \
	    CARREL_WAY=$$way CARREL_ZYGOTE=$(abspath $(BUILD)/tests/zygote) CARREL_RACE=5000 CARREL_CHURN=2000 $(PYTEST_RUN) tests/attack \
	        -k "hosts_root or starting_and_ending" || exit 1; \
	done

## attack-syscalls: write the table of answered system calls again, for a review of the difference
.PHONY: attack-syscalls
attack-syscalls: $(BUILD)/carrel $(PROBE) venv
	@cd tests/attack && $(ATTACK_ENV) timeout 100 $(abspath $(PYTHON)) -B syscall_table.py

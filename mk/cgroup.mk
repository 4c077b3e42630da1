# cgroups on this machine: as it is, without its v2 tree, and with its v2 tree alone; and what doctor and gc make of it.
TEST_TARGETS += cgroup

CGROUP_COMMON  := tests/cgroup/support.c $(wildcard src/sys/cgroup*.c) src/sys/process.c src/base/fd.c src/base/err.c
CGROUP_SOURCES := $(CGROUP_COMMON) $(addprefix tests/cgroup/,main.c test_leaf.c test_cpu.c test_sweep.c test_v2.c)
DOCTOR_SOURCES := $(CGROUP_COMMON) tests/cgroup/test_doctor.c $(addprefix src/cli/doctor/,container.c doctor.c doctor_judge.c gc.c) \
                  $(addprefix src/sys/,apparmor.c features.c landlock.c mountfd.c network.c rights.c) $(addprefix src/base/,buf.c guest.c jsonout.c parse.c) $(wildcard src/devices/*.c)
CGROUP_HEADERS := tests/cgroup/support.h $(wildcard src/base/*.h src/sys/*.h src/devices/*.h) src/cli/commands.h src/cli/doctor/doctor.h src/cli/doctor/net.h

.PHONY: cgroup
## cgroup: limits, freezing, killing, removing and sweeping of cgroups; doctor and gc
cgroup: $(BUILD)/cgroup/test_cgroup $(BUILD)/cgroup/test_doctor
	@for run in "test_cgroup host" "test_cgroup v1" "test_cgroup v2" "test_doctor"; do \
	    log="$(BUILD)/cgroup/$$(echo $$run | tr ' ' '-').log"; \
	    CMOCKA_MESSAGE_OUTPUT=stdout timeout 600 $(BUILD)/cgroup/$$run >"$$log" 2>&1 || \
	    { cat "$$log"; echo "cgroup: $$run failed"; exit 1; }; \
	    sed -n -e 's/^cgroup: \(.*\)/  \1/p' \
	        -e 's/^\[==========\] \(.*: \)\{0,1\}\([0-9]*\) test(s) run\./  \2 tests passed/p' "$$log" | sed "s|^|$$run:|"; \
	done; tools/bound-skips cgroup $(BUILD)/cgroup/test_*.log

$(BUILD)/cgroup/test_cgroup: $(CGROUP_SOURCES) $(CGROUP_HEADERS) | packages
	@mkdir -p $(@D)
	$(HOSTCC) $(UNIT_CFLAGS) -Itests -o $@ $(filter %.c,$^) -lcmocka

$(BUILD)/cgroup/test_doctor: $(DOCTOR_SOURCES) $(CGROUP_HEADERS) | packages
	@mkdir -p $(@D)
	$(HOSTCC) $(UNIT_CFLAGS) -Itests -o $@ $(filter %.c,$^) -lcmocka

# cgroups on this machine: as it is, and without its v2 tree.
TEST_TARGETS += cgroup

CGROUP_SOURCES := $(wildcard src/sys/cgroup*.c) src/sys/process.c src/base/fd.c src/base/err.c

.PHONY: cgroup
## cgroup: limits, freezing, killing, removing and sweeping of cgroups
cgroup: $(BUILD)/cgroup/test_cgroup
	@for mode in host v1; do \
	    CMOCKA_MESSAGE_OUTPUT=stdout timeout 320 $< $$mode >$<.$$mode.log 2>&1 || \
	    { cat $<.$$mode.log; echo "cgroup: $$mode failed"; exit 1; }; \
	    sed -n -e 's/^cgroup: //p' -e 's/^\[==========\] \(.*: \)\{0,1\}\([0-9]*\) test(s) run\./  \2 tests passed/p' $<.$$mode.log; \
	done

$(BUILD)/cgroup/test_cgroup: $(wildcard tests/cgroup/*.[ch]) $(CGROUP_SOURCES) $(wildcard src/sys/cgroup*.h) src/sys/process.h | packages
	@mkdir -p $(@D)
	$(HOSTCC) $(UNIT_CFLAGS) -Itests -o $@ $(filter %.c,$^) -lcmocka

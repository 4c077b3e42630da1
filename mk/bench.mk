# Benchmarks.
#   BENCH_ROUNDS=N  BENCH_IDLE=MS  BENCH_ONLY=bwrap (only the peers with that in their name)
BENCH_ROUNDS   ?= 100
BENCH_IDLE     ?= 300
BENCH_ONLY     ?=
PACKAGES_BENCH := bubblewrap runc crun
BENCH_CARREL   ?= $(BUILD)/carrel

$(BUILD)/bench/run: bench/run.c bench/measure.c bench/measure.h
	@mkdir -p $(@D)
	$(HOSTCC) -std=gnu17 -O2 $(WARNINGS) -o $@ bench/run.c bench/measure.c

# Everything of the engine but its command line.
BENCH_OBJECTS  := $(filter-out $(BUILD)/obj/cli/%,$(ENGINE_OBJECTS))
$(BUILD)/bench/engine: bench/engine.c bench/measure.c bench/measure.h $(BENCH_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ bench/engine.c bench/measure.c $(BENCH_OBJECTS)

$(BUILD)/bench/bundle/config.json: bench/bundle.json
	@mkdir -p $(@D)/rootfs/usr $(@D)/rootfs/proc $(@D)/rootfs/dev $(@D)/rootfs/tmp
	ln -sfn usr/bin $(@D)/rootfs/bin; ln -sfn usr/sbin $(@D)/rootfs/sbin
	ln -sfn usr/lib $(@D)/rootfs/lib; ln -sfn usr/lib64 $(@D)/rootfs/lib64
	cp $< $@

.PHONY: bench bench-engine bench-packages
bench-packages:
	@$(MAKE) --no-print-directory packages PACKAGES="$(PACKAGES_BENCH)"

## bench: carrel beside bubblewrap, crun and runc; figures also in BUILD/bench.json
bench: bench-packages $(BENCH_CARREL) $(BUILD)/bench/run $(BUILD)/bench/bundle/config.json
	$(BUILD)/bench/run --carrel $(abspath $(BENCH_CARREL)) --bundle $(abspath $(BUILD)/bench/bundle) \
	    --state $(abspath $(BUILD)/bench/state) --json $(abspath $(BUILD)/bench.json) \
	    --rounds $(BENCH_ROUNDS) --idle $(BENCH_IDLE) --only "$(BENCH_ONLY)"
	@$(MAKE) --no-print-directory bench-engine

## bench-engine: the box library alone: exec in a prepared box, boxes per second
bench-engine: $(BUILD)/bench/engine
	timeout 300 $< $(BENCH_ROUNDS)

# The server's API: `make bench-api` measures it, `make pool` tests the boxes that are kept ready.
#   BENCH_API_ROUNDS=N  BENCH_API_ONLY=create,exec
TEST_TARGETS     += pool
PACKAGES_BENCH   += wrk
BENCH_API_ROUNDS ?= 200
BENCH_API_ONLY   ?=
BENCH_API        := $(wildcard bench/api/*.c bench/api/*.h) bench/measure.c bench/measure.h

$(BUILD)/bench/load: $(BENCH_API)
	@mkdir -p $(@D)
	$(call say,link,$@)$(HOSTCC) -std=gnu17 -O2 $(WARNINGS) -Ibench -Ibench/api -o $@ $(filter %.c,$^) -lpthread

.PHONY: bench-api pool
## bench-api: the API of a server beside crun and runc exec; figures also in BUILD/bench-api.json
bench-api: bench-packages $(BUILD)/carrel-server $(BUILD)/carrel $(BUILD)/bench/load $(BUILD)/bench/engine $(BUILD)/bench/bundle/config.json
	timeout 1800 /usr/bin/python3 bench/api/run.py $(BUILD) --rounds $(BENCH_API_ROUNDS) --only "$(BENCH_API_ONLY)" --json $(BUILD)/bench-api.json

## pool: boxes that are kept ready: taken, refilled, given back, never counted, never lost
pool: $(BUILD)/carrel-server $(BUILD)/carrel $(BUILD)/tests/zygote | $(VENV)/bin/pytest
	@CARREL_BUILD=$(abspath $(BUILD)) timeout 900 $(VENV)/bin/python -m pytest -q -p no:cacheprovider tests/pool

bench: bench-api

# Kernels: `make bench-kernels` measures them beside jupyter_client and ipykernel, and beside an Enterprise Gateway.
#   BENCH_KERNELS_ROUNDS=N  BENCH_KERNELS_ONLY=starts,warm
BENCH_KERNELS_ROUNDS ?= 100
BENCH_KERNELS_ONLY   ?=
.PHONY: bench-kernels
## bench-kernels: from create to the first result, warm cells, a crowd, memory; beside the stock way; figures also in BUILD/bench-kernels.json
bench-kernels: all $(BUILD)/venv-gateway/.done | venv-kernel
	timeout 1800 /usr/bin/python3 bench/kernels/run.py $(BUILD) --python $(abspath $(KERNEL_PYTHON)) --gateway $(abspath $(BUILD)/venv-gateway) --rounds $(BENCH_KERNELS_ROUNDS) \
	    --only "$(BENCH_KERNELS_ONLY)" --json $(BUILD)/bench-kernels.json

bench: bench-kernels

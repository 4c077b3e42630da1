# Services and grants through the API: functions, scope, deaths, hostile interfaces, restarts.
TEST_TARGETS += services

.PHONY: services
## services: functions of a live interpreter in a box, called over HTTP and from boxes; who may call what
services: all | $(VENV)/bin/pytest
	@CARREL_BUILD=$(abspath $(BUILD)) CARREL=$(abspath $(BUILD)/carrel) timeout 900 \
	    $(VENV)/bin/pytest -q -p no:cacheprovider tests/services $(SERVICES_ARGS)

$(BUILD)/fuzz/fuzz_service: FUZZ_LIBS := -ljansson

.PHONY: bench-services
## bench-services: calls of an echo function, beside a warm cell, an http.server with JSON and MCP's own server; after `make pages-model` also the start with a model
bench-services: all | venv-kernel $(VENV)/bin/pytest
	timeout 900 /usr/bin/python3 bench/services/run.py $(BUILD) --python $(abspath $(KERNEL_PYTHON)) --requests $(abspath $(VENV)/bin/python) \
	    --mcp $(abspath $(KERNEL_PYTHON)) $(if $(wildcard $(PAGES_MODEL)/config.json),--model $(abspath $(PAGES_MODEL)) --model-python $(abspath $(PAGES_PYTHON))) \
	    --json $(BUILD)/bench-services.json

bench: bench-services

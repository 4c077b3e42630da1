# Services and grants through the API: functions, scope, deaths, hostile interfaces, restarts.
#   CARREL_KILLS=100  CARREL_SEED=...
TEST_TARGETS  += services
PROOF_TARGETS += services-storm

.PHONY: services services-storm
## services: functions of a live interpreter in a box, called over HTTP and from boxes; who may call what
services: all | $(VENV)/bin/pytest
	@CARREL_BUILD=$(abspath $(BUILD)) CARREL=$(abspath $(BUILD)/carrel) timeout 900 \
	    $(VENV)/bin/python -m pytest -q -p no:cacheprovider tests/services $(SERVICES_ARGS)

## services-storm: the long cut of the kills: 300 of fronts and keepers while calls run, 60 of programs that hold sandboxes
services-storm: all | $(VENV)/bin/pytest venv-agent
	@CARREL_LONG=1 CARREL_BUILD=$(abspath $(BUILD)) CARREL=$(abspath $(BUILD)/carrel) timeout 3600 \
	    $(VENV)/bin/python -m pytest -q -s -p no:cacheprovider tests/services/test_storm.py
	@CARREL_LONG=1 $(SCOPED_ENV) timeout 3600 $(AGENT_PYTHON) -B -m pytest -q -s -p no:cacheprovider tests/scoped/test_storm.py

$(BUILD)/fuzz/fuzz_service: FUZZ_LIBS := -ljansson

.PHONY: bench-services
## bench-services: calls of an echo function, beside a warm cell, an http.server with JSON and MCP's own server; after `make pages-model` also the start with a model
bench-services: all | venv-kernel $(VENV)/bin/pytest
	timeout 900 /usr/bin/python3 bench/services/run.py $(BUILD) --python $(abspath $(KERNEL_PYTHON)) --requests $(abspath $(VENV)/bin/python) \
	    --mcp $(abspath $(KERNEL_PYTHON)) $(if $(wildcard $(PAGES_MODEL)/config.json),--model $(abspath $(PAGES_MODEL)) --model-python $(abspath $(PAGES_PYTHON))) \
	    --json $(BUILD)/bench-services.json

bench: bench-services

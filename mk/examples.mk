# The examples' own tests.
TEST_TARGETS    += examples
EXAMPLE_VENV    := $(BUILD)/venv-examples
EXAMPLE_NEEDS   := pytest langgraph openai huggingface_hub ipykernel

.PHONY: examples
## examples: the own tests of what is in examples/
examples: all $(EXAMPLE_VENV)/.done
	@cd examples/coding-agent && CARREL_BIN=$(abspath $(BUILD))/carrel CARREL_GUEST=$(abspath $(BUILD))/guest PYTHONPATH=$(abspath sdk/python):$$PYTHONPATH \
	    timeout 300 $(abspath $(EXAMPLE_VENV))/bin/python -B -m pytest -q -p no:cacheprovider .

$(EXAMPLE_VENV)/.done: tests/constraints.txt | packages
	@/usr/bin/python3 -m venv $(EXAMPLE_VENV)
	@$(RETRY) $(EXAMPLE_VENV)/bin/pip install --quiet --disable-pip-version-check $(PINNED) $(EXAMPLE_NEEDS)
	@touch $@

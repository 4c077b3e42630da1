# The client's commands and the Python SDK, against servers of the tests' own.
TEST_TARGETS    += cli sdk
PYTHON_PACKAGES += mypy

.PHONY: cli sdk
CLIENT_PROGRAMS := $(addprefix $(BUILD)/,carrel carrel-server carrel-egress carrel-broker)

## cli: the commands that talk to a server: boxes, commands, terminals, files, ports, tokens, as several users
cli: $(CLIENT_PROGRAMS) | venv
	@CARREL=$(abspath $(BUILD)/carrel) timeout 900 $(PYTHON) -B -m pytest -q -p no:cacheprovider tests/cli $(CLI_ARGS)

## sdk: the Python package: types, an installation of its own, then against a server
sdk: $(CLIENT_PROGRAMS) | venv
	@$(PYTHON) -m mypy --strict --python-version 3.10 --config-file sdk/python/pyproject.toml --cache-dir $(BUILD)/mypy sdk/python/carrel
	@CARREL=$(abspath $(BUILD)/carrel) timeout 900 $(PYTHON) -B -m pytest -q -p no:cacheprovider tests/sdk $(SDK_ARGS)

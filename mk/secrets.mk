# Named secrets: who has them, where they are, and where they are not.
#   SECRETS_ARGS="-k nowhere -x"  CARREL_KILLS=100
TEST_TARGETS  += secrets

.PHONY: secrets
## secrets: named secrets of a server: places, owners, deaths, bad input; at the end each value is searched for everywhere
secrets: all | $(VENV)/bin/pytest venv-kernel
	@CARREL_BUILD=$(abspath $(BUILD)) CARREL=$(abspath $(BUILD)/carrel) KERNEL_PYTHON=$(abspath $(KERNEL_PYTHON)) timeout 900 \
	    $(VENV)/bin/python -m pytest -q -p no:cacheprovider tests/secrets $(SECRETS_ARGS)

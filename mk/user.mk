# The server's suites against servers of an ordinary user: there the keeper lives in a user namespace of its own, and much goes another way.
TEST_TARGETS  += user
PROOF_TARGETS += user-proof

.PHONY: user user-proof
AS_USER = CARREL_AS=carreltest CARREL_BUILD=$(abspath $(BUILD)) CARREL=$(abspath $(BUILD)/carrel) timeout 1800 $(VENV)/bin/pytest -q -p no:cacheprovider

## user: ports and users through a server of an ordinary user
user: $(BUILD)/carrel-server $(BUILD)/carrel | $(VENV)/bin/pytest
	@$(AS_USER) tests/api/test_ports.py tests/api/test_user.py
	@$(AS_USER) tests/cli/test_forward.py

## user-proof: all of the server's suites, with servers of an ordinary user
user-proof: $(BUILD)/carrel-server $(BUILD)/carrel | $(VENV)/bin/pytest
	@$(AS_USER) tests/api
	@$(AS_USER) tests/cli/test_forward.py tests/cli/test_exec.py tests/cli/test_cp.py

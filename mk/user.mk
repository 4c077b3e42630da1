# The server's suites against servers of an ordinary user: there the keeper lives in a user namespace of its own, and much goes another way.
TEST_TARGETS  += user
PROOF_TARGETS += user-proof

.PHONY: user user-proof
AS_USER = CARREL_AS=carreltest CARREL_BUILD=$(abspath $(BUILD)) CARREL=$(abspath $(BUILD)/carrel) KERNEL_PYTHON=$(abspath $(KERNEL_PYTHON)) timeout 1800
AS_USER_PYTEST = $(AS_USER) $(VENV)/bin/python -m pytest -q

## user: ports, users and kills of the supervisor, with a server of an ordinary user
user: $(BUILD)/carrel-server $(BUILD)/carrel | $(VENV)/bin/pytest
	@$(AS_USER_PYTEST) tests/api/test_ports.py tests/api/test_user.py tests/api/test_supervisor.py
	@$(AS_USER_PYTEST) tests/cli/test_forward.py

# Skips are bounded here, too: SUITE-as-user in tests/skips.
as_user = SUITE=$(1)-as-user PYTEST_PLUGINS=bounds PYTHONPATH=$(abspath tests/plugins) $(AS_USER)

# Of the command line only what is not about several users.
## user-proof: the API, commands, kernels, Jupyter's door and the SDK as whole suites, with servers of an ordinary user
user-proof: all | $(VENV)/bin/pytest venv-kernel
	@$(call as_user,api) $(VENV)/bin/python -m pytest -q tests/api
	@$(call as_user,cli) $(VENV)/bin/python -m pytest -q tests/cli/test_forward.py tests/cli/test_exec.py tests/cli/test_jobs.py tests/cli/test_cp.py
	@$(call as_user,sdk) $(VENV)/bin/python -m pytest -q tests/sdk
	@$(call as_user,kernels) $(VENV)/bin/python -m pytest -q tests/kernels
	@$(call as_user,jupyter) $(VENV_KERNEL)/bin/python -m pytest -q --ignore=tests/jupyter/proof tests/jupyter

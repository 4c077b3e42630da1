# The recipe of docs/workspaces.md: examples/workspaces with JupyterLab and small packages, from an index of the tests' own on loopback.
TEST_TARGETS     += workspaces
PROOF_TARGETS    += workspaces-proof
WORKSPACE_WHEELS := $(BUILD)/workspace-wheels
WORKSPACE_HOLDS  := jupyterlab ipykernel pip uv six==1.17.0

# What `make test` runs; workspaces-proof runs all of it.
WORKSPACES_CUT   ?= two_persons or opens_one or memory or up_again or refused_option

.PHONY: workspaces workspaces-proof
$(WORKSPACE_WHEELS)/.done: tests/constraints.txt | venv
	@mkdir -p $(@D)
	@$(RETRY) $(VENV)/bin/pip download --quiet --disable-pip-version-check --only-binary :all: $(PINNED) --dest $(@D) $(WORKSPACE_HOLDS)
	@$(RETRY) $(VENV)/bin/pip download --quiet --disable-pip-version-check --no-deps --dest $(@D) six==1.16.0
	@touch $@

## workspaces: JupyterLab for two persons of one server, each with versions, a home and a share of its own; one of an ordinary user
workspaces: all $(WORKSPACE_WHEELS)/.done | venv-kernel
	@CARREL_BUILD=$(abspath $(BUILD)) CARREL_WORKSPACE_WHEELS=$(abspath $(WORKSPACE_WHEELS)) \
	    timeout 600 $(KERNEL_PYTHON) -B -m pytest -q -p no:cacheprovider --ignore=tests/workspaces/proof tests/workspaces $(if $(WORKSPACES_CUT),-k "$(WORKSPACES_CUT)")

# From the registry: some 700 MB.
## workspaces-proof: the same with TensorFlow 2.10 beside 2.15, in headless Chromium, and both busy: shares of 3 to 1 (root)
workspaces-proof: all | venv-lab
	@$(MAKE) --no-print-directory workspaces WORKSPACES_CUT=
	@CARREL_BUILD=$(abspath $(BUILD)) timeout 1800 $(VENV_LAB)/bin/python -B -m pytest -q -p no:cacheprovider tests/workspaces/proof

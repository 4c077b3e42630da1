# The Jupyter door of a running server: its REST and WebSocket behaviour, then unmodified clients.
KERNEL_PACKAGES += jupyter_server==2.21.1 nbclient nbformat requests websocket-client
TEST_TARGETS    += jupyter

.PHONY: jupyter
## jupyter: the Jupyter door: REST, both WebSocket protocols, hostile clients, jupyter_server's gateway client, nbclient
jupyter: $(BUILD)/carrel-server $(BUILD)/carrel $(GUEST_FILES) | venv-kernel
	@CARREL_BUILD=$(abspath $(BUILD)) timeout 900 $(VENV_KERNEL)/bin/python -m pytest -q -p no:cacheprovider --ignore=tests/jupyter/proof tests/jupyter

$(BUILD)/fuzz/fuzz_jupyter_message: FUZZ_LIBS := -ljansson

# --- the proof: Enterprise Gateway's own tests, and JupyterLab in a browser ---
PROOF_TARGETS   += jupyter-proof
GATEWAY         := jupyter_enterprise_gateway-3.3.0
VENV_LAB        := $(BUILD)/venv-lab
LAB_PACKAGES    := jupyterlab==4.6.6 pytest selenium

$(BUILD)/$(GATEWAY)/setup.done: | venv-kernel
	@$(VENV_KERNEL)/bin/pip download --quiet --disable-pip-version-check --no-deps --no-binary jupyter_enterprise_gateway --dest $(BUILD) \
	    jupyter_enterprise_gateway==3.3.0
	@tar xzf $(BUILD)/$(GATEWAY).tar.gz -C $(BUILD) && touch $@

.PHONY: jupyter-proof venv-lab
venv-lab: | packages
	@$(MAKE) --no-print-directory packages PACKAGES="chromium chromium-driver fonts-dejavu-core"
	@test "$$(cat $(VENV_LAB)/.packages 2>/dev/null)" = "$(LAB_PACKAGES)" || { \
	    /usr/bin/python3 -m venv $(VENV_LAB) && $(VENV_LAB)/bin/pip install --quiet --disable-pip-version-check $(LAB_PACKAGES) && \
	    echo "$(LAB_PACKAGES)" >$(VENV_LAB)/.packages; }

# Bad input at its full size; the small cuts are in kernels, guest and jupyter.
PROOF_TARGETS   += bad-input
.PHONY: bad-input
## bad-input: results of a gigabyte, a million displays, endless threads, malformed frames: bounded, reported, and unnoticed by others
bad-input: $(BUILD)/carrel-server $(BUILD)/carrel $(GUEST_FILES) | venv-kernel
	@CARREL_BUILD=$(abspath $(BUILD)) timeout 1800 $(VENV_KERNEL)/bin/python -m pytest -q -s -p no:cacheprovider tests/jupyter/proof/test_full_size.py

## jupyter-proof: Enterprise Gateway's integration tests against this server; JupyterLab in headless Chromium with it as its gateway
jupyter-proof: $(BUILD)/carrel-server $(BUILD)/carrel $(GUEST_FILES) $(BUILD)/$(GATEWAY)/setup.done | venv-kernel venv-lab
	@CARREL_BUILD=$(abspath $(BUILD)) CARREL_GATEWAY_TREE=$(abspath $(BUILD)/$(GATEWAY)) timeout 900 $(VENV_KERNEL)/bin/python -m pytest -q -p no:cacheprovider \
	    tests/jupyter/proof/test_enterprise_gateway.py
	@CARREL_BUILD=$(abspath $(BUILD)) timeout 600 $(VENV_LAB)/bin/python -m pytest -q -p no:cacheprovider tests/jupyter/proof/test_lab.py

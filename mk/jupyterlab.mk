# Real JupyterLab in a box, through the port proxy. It is a hundred megabytes of packages, so it is part of the proof.
PROOF_TARGETS += jupyterlab
JUPYTERLAB    := $(BUILD)/jupyterlab

$(JUPYTERLAB)/.done: | packages
	@mkdir -p $(BUILD) && /usr/bin/python3 -m venv $(JUPYTERLAB)
	@$(RETRY) $(JUPYTERLAB)/bin/pip install --quiet --disable-pip-version-check jupyterlab
	@touch $@

.PHONY: jupyterlab
## jupyterlab: real JupyterLab in a box, its pages and a kernel's WebSocket through the port proxy
jupyterlab: $(BUILD)/carrel-server $(BUILD)/carrel $(JUPYTERLAB)/.done | venv
	@CARREL_BUILD=$(abspath $(BUILD)) CARREL_JUPYTERLAB=$(abspath $(JUPYTERLAB)) \
	    timeout 600 $(VENV)/bin/python -m pytest -q -p no:cacheprovider tests/api/test_jupyterlab.py

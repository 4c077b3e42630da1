# The Jupyter door of a running server: its REST and WebSocket behaviour, then unmodified clients.
KERNEL_PACKAGES += jupyter_server==2.21.1 nbclient nbformat websocket-client
TEST_TARGETS    += jupyter

.PHONY: jupyter
## jupyter: the Jupyter door: REST, both WebSocket protocols, hostile clients, jupyter_server's gateway client, nbclient
jupyter: $(BUILD)/carrel-server $(BUILD)/carrel $(GUEST_FILES) | venv-kernel
	@CARREL_BUILD=$(abspath $(BUILD)) timeout 300 $(VENV_KERNEL)/bin/pytest -q -p no:cacheprovider tests/jupyter

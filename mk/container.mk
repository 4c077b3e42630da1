# carrel inside containers: crun makes them as docker, podman and Kubernetes do.
TEST_TARGETS += container
PACKAGES     += crun

.PHONY: container
## container: carrel in containers of several kinds: what works there, and what is said where nothing does
container: $(BUILD)/carrel | $(VENV)/bin/pytest
	@CARREL_BUILD=$(abspath $(BUILD)) timeout 600 $(VENV)/bin/python -m pytest -q -p no:cacheprovider tests/container

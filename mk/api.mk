# The API of a running server, over real sockets.
TEST_TARGETS    += api
PYTHON_PACKAGES += prometheus-client

# The description is part of the program; the compiler does not see that.
$(BUILD)/server/obj/doors/native/openapi.o: src/doors/native/openapi.json

.PHONY: api
## api: the HTTP API of a running server: boxes, commands, files, ports, identities, bad input
api: $(BUILD)/carrel-server $(BUILD)/carrel | $(VENV)/bin/pytest
	@CARREL_BUILD=$(abspath $(BUILD)) timeout 1200 $(VENV)/bin/python -m pytest -q -p no:cacheprovider tests/api

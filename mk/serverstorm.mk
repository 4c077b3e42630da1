# The server under attack: kill -9 storms, two identities, hostile files and clients, a full disk, its description. Both cuts take minutes and belong to the proof.
#   CARREL_KILLS=100  SERVER_STORM_ARGS="-k full_disk -x"
PYTHON_PACKAGES += schemathesis
PROOF_TARGETS   += server-storm
PROOF_TARGETS   += server-proof

# In a mount namespace of its own, so that a mount that is left can only be ours, and a small disk can be made.
SERVER_STORM = CARREL_BUILD=$(abspath $(BUILD)) timeout $(1) $(E2E_OWN_MOUNTS) $(PYTHON) -B -m pytest -q -p no:cacheprovider tests/server $(SERVER_STORM_ARGS)

.PHONY: server-storm server-proof
## server-storm: kills at any moment, identities, files, connections, full disks; the quick cut
server-storm: $(SERVER) $(BUILD)/carrel venv
	@$(call SERVER_STORM,600)

## server-proof: the same with 1000 kills, a gigabyte each way, and many more examples
server-proof: $(SERVER) $(BUILD)/carrel venv
	@CARREL_LONG=1 $(call SERVER_STORM,7200)

# The server under attack: kill -9 storms, two identities, hostile files and clients, a full disk, its description. Both cuts take minutes and belong to the proof.
#   CARREL_KILLS=100  SERVER_STORM_ARGS="-k full_disk -x"
PYTHON_PACKAGES += schemathesis
PROOF_TARGETS   += server-storm
PROOF_TARGETS   += server-asan
PROOF_TARGETS   += server-proof

# In a mount namespace of its own, so that a mount that is left can only be ours, and a small disk can be made.
SERVER_STORM = CARREL_BUILD=$(abspath $(or $(2),$(BUILD))) timeout $(1) $(E2E_OWN_MOUNTS) $(PYTHON) -B -m pytest -q -p no:cacheprovider tests/server $(SERVER_STORM_ARGS)

.PHONY: server-storm server-asan server-proof
## server-storm: kills at any moment, identities, files, connections, full disks; the quick cut
server-storm: $(SERVER) $(BUILD)/carrel venv
	@$(call SERVER_STORM,600)

## server-proof: the same with 1000 kills, a gigabyte each way, and many more examples
server-proof: $(SERVER) $(BUILD)/carrel venv
	@CARREL_LONG=1 $(call SERVER_STORM,7200)

# The same server with the sanitizers in it, confined as ever: what is used after it was freed in a storm is found here.
SERVER_ASAN         := $(BUILD)/asan/carrel-server

## server-asan: the quick cut against a server with address and undefined-behaviour sanitizers
server-asan: $(SERVER_ASAN) $(BUILD)/carrel venv
	@cp -f $(BUILD)/carrel $(BUILD)/asan/carrel
	@$(call SERVER_STORM,1200,$(BUILD)/asan)

$(SERVER_ASAN): $(call asan_objects,$(SERVER_SOURCES) $(POLICY_GENERATED))
	$(call say,link,$@)$(HOSTCC) -pie $(SANITIZE) -o $@ $^ $(SERVER_LIBS)

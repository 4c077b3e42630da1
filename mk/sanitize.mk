# Objects with sanitizers, for glibc (BUILD/asan/obj) and for libFuzzer (BUILD/fuzz/obj): one tree of each for all suites, with src/, tests/ and gen/
# in it. A makefile says $(call asan_objects,its sources).
SANITIZE     := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
UNIT_CFLAGS   = -O1 -g $(COMMON) $(SANITIZE) -D_FORTIFY_SOURCE=0
FUZZ_CFLAGS  := -O1 -g -std=gnu17 -D_GNU_SOURCE= -DCARREL_VERSION='"$(VERSION)"' -Isrc -include base/banned.h \
                -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
asan_objects  = $(patsubst %.c,$(BUILD)/asan/obj/%.o,$(subst $(BUILD)/,,$(1)))
fuzz_objects  = $(patsubst %.c,$(BUILD)/fuzz/obj/%.o,$(subst $(BUILD)/,,$(1)))

$(BUILD)/asan/obj/%.o: %.c | packages
	@mkdir -p $(@D)
	$(call say,cc,$<)$(HOSTCC) $(UNIT_CFLAGS) -Itests -MMD -MP -c -o $@ $<

$(BUILD)/asan/obj/gen/%.o: $(BUILD)/gen/%.c | packages
	@mkdir -p $(@D)
	$(call say,cc,$<)$(HOSTCC) $(UNIT_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/fuzz/obj/%.o: %.c | packages
	@mkdir -p $(@D)
	$(call say,cc,$<)$(CLANG) $(FUZZ_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/fuzz/obj/gen/%.o: $(BUILD)/gen/%.c | packages
	@mkdir -p $(@D)
	$(call say,cc,$<)$(CLANG) $(FUZZ_CFLAGS) -MMD -MP -c -o $@ $<

-include $(shell find $(BUILD)/asan/obj $(BUILD)/fuzz/obj -name '*.d' 2>/dev/null)

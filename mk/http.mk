# The HTTP layer (src/http): unit tests, fuzzing, comparison with http-parser, and a live server under test.
#   HTTP_FUZZ_SECONDS=N (for each target)  HTTP_DIFF_SECONDS=N
PACKAGES        += libssl-dev libhttp-parser-dev wrk
PYTHON_PACKAGES += websockets
TEST_TARGETS    += http
TEST_PARTS      += http-unit http-fuzz http-diff http-e2e
PROOF_TARGETS   += http-proof

HTTP_FUZZ_SECONDS ?= 5
HTTP_DIFF_SECONDS ?= 20
HTTP_SOURCES    := $(wildcard src/http/*.c) $(addprefix src/base/,arena.c buf.c budget.c fd.c fdpass.c jsonout.c)
HTTP_PURE       := $(addprefix src/http/,chunked.c fault.c parse.c proxy_cookie.c text.c wsframe.c) src/base/arena.c
HTTP_OUT        := $(BUILD)/http
HTTP_COMMON      = -g -std=gnu17 -D_GNU_SOURCE= -Isrc -include base/banned.h $(WARNINGS)
HTTP_UNITS      := $(patsubst tests/http/%.c,$(HTTP_OUT)/%,$(wildcard tests/http/test_*.c))
HTTP_FUZZERS    := $(patsubst tests/http/%.c,$(HTTP_OUT)/%,$(wildcard tests/http/fuzz_*.c))
HTTP_PROGRAMS   := $(HTTP_OUT)/echo $(HTTP_OUT)/echo-asan

.PHONY: http http-unit http-fuzz http-diff http-e2e http-proof

## http: everything about the HTTP layer
http: http-unit http-diff http-fuzz http-e2e

$(HTTP_OUT)/fast/%.o: %.c | packages
	@mkdir -p $(@D)
	@$(HOSTCC) -O2 $(HTTP_COMMON) $(HARDENING) -MMD -MP -c -o $@ $<

$(HTTP_OUT)/echo: $(patsubst %.c,$(HTTP_OUT)/fast/%.o,$(HTTP_SOURCES) tests/http/echo.c)
	$(call say,link,$@)$(HOSTCC) -o $@ $^ -lcrypto

$(HTTP_OUT)/echo-asan: $(call asan_objects,$(HTTP_SOURCES) tests/http/echo.c)
	@mkdir -p $(@D)
	$(call say,link,$@)$(HOSTCC) $(SANITIZE) -o $@ $^ -lcrypto

$(HTTP_OUT)/test_%: $(BUILD)/asan/obj/tests/http/test_%.o $(call asan_objects,$(HTTP_SOURCES))
	@mkdir -p $(@D)
	$(call say,link,$@)$(HOSTCC) $(SANITIZE) -o $@ $^ -lcmocka -lcrypto

$(HTTP_OUT)/fuzz_%: $(BUILD)/fuzz/obj/tests/http/fuzz_%.o $(call fuzz_objects,$(HTTP_PURE))
	@mkdir -p $(@D)
	$(call say,link,$@)$(CLANG) -fsanitize=fuzzer,address,undefined -o $@ $^

$(HTTP_OUT)/diff: $(patsubst %.c,$(HTTP_OUT)/fast/%.o,tests/http/diff.c $(HTTP_PURE))
	$(call say,link,$@)$(HOSTCC) -o $@ $^ -lhttp_parser

.SECONDARY:
-include $(shell find $(HTTP_OUT) -name '*.d' 2>/dev/null)

## http-unit: its parsers, router and loop
http-unit: $(HTTP_UNITS)
	@for t in $^; do timeout 300 $$t >$$t.log 2>&1 || { cat $$t.log; echo "http: $${t##*/} FAILED"; exit 1; }; \
	    echo "$${t##*/}: $$(sed -n 's/^\[  PASSED  \] \([0-9]*\).*/\1 tests passed/p' $$t.log)"; done

## http-diff: its request parser beside http-parser, over mutated requests
http-diff: $(HTTP_OUT)/diff
	@timeout $$(( $(HTTP_DIFF_SECONDS) + 120 )) $< $(HTTP_DIFF_SECONDS)

## http-fuzz: its parsers under libFuzzer
http-fuzz: $(HTTP_FUZZERS)
	@for t in $^; do mkdir -p $$t.corpus; \
	    timeout $$(( $(HTTP_FUZZ_SECONDS) + 300 )) $$t -max_total_time=$(HTTP_FUZZ_SECONDS) -max_len=8192 -timeout=60 \
	        -artifact_prefix=$$t. $$t.corpus $(wildcard tests/http/seeds) >$$t.log 2>&1 || \
	        { tail -60 $$t.log; echo "http: $${t##*/} FAILED, input in $$t.*"; exit 1; }; \
	    echo "$${t##*/}: $$(sed -n 's/^Done \([0-9]*\) runs.*/\1 runs, nothing found/p' $$t.log)"; done

## http-e2e: a live server: vanished clients, back-pressure, deadlines, WebSockets, proxying, throughput
http-e2e: $(HTTP_PROGRAMS) | venv
	@HTTP_ECHO=$(abspath $(HTTP_OUT)/echo) HTTP_ECHO_ASAN=$(abspath $(HTTP_OUT)/echo-asan) \
	    timeout 900 $(VENV)/bin/python -m pytest -q -p no:cacheprovider tests/http

http-proof:
	@$(MAKE) --no-print-directory http-diff http-fuzz HTTP_DIFF_SECONDS=$(PROOF_SECONDS) HTTP_FUZZ_SECONDS=$(PROOF_SECONDS)

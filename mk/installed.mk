# What a user installs: a copy below a prefix of its own, the wheel in an environment, and the environment that `carrel setup` makes.
# The packages come from a folder, so that no test waits for the network.
TEST_TARGETS     += installed
PACKAGES         += mmdebstrap dpkg-dev
PROOF_TARGETS    += installed-proof

WHEELHOUSE       := $(BUILD)/wheelhouse
WHEELHOUSE_HOLDS := ipykernel>=6.17 uv pip setuptools

.PHONY: installed installed-proof wheelhouse
wheelhouse: | venv
	@test "$$(cat $(WHEELHOUSE)/.packages 2>/dev/null)" = "$(WHEELHOUSE_HOLDS)" || { mkdir -p $(WHEELHOUSE) && \
	    $(RETRY) $(VENV)/bin/pip download --quiet --disable-pip-version-check --only-binary :all: $(PINNED) --dest $(WHEELHOUSE) \
	        $(foreach p,$(WHEELHOUSE_HOLDS),"$(p)") && echo "$(WHEELHOUSE_HOLDS)" >$(WHEELHOUSE)/.packages; }

# Debian 12's parser does not know user namespaces; Debian 13's is unpacked, not installed.
APPARMOR_PARSER  := $(BUILD)/apparmor/parser
$(APPARMOR_PARSER): | packages
	@rm -rf $(@D) && mkdir -p $(@D)
	@if apparmor_parser --version 2>/dev/null | grep -q 'version [4-9]'; then printf '#!/bin/sh\nexec apparmor_parser "$$@"\n' >$@.new; else \
	    $(RETRY) mmdebstrap --quiet --variant=extract --mode=root --include=apparmor,libc6 trixie $(abspath $(@D))/root && \
	    printf '#!/bin/sh\nr=%s\nexec $$r/usr/lib64/ld-linux-x86-64.so.2 --library-path $$r/usr/lib/x86_64-linux-gnu $$r/usr/sbin/apparmor_parser \
	        --config-file /dev/null "$$@"\n' $(abspath $(@D))/root >$@.new; fi
	@chmod 755 $@.new && mv $@.new $@

INSTALLED_ARGS   ?= tests/installed
## installed: a copy below another prefix, the wheel in an environment, `carrel setup`; as root and as an ordinary user
installed: all wheel | wheelhouse venv-kernel $(APPARMOR_PARSER)
	@CARREL_BUILD=$(abspath $(BUILD)) CARREL_WHEELHOUSE=$(abspath $(WHEELHOUSE)) CARREL_WHEEL="$$(echo $(abspath $(WHEEL_OUT))/*.whl)" \
	    timeout 900 $(KERNEL_PYTHON) -B -m pytest -q -p no:cacheprovider $(INSTALLED_ARGS)

## installed-proof: the same, all of it as both
installed-proof:
	@CARREL_LONG=1 $(MAKE) --no-print-directory installed

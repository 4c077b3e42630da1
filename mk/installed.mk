# What a user installs: a copy below a prefix of its own, the wheel in an environment, and the environment that `carrel setup` makes.
# The packages come from a folder, so that no test waits for the network.
TEST_TARGETS     += installed
PROOF_TARGETS    += installed-proof

WHEELHOUSE       := $(BUILD)/wheelhouse
WHEELHOUSE_HOLDS := ipykernel>=6.17

.PHONY: installed installed-proof wheelhouse
wheelhouse: | venv
	@test "$$(cat $(WHEELHOUSE)/.packages 2>/dev/null)" = "$(WHEELHOUSE_HOLDS)" || { mkdir -p $(WHEELHOUSE) && \
	    $(RETRY) $(VENV)/bin/pip download --quiet --disable-pip-version-check --only-binary :all: $(PINNED) --dest $(WHEELHOUSE) \
	        $(foreach p,$(WHEELHOUSE_HOLDS),"$(p)") && echo "$(WHEELHOUSE_HOLDS)" >$(WHEELHOUSE)/.packages; }

INSTALLED_ARGS   ?= tests/installed
## installed: a copy below another prefix, the wheel in an environment, `carrel setup`; as root and as an ordinary user
installed: all wheel | wheelhouse venv-kernel
	@CARREL_BUILD=$(abspath $(BUILD)) CARREL_WHEELHOUSE=$(abspath $(WHEELHOUSE)) CARREL_WHEEL="$$(echo $(abspath $(WHEEL_OUT))/*.whl)" \
	    timeout 900 $(KERNEL_PYTHON) -B -m pytest -q -p no:cacheprovider $(INSTALLED_ARGS)

## installed-proof: the same, all of it as both
installed-proof:
	@CARREL_LONG=1 $(MAKE) --no-print-directory installed

# What a fresh Debian machine lacks is installed here, and only what is missing. Other makefiles append to PACKAGES and PYTHON_PACKAGES.
PACKAGES += gcc make musl-tools libseccomp-dev libcmocka-dev clang libclang-rt-14-dev libcap2-bin uidmap bubblewrap strace \
            python3-venv git tmux
PYTHON_PACKAGES += pytest

# A download may fail once, and not every lock of another apt is waited for: then it is tried again after so many seconds.
PAUSES := 5 15 40
RETRY  := sh -c 'for pause in $(PAUSES) 0; do "$$@" && exit 0; sleep $$pause; done; exit 1' retry

# Unknown new releases must not decide a test.
PINNED := --constraint tests/constraints.txt

VENV   := $(BUILD)/venv
PYTHON := $(VENV)/bin/python

.PHONY: packages venv

## packages: install the Debian packages that are missing
packages:
	@command -v dpkg-query >/dev/null 2>&1 || exit 0; \
	missing=; \
	for p in $(sort $(PACKAGES)); do \
	    case "$$(dpkg-query -W -f='$${db:Status-Status}' $$p 2>/dev/null)" in installed*) ;; *) missing="$$missing $$p" ;; esac; \
	done; \
	test -n "$$missing" || exit 0; \
	if test "$$(id -u)" != 0; then \
	    echo "missing packages; please run: sudo apt-get update && sudo apt-get install -y --no-install-recommends$$missing" >&2; exit 1; \
	fi; \
	echo "installing:$$missing"; \
	export DEBIAN_FRONTEND=noninteractive; \
	install="apt-get install -y -q -o DPkg::Lock::Timeout=120 --no-install-recommends $$missing"; \
	$$install </dev/null >/dev/null 2>&1 && exit 0; \
	for pause in $(PAUSES) 0; do \
	    apt-get update -q </dev/null >/dev/null && $$install </dev/null >/dev/null && exit 0; \
	    sleep $$pause; \
	done; exit 1

## venv: the private Python environment of the tests
venv: | packages
	@test "$$(cat $(VENV)/.packages 2>/dev/null)" = "$(sort $(PYTHON_PACKAGES))" || { \
	    mkdir -p $(BUILD) && /usr/bin/python3 -m venv $(VENV) && \
	    $(RETRY) $(VENV)/bin/pip install --quiet --disable-pip-version-check $(PINNED) $(sort $(PYTHON_PACKAGES)) && \
	    echo "$(sort $(PYTHON_PACKAGES))" >$(VENV)/.packages; }

$(VENV)/bin/pytest: | venv

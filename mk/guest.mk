# What runs inside boxes: the IPython kernel and the Python zygote, with a Python environment to try them in. A makefile that needs
# more in that environment says KERNEL_PACKAGES += name, and lets its target depend on | venv-kernel.
KERNEL_PACKAGES += ipykernel==7.4.0 ipywidgets jupyter_kernel_test==0.7.0 matplotlib numpy pandas pytest

VENV_KERNEL     := $(BUILD)/venv-kernel
KERNEL_PYTHON   := $(VENV_KERNEL)/bin/python

.PHONY: venv-kernel

## venv-kernel: the Python environment that the tests' kernels run in
venv-kernel: | packages
	@test "$$(cat $(VENV_KERNEL)/.packages 2>/dev/null)" = "$(sort $(KERNEL_PACKAGES))" || { \
	    mkdir -p $(BUILD) && /usr/bin/python3 -m venv $(VENV_KERNEL) && \
	    $(RETRY) $(VENV_KERNEL)/bin/pip install --quiet --disable-pip-version-check $(PINNED) $(sort $(KERNEL_PACKAGES)) && \
	    echo "$(sort $(KERNEL_PACKAGES))" >$(VENV_KERNEL)/.packages; }

# --- what is copied to a machine: the package, and the zygote's library for every CPython (glibc; loaded through ctypes) ---
GUEST           := $(BUILD)/guest
GUEST_SOURCES   := $(wildcard guest/kernel/carrel_kernel/*.py)
GUEST_PACKAGE   := $(GUEST_SOURCES:guest/kernel/%=$(GUEST)/%) $(GUEST)/carrel_kernel/proto.py
SERVICE_PACKAGE := $(patsubst guest/service/%,$(GUEST)/%,$(wildcard guest/service/carrel_service/*.py)) $(GUEST)/carrel_service/proto.py
SETUP_FILES     := $(patsubst guest/setup/%,$(GUEST)/%,$(wildcard guest/setup/*.py)) $(GUEST)/carrel_layer.py
GUEST_LIBRARY   := $(GUEST)/libcarrel-zygote.so
# mk/zmtp.mk makes it.
GUEST_BRIDGE    := $(GUEST)/carrel-bridge
GUEST_FILES     := $(GUEST_PACKAGE) $(SERVICE_PACKAGE) $(SETUP_FILES) $(GUEST_LIBRARY) $(GUEST_BRIDGE)
all: $(GUEST_FILES)

$(GUEST)/%.py: guest/kernel/%.py
	@mkdir -p $(@D)
	$(call say,copy,$@)install -m 644 $< $@

$(GUEST)/%.py: guest/service/%.py
	@mkdir -p $(@D)
	$(call say,copy,$@)install -m 644 $< $@

$(GUEST)/%.py: guest/setup/%.py
	@mkdir -p $(@D)
	$(call say,copy,$@)install -m 644 $< $@

$(GUEST)/%.py: guest/layer/%.py
	@mkdir -p $(@D)
	$(call say,copy,$@)install -m 644 $< $@

# Python's half of src/proto.
$(BUILD)/gen/gen-guest: tools/gen-guest.c src/proto/names.c $(wildcard src/proto/*.h guest/zygote/*.h) | packages
	@mkdir -p $(@D)
	$(call say,cc,$@)$(HOSTCC) -g $(COMMON) -I. -o $@ $(filter %.c,$^)

$(GUEST)/carrel_%/proto.py: $(BUILD)/gen/gen-guest
	@mkdir -p $(@D)
	$(call say,gen,$@)$< $* >$@.new && mv $@.new $@ && chmod 644 $@

$(GUEST_LIBRARY): $(ZYGOTE_LIBRARY) $(POLICY_GENERATED) $(wildcard guest/zygote/*.h src/box/*.h src/box/*/*.h src/sys/*.h src/base/*.h src/proto/*.h) | packages
	@mkdir -p $(@D)
	$(call say,link,$@)$(HOSTCC) -O2 -g $(COMMON) $(HARDENING) -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections -shared \
	    -Wl,-z,noexecstack,-z,relro,-z,now,--gc-sections -o $@ $(ZYGOTE_LIBRARY) $(POLICY_GENERATED)

.PHONY: install-guest
install: install-guest
install-guest: $(GUEST_FILES)
	install -d $(DESTDIR)$(PREFIX)/lib/carrel/guest/carrel_kernel $(DESTDIR)$(PREFIX)/lib/carrel/guest/carrel_service
	install -m 644 $(GUEST_PACKAGE) $(DESTDIR)$(PREFIX)/lib/carrel/guest/carrel_kernel/
	install -m 644 $(SERVICE_PACKAGE) $(DESTDIR)$(PREFIX)/lib/carrel/guest/carrel_service/
	install -m 644 $(SETUP_FILES) $(DESTDIR)$(PREFIX)/lib/carrel/guest/
	install -m 755 $(GUEST_LIBRARY) $(GUEST_BRIDGE) $(DESTDIR)$(PREFIX)/lib/carrel/guest/

# --- the suite ---
GUEST_DRIVER    := $(BUILD)/tests/guest_driver
$(GUEST_DRIVER): tests/guest/driver.c $(filter-out $(foreach d,cli keeper files,$(BUILD)/obj/$(d)/%),$(ENGINE_OBJECTS))
	@mkdir -p $(@D)
	$(call say,link,$@)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^

# The oldest that is supported: what Debian 12 has.
VENV_KERNEL_OLD := $(BUILD)/venv-kernel-old
OLD_PACKAGES    := ipykernel==6.17.1 ipython==8.5.0 'traitlets<5.10'
TEST_TARGETS    += guest
PROOF_TARGETS   += guest-proof

# Interpreters with immortal objects, where this machine has them: python3.N in the path or of pyenv. Tests skip those that are missing.
IMMORTAL_VERSIONS := 3.12
IMMORTAL_PACKAGES := ipykernel==7.4.0 matplotlib numpy pandas

.PHONY: guest guest-proof venv-kernel-old venv-kernel-immortal
venv-kernel-immortal: | packages
	@for v in $(IMMORTAL_VERSIONS); do \
	    venv=$(BUILD)/venv-kernel-$$v; \
	    test "$$(cat $$venv/.packages 2>/dev/null)" = "$(IMMORTAL_PACKAGES)" && continue; \
	    for python in $$(which -a python$$v) $$HOME/.pyenv/versions/$$v.*/bin/python none; do \
	        "$$python" -c 'import sys, venv; sys.exit(sys.version_info[:2] != tuple(map(int, "'$$v'".split("."))))' 2>/dev/null && break; \
	    done; \
	    test "$$python" != none || { echo "guest: this machine has no Python $$v"; continue; }; \
	    mkdir -p $(BUILD) && "$$python" -m venv $$venv && \
	    $(RETRY) $$venv/bin/pip install --quiet --disable-pip-version-check $(PINNED) $(IMMORTAL_PACKAGES) && \
	    echo "$(IMMORTAL_PACKAGES)" >$$venv/.packages || exit 1; \
	done

venv-kernel-old: | packages
	@test "$$(cat $(VENV_KERNEL_OLD)/.packages 2>/dev/null)" = "$(OLD_PACKAGES)" || { \
	    mkdir -p $(BUILD) && /usr/bin/python3 -m venv $(VENV_KERNEL_OLD) && \
	    $(RETRY) $(VENV_KERNEL_OLD)/bin/pip install --quiet --disable-pip-version-check $(OLD_PACKAGES) && \
	    echo "$(OLD_PACKAGES)" >$(VENV_KERNEL_OLD)/.packages; }

GUEST_RUN        = $(KERNEL_PYTHON) -B -m pytest -q -p no:cacheprovider tests/guest $(GUEST_ARGS)
## guest: the IPython kernel and its zygote, plainly and in boxes
guest: $(GUEST_FILES) $(GUEST_DRIVER) | venv-kernel venv-kernel-immortal
	@CARREL_BUILD=$(abspath $(BUILD)) timeout 900 $(GUEST_RUN)

## guest-proof: the same with the newest and the oldest ipykernel
guest-proof: IMMORTAL_VERSIONS += 3.13
guest-proof: $(GUEST_FILES) $(GUEST_DRIVER) | venv-kernel venv-kernel-old venv-kernel-immortal
	@CARREL_BUILD=$(abspath $(BUILD)) CARREL_LONG=1 timeout 900 $(GUEST_RUN)

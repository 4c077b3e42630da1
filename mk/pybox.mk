# pybox: the page's examples, pppybox's own assertions for all managers, other interpreters and users; the wheel; a real gateway.
#   PYBOX_ARGS="-k timeout -x"
TEST_TARGETS    += pybox
PROOF_TARGETS   += pybox-proof pybox-gateway
KERNEL_PACKAGES += kubernetes

PYBOX_ENV        = CARREL_BUILD=$(abspath $(BUILD))
PYBOX_RUN        = $(KERNEL_PYTHON) -B -m pytest -q -p no:cacheprovider tests/pybox $(PYBOX_ARGS)

.PHONY: pybox pybox-proof pybox-gateway
## pybox: code for pybox with kernels in boxes, on this machine and through the Jupyter door
pybox: $(CLIENT_PROGRAMS) $(GUEST_FILES) | venv-kernel
	@$(PYBOX_ENV) timeout 900 $(PYBOX_RUN)

## pybox-proof: the same, with environments of other interpreters, and the wheel in an environment of its own
pybox-proof: $(CLIENT_PROGRAMS) $(GUEST_FILES) wheel | venv-kernel
	@$(PYBOX_ENV) CARREL_LONG=1 CARREL_WHEEL="$$(echo $(abspath $(WHEEL_OUT))/*.whl)" timeout 1800 $(PYBOX_RUN)

# An unmodified Enterprise Gateway, which needs old versions of everything.
GATEWAY_VENV    := $(BUILD)/venv-gateway
GATEWAY_NEEDS   := jupyter_enterprise_gateway==3.3.0 jupyter-client<7 ipykernel<7 matplotlib

$(GATEWAY_VENV)/.done: | packages
	@/usr/bin/python3 -m venv $(GATEWAY_VENV)
	@$(GATEWAY_VENV)/bin/pip install --quiet --disable-pip-version-check $(foreach p,$(GATEWAY_NEEDS),"$(p)")
	@touch $@

## pybox-gateway: RemotePyBoxManager against a real Jupyter Enterprise Gateway
pybox-gateway: $(GATEWAY_VENV)/.done | venv-kernel
	@$(PYBOX_ENV) CARREL_GATEWAY_VENV=$(abspath $(GATEWAY_VENV)) timeout 600 $(PYBOX_RUN) -k "Remote"

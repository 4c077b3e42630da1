# carrel kernel: kernels in boxes for Jupyter programs that know nothing of boxes.
TEST_TARGETS     += launcher
PROOF_TARGETS    += launcher-proof
.PHONY: launcher launcher-proof

## launcher: kernels that jupyter_client starts by our kernelspec
launcher: all | venv-kernel
	@CARREL_BUILD=$(abspath $(BUILD)) timeout 600 $(KERNEL_PYTHON) -B -m pytest -q -p no:cacheprovider tests/launcher

# Suites of others, unmodified: what they start is our kernel.
FOREIGN          := $(BUILD)/foreign
LAUNCHER_SPEC    := $(FOREIGN)/jupyter
$(FOREIGN)/%/.unpacked: | venv-kernel
	@rm -rf $(@D) && mkdir -p $(@D)
	@name=$(firstword $(subst -, ,$*)) version=$(lastword $(subst -, ,$*)); cd $(@D) && \
	    $(abspath $(KERNEL_PYTHON)) -m pip download --quiet --disable-pip-version-check --no-deps --no-binary $$name $$name==$$version && tar xzf *.tar.gz --strip-components=1
	@touch $@

## launcher-proof: pppybox's own tests and jupyter_kernel_test, unmodified, with our kernels
launcher-proof: all $(FOREIGN)/pppybox-0.0.19/.unpacked | venv-kernel
	@test -x $(FOREIGN)/venv/bin/pytest || { /usr/bin/python3 -m venv $(FOREIGN)/venv && $(FOREIGN)/venv/bin/pip install --quiet --disable-pip-version-check \
	    pppybox==0.0.19 ipykernel==7.4.0 pytest pytest-asyncio pytest-timeout; }
	@$(BUILD)/carrel kernelspec install --name python3 --prefix $(abspath $(LAUNCHER_SPEC)) --python $(abspath $(FOREIGN)/venv/bin/python) >/dev/null
	cd $(FOREIGN)/pppybox-0.0.19 && JUPYTER_PATH=$(abspath $(LAUNCHER_SPEC))/share/jupyter timeout 900 $(abspath $(FOREIGN)/venv/bin/pytest) -q -p no:cacheprovider \
	    -o asyncio_mode=auto tests/test_local.py

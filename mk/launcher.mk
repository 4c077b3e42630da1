# carrel kernel: kernels in boxes for Jupyter programs that know nothing of boxes.
TEST_TARGETS     += launcher
PROOF_TARGETS    += launcher-proof
.PHONY: launcher launcher-proof

## launcher: kernels that jupyter_client starts by our kernelspec
launcher: all | venv-kernel
	@CARREL_BUILD=$(abspath $(BUILD)) timeout 900 $(KERNEL_PYTHON) -B -m pytest -q -p no:cacheprovider tests/launcher

# Suites of others, unmodified: what they start is our kernel.
FOREIGN          := $(BUILD)/foreign
LAUNCHER_SPEC    := $(FOREIGN)/jupyter
$(FOREIGN)/%/.unpacked: | venv-kernel
	@rm -rf $(@D) && mkdir -p $(@D)
	@name=$(firstword $(subst -, ,$*)) version=$(lastword $(subst -, ,$*)); cd $(@D) && \
	    $(abspath $(KERNEL_PYTHON)) -m pip download --quiet --disable-pip-version-check --no-deps --no-binary $$name $$name==$$version && tar xzf *.tar.gz --strip-components=1
	@touch $@

FOREIGN_PACKAGES := pppybox==0.0.19 ipykernel==7.4.0 jupyter_client==8.10.0 pytest-jupyter[client]==0.11.0 msgpack pytest pytest-asyncio pytest-timeout \
                    nbclient==0.10.2 nbconvert ipywidgets flaky testpath xmltodict
FOREIGN_PYTEST    = CARREL_BUILD=$(abspath $(BUILD)) JUPYTER_PATH=$(abspath $(LAUNCHER_SPEC))/share/jupyter timeout 1200 \
                    $(abspath $(FOREIGN)/venv/bin/python) -m pytest -q -p no:cacheprovider

.PHONY: foreign-venv launcher-proof-pybox launcher-proof-client launcher-proof-nbclient
foreign-venv: all
	@test "$$(cat $(FOREIGN)/venv/.packages 2>/dev/null)" = "$(FOREIGN_PACKAGES)" || { /usr/bin/python3 -m venv $(FOREIGN)/venv && \
	    $(RETRY) $(FOREIGN)/venv/bin/pip install --quiet --disable-pip-version-check $(FOREIGN_PACKAGES) && echo "$(FOREIGN_PACKAGES)" >$(FOREIGN)/venv/.packages; }
	@$(BUILD)/carrel kernelspec install --name python3 --prefix $(abspath $(LAUNCHER_SPEC)) --python $(abspath $(FOREIGN)/venv/bin/python) >/dev/null

launcher-proof-pybox: foreign-venv $(FOREIGN)/pppybox-0.0.19/.unpacked
	@cd $(FOREIGN)/pppybox-0.0.19 && $(FOREIGN_PYTEST) -o asyncio_mode=auto tests/test_local.py

# jupyter_client's suites that start kernels: managers, restarts, clients, applications. The python3 kernel of the suite is ours, and its own kernel
# (tests/signalkernel.py) runs in a box, too: tests/launcher/proof/boxed.py. Left out:
# - signaltest-no-shutdown, signaltest-no-terminate (4): a kernel that ignores a shutdown request or SIGTERM, and a manager that has to go on to the next
#   means. Here there is nothing to go on to: the launcher ends box and kernel when it is asked, whatever the kernel does.
CLIENT_SUITES    := $(addprefix tests/test_,kernelmanager.py multikernelmanager.py restarter.py client.py manager.py provisioning.py kernelapp.py runapp.py)
launcher-proof-client: foreign-venv $(FOREIGN)/jupyter_client-8.10.0/.unpacked
	@cd $(FOREIGN)/jupyter_client-8.10.0 && PYTHONPATH=$(abspath tests/launcher/proof) $(FOREIGN_PYTEST) -p no:asyncio -p boxed -o addopts= --timeout 200 \
	    -k "not no-shutdown and not no-terminate" $(CLIENT_SUITES)

# nbclient's whole suite. Its notebooks that write into a temporary folder find it below their own, which is what a box has of this machine. Left out:
# - update-display-id.ipynb: with these versions it fails with the stock kernel, too (a number that it counts).
launcher-proof-nbclient: foreign-venv $(FOREIGN)/nbclient-0.10.2/.unpacked
	@cd $(FOREIGN)/nbclient-0.10.2 && PATH="$(abspath $(FOREIGN)/venv/bin):$$PATH" CARREL_URL= $(FOREIGN_PYTEST) -o addopts= -o filterwarnings= -p no:warnings \
	    --timeout 300 --basetemp tests/files/temporary -k "not update-display-id" tests

## launcher-proof: the own tests of pppybox, of jupyter_client and of nbclient, unmodified, with our kernels
launcher-proof: launcher-proof-pybox launcher-proof-client launcher-proof-nbclient

# A real Kubernetes for trying and proving things, built from Go's packages (tests/cluster/README.md). Nothing here is part of `make test`.
CLUSTER_PACKAGES := nftables iproute2 openssl util-linux python3 busybox-static mmdebstrap podman buildah
CLUSTER_OUT      := $(BUILD)/cluster
CLUSTER          := tests/cluster/cluster
CLUSTER_IMAGES   := $(CLUSTER_OUT)/pause.tar $(CLUSTER_OUT)/busybox.tar

.PHONY: cluster cluster-kwok cluster-down cluster-build cluster-packages
cluster-packages: | packages
	@$(MAKE) --no-print-directory packages PACKAGES="$(CLUSTER_PACKAGES)"

## cluster-build: build Kubernetes, containerd, etcd, kwok and agent-sandbox from Go's packages, once (20 minutes)
cluster-build: | cluster-packages
	@tests/cluster/build

# kubectl, kind and docker in PATH, and KUBECONFIG, for the shell that reads it.
cluster_env = @$(CLUSTER) env $(1) >$(CLUSTER_OUT)/env && echo 'type `. $(CLUSTER_OUT)/env` to have kubectl, kind, docker and KUBECONFIG in this shell'

## cluster: start a real single-node Kubernetes in namespaces of its own (the first time it is built: 13 minutes), and write BUILD/cluster/env
cluster: $(CLUSTER_IMAGES) | cluster-packages
	@tests/cluster/build etcd kubernetes containerd
	@$(CLUSTER) up $(foreach image,$(CLUSTER_IMAGES),--image $(image))
	$(call cluster_env,)

## cluster-kwok: the same with kwok in the place of a kubelet, for thousands of Pods that do not run
cluster-kwok: | cluster-packages
	@tests/cluster/build etcd kubernetes kwok
	@$(CLUSTER) up --fake
	@mkdir -p $(CLUSTER_OUT)
	$(call cluster_env,--fake)

## cluster-down: end both; nothing is left of them
cluster-down:
	@$(CLUSTER) down
	@$(CLUSTER) down --fake

$(CLUSTER_OUT)/pause.tar: tests/cluster/pause.c tools/make-image tools/oci.py
	@mkdir -p $(@D)
	@musl-gcc -static -Os -s -o $(@D)/pause $<
	@tools/make-image $@ --name pause:1 --program $(@D)/pause --entrypoint /pause

$(CLUSTER_OUT)/busybox.tar: tools/make-image tools/oci.py | cluster-packages
	@rm -rf $(@D)/busybox && mkdir -p $(@D)/busybox/bin $(@D)/busybox/etc $(@D)/busybox/tmp && chmod 1777 $(@D)/busybox/tmp
	@cp /bin/busybox $(@D)/busybox/bin/
	@for name in $$(/bin/busybox --list); do test $$name = busybox || ln -s busybox $(@D)/busybox/bin/$$name; done
	@echo 'root:x:0:0::/:/bin/sh' >$(@D)/busybox/etc/passwd
	@tools/make-image $@ --name busybox:1.36 --name busybox:latest --root $(@D)/busybox --cmd /bin/sh

# --- the proof ---
# The pages' commands, Sandboxes, Kernels and agent-sandbox's own tests on a real kubelet. CARREL_PAGES names a folder with the pages themselves.
#   CLUSTER_PROOF_ARGS="-k page_002"   CARREL_CLUSTER_KEEP=1 leaves the cluster running
PROOF_TARGETS    += cluster-proof
PYTHON_SLIM      := $(or $(CARREL_CLUSTER_CACHE),$(HOME)/.cache/carrel-cluster)/python-slim.tar

$(PYTHON_SLIM): tests/cluster/python-slim | cluster-packages
	@mkdir -p $(@D)
	@tests/cluster/python-slim $@

# The client that page 003 was written for, which needs an old one of Kubernetes' and forgets to say that it needs six.
VENV_PPPYBOX     := $(BUILD)/venv-pppybox
PPPYBOX_NEEDS    := pppybox==0.0.16 jkclient==0.0.7 kubernetes==35.0.0 six
$(VENV_PPPYBOX)/.done: mk/clusterrig.mk | packages
	@/usr/bin/python3 -m venv $(VENV_PPPYBOX)
	@$(RETRY) $(VENV_PPPYBOX)/bin/pip install --quiet --disable-pip-version-check $(PPPYBOX_NEEDS)
	@touch $@

# agent-sandbox's own client, and what its end-to-end tests need.
VENV_SANDBOX     := $(BUILD)/venv-sandbox
SANDBOX_NEEDS    := k8s-agent-sandbox==1.0.8 pytest pyyaml requests
$(VENV_SANDBOX)/.done: mk/clusterrig.mk | packages
	@/usr/bin/python3 -m venv $(VENV_SANDBOX)
	@$(RETRY) $(VENV_SANDBOX)/bin/pip install --quiet --disable-pip-version-check $(SANDBOX_NEEDS)
	@touch $@

# A model for the coding agent, and a browser.
CLUSTER_PROOF_NEEDS := pages-model venv-lab

.PHONY: cluster-proof bench-cluster
## cluster-proof: the pages' commands, Sandboxes, claims, Kernels, agent-sandbox's own tests and client on a real Kubernetes (as root)
cluster-proof: cluster-build images $(CLUSTER_IMAGES) $(PYTHON_SLIM) $(VENV_PPPYBOX)/.done $(VENV_SANDBOX)/.done $(CLUSTER_PROOF_NEEDS) | venv venv-kernel
	@CARREL_BUILD=$(abspath $(BUILD)) CARREL_KUBE_PYTHON=$(abspath $(KERNEL_PYTHON)) \
	    CARREL_PPPYBOX_PYTHON=$(abspath $(VENV_PPPYBOX))/bin/python CARREL_PAGES_MODEL=$(abspath $(PAGES_MODEL)) \
	    CARREL_LAB_PYTHON=$(abspath $(VENV_LAB))/bin/python CARREL_SANDBOX_PYTHON=$(abspath $(VENV_SANDBOX))/bin/python \
	    timeout 9000 $(VENV)/bin/python -m pytest -q -p no:cacheprovider tests/cluster $(CLUSTER_PROOF_ARGS)

# --- beside agent-sandbox ---
#   BENCH_CLUSTER_ROUNDS=2  BENCH_CLUSTER_MANY=5000
BENCH_CLUSTER_ROUNDS ?= 2
BENCH_CLUSTER_MANY   ?= 1000
BENCH_CLUSTER_CLAIMS ?= 1000
bench_cluster = $(CLUSTER) run $(2) --name bench-$(1) /usr/bin/python3 -B bench/cluster/run.py $(1) $(abspath $(BUILD)/carrel-controller) \
                agent-sandbox-controller --rounds $(BENCH_CLUSTER_ROUNDS)

## bench-cluster: the controller beside agent-sandbox's, on kwok and on a kubelet, in one run (as root)
bench-cluster: cluster-build $(BUILD)/carrel-controller $(CLUSTER_IMAGES)
	@$(CLUSTER) up --fake --name bench-kwok && $(CLUSTER) run --name bench-kwok kubectl apply -f packaging/kubernetes/carrel.yaml >/dev/null && \
	    $(CLUSTER) run --name bench-kwok kubectl delete -n agent-sandbox-system deployment agent-sandbox-controller >/dev/null && \
	    $(call bench_cluster,kwok,) --many $(BENCH_CLUSTER_MANY) --claims $(BENCH_CLUSTER_CLAIMS); status=$$?; $(CLUSTER) down --name bench-kwok; exit $$status
	@$(CLUSTER) up --name bench-real $(foreach image,$(CLUSTER_IMAGES),--image $(image)) && \
	    $(CLUSTER) run --name bench-real kubectl apply -f packaging/kubernetes/carrel.yaml >/dev/null && \
	    $(CLUSTER) run --name bench-real kubectl delete -n agent-sandbox-system deployment agent-sandbox-controller >/dev/null && \
	    $(call bench_cluster,real,); status=$$?; $(CLUSTER) down --name bench-real; exit $$status

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

## cluster: start a real single-node Kubernetes in namespaces of its own, and print its KUBECONFIG
cluster: cluster-build $(CLUSTER_IMAGES)
	@$(CLUSTER) up $(foreach image,$(CLUSTER_IMAGES),--image $(image))

## cluster-kwok: the same with kwok in the place of a kubelet, for thousands of Pods that do not run
cluster-kwok: cluster-build
	@$(CLUSTER) up --fake

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

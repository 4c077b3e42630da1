# Image archives without Docker (packaging/images/README.md).
IMAGES_OUT := $(BUILD)/images
IMAGES     := $(addprefix $(IMAGES_OUT)/carrel-,controller.tar kernel.tar workspace.tar runtime.tar)
image_names = --name $(1):$(VERSION) --name $(1):latest
IMAGE_FROM := tools/make-image tools/oci.py
PYTHON_IMAGE = tools/make-python-image $@ $(call image_names,carrel-$*) --packages packaging/images/debian.txt \
               --requirements packaging/images/$*.txt --constraints tests/constraints.txt --cache $(IMAGES_OUT)/pip
PYTHON_IMAGE_FROM = tools/make-python-image tools/oci.py packaging/images/debian.txt tests/constraints.txt

.PHONY: images images-packages
images-packages: | packages
	@$(MAKE) --no-print-directory packages PACKAGES="mmdebstrap binutils ca-certificates util-linux"

## images: archives of the controller, of a kernel, of a workspace and of a runtime for a cluster, in BUILD/images (as root)
images: $(IMAGES)

$(IMAGES_OUT)/carrel-controller.tar: $(BUILD)/carrel-controller $(IMAGE_FROM) | images-packages
	@mkdir -p $(@D)
	@tools/make-image $@ $(call image_names,carrel-controller) --program $< --entrypoint /carrel-controller --user 65532:65532

$(IMAGES_OUT)/carrel-kernel.tar: $(IMAGES_OUT)/carrel-%.tar: packaging/images/%.txt packaging/images/carrel-kernel $(PYTHON_IMAGE_FROM) | images-packages
	@mkdir -p $(@D)
	@$(PYTHON_IMAGE) --file packaging/images/carrel-kernel=/usr/local/bin/carrel-kernel --cmd carrel-kernel --check ipykernel pandas zmq

# It has the base in common with the kernel's image, so one after the other.
$(IMAGES_OUT)/carrel-workspace.tar: $(IMAGES_OUT)/carrel-%.tar: packaging/images/%.txt $(PYTHON_IMAGE_FROM) | $(IMAGES_OUT)/carrel-kernel.tar
	@$(PYTHON_IMAGE) --cmd jupyter lab --check ipykernel jupyterlab matplotlib pandas pip venv zmq

$(IMAGES_OUT)/carrel-runtime.tar: $(IMAGES_OUT)/carrel-%.tar: packaging/images/%.txt packaging/images/carrel-runtime packaging/images/carrel_live.py $(PYTHON_IMAGE_FROM) \
    | $(IMAGES_OUT)/carrel-workspace.tar
	@$(PYTHON_IMAGE) --file packaging/images/carrel-runtime=/usr/local/bin/carrel-runtime --file packaging/images/carrel_live.py=/usr/local/bin/carrel_live.py \
	    --folder /app --cmd carrel-runtime --check ipykernel jupyter_client lightgbm pandas pip sklearn

TEST_TARGETS += image-archives
.PHONY: image-archives
## image-archives: the writer of image archives, the cluster's manifest, the runtime with its kernels; without a cluster
image-archives: | $(VENV)/bin/pytest venv-kernel
	@KERNEL_PYTHON=$(abspath $(KERNEL_PYTHON)) timeout 240 $(VENV)/bin/python -m pytest -q -p no:cacheprovider tests/images

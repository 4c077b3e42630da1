# What is handed to others: the source, the wheel, a Debian package, and their checksums. The same commit on the same machine gives the same bytes.
RELEASE_OUT := $(BUILD)/release
RELEASE     := carrel-$(VERSION)

.PHONY: release
## release: source archive, wheel, Debian package and SHA256SUMS of the commit that is checked out, in BUILD/release
release: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)
release: all wheel
	@git diff --quiet HEAD || { echo "release: there are changes that are not committed" >&2; exit 1; }
	@rm -rf $(RELEASE_OUT) && mkdir -p $(RELEASE_OUT)
	@git archive --prefix=$(RELEASE)/ HEAD | gzip -9n >$(RELEASE_OUT)/$(RELEASE).tar.gz
	@cp $(WHEEL_OUT)/*.whl $(RELEASE_OUT)/
	@tools/make-deb --version $(VERSION) --programs $(WHEEL_BIN) --out $(RELEASE_OUT) -- \
	    $(MAKE) --no-print-directory install PREFIX=/usr APPARMOR=no
	@cd $(RELEASE_OUT) && sha256sum * >SHA256SUMS && cat SHA256SUMS

# `make proof`: what takes longer than anybody waits before a commit. A suite in another makefile joins with PROOF_TARGETS += its-target.
.PHONY: proof

## proof: make test, then the long suites one after the other
proof: test
	@failed=; \
	for suite in fuzz-long $(PROOF_TARGETS); do \
	    echo "== $$suite"; \
	    $(MAKE) --no-print-directory $$suite </dev/null || failed="$$failed $$suite"; \
	done; \
	if test -n "$$failed"; then echo "make proof: FAILED:$$failed"; exit 1; fi; \
	echo "make proof: all suites passed"

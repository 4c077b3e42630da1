# `make proof`: what takes longer than anybody waits before a commit. A suite in another makefile joins with PROOF_TARGETS += its-target.
#   PROOF_SECONDS=600 (for each fuzzer)
PROOF_SECONDS ?= 60
.PHONY: proof

## proof: make test, then the long suites one after the other; broken off, it goes on with what has not passed yet
proof: all
	@tools/prove $(BUILD)/proof test fuzz-long $(PROOF_TARGETS)

# Every system call of the making of a box fails in turn, and carrel is ended at each.
#   FAULT_STRIDE=N (each N-th call)  FAULT_ARGS="--only init:12 --verbose"
TEST_TARGETS  += fault
PROOF_TARGETS += fault-proof
FAULT_STRIDE  ?= 7
FAULT_OUT     := $(BUILD)/fault
FAULT_CFLAGS   = -std=gnu17 -D_GNU_SOURCE= -O1 -g $(WARNINGS) -Wno-conversion

.PHONY: fault fault-proof
$(FAULT_OUT)/inject: tests/fault/inject.c | packages
	@mkdir -p $(@D)
	$(call say,cc,$<)$(HOSTCC) $(FAULT_CFLAGS) -o $@ $<

$(FAULT_OUT)/witness: tests/fault/witness.c | packages
	@mkdir -p $(@D)
	$(call say,cc,$<)$(HOSTCC) $(FAULT_CFLAGS) -static -o $@ $<

# In a mount namespace of its own, so that a mount that is left can only be ours.
FAULT_RUN = unshare --mount --propagation private /usr/bin/python3 -B tests/fault/fault.py --inject $(FAULT_OUT)/inject \
            --witness $(FAULT_OUT)/witness --carrel $(BUILD)/carrel $(FAULT_ARGS)

## fault: each FAULT_STRIDE-th system call of the making of a box fails in turn; SIGKILL and SIGTERM at each
fault: $(BUILD)/carrel $(FAULT_OUT)/inject $(FAULT_OUT)/witness
	@if test "$$(id -u)" = 0; then FAULT_STRIDE=$(FAULT_STRIDE) timeout 600 $(FAULT_RUN); \
	else echo "fault: needs root to trace every process; skipped"; fi

fault-proof:
	@$(MAKE) --no-print-directory fault FAULT_STRIDE=1
	@$(MAKE) --no-print-directory fault FAULT_STRIDE=1 FAULT_ARGS="--no-signals --errnos EPERM,ENOMEM,EIO,EINTR"

# Carrel. `make demo` shows it, `make test` proves it; `make help` lists the rest.
MAKEFLAGS += --no-builtin-rules
BUILD   := build
include mk/setup.mk
include mk/build.mk
include mk/sanitize.mk
include mk/test.mk
include mk/proof.mk

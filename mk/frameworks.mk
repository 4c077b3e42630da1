# The agent frameworks: their own suites and our tests, with the wheel in an environment that has all of them at once.
#   FRAMEWORKS_ARGS="-k inspect -x"
TEST_TARGETS       += frameworks
PROOF_TARGETS      += proof-frameworks

FRAMEWORKS         := deepagents==0.7.32 langchain-tests inspect-ai openai-agents smolagents pillow autogen-ext autogen-agentchat ag2 mini-swe-agent anthropic \
                      ipykernel pytest pytest-asyncio
# langchain-tests 1.1 was written for this one: what it expects of glob and write changed with 0.7.
FRAMEWORKS_OLD     := deepagents==0.6.12 langchain-tests pytest pytest-asyncio
VENV_FRAMEWORKS    := $(BUILD)/venv-frameworks
VENV_FRAMEWORKS_OLD := $(BUILD)/venv-frameworks-old
FRAMEWORKS_PINNED  := --constraint tests/frameworks/constraints.txt
FRAMEWORKS_RUN      = -B -m pytest -q -p no:cacheprovider -o asyncio_mode=auto -W ignore::pytest.PytestDeprecationWarning
FRAMEWORKS_ENV      = CARREL_BUILD=$(abspath $(BUILD)) CARREL_EXAMPLES=$(abspath examples/frameworks)

.PHONY: frameworks proof-frameworks venv-frameworks venv-frameworks-old bench-frameworks
# $(1): the folder, $(2): its contents. A changed wheel is installed again.
define framework_venv
@test "$$(cat $(1)/.packages 2>/dev/null)" = "$(sort $(2))" || { \
    /usr/bin/python3 -m venv --clear $(1) && \
    $(RETRY) $(1)/bin/pip install --quiet --disable-pip-version-check $(FRAMEWORKS_PINNED) $(sort $(2)) && echo "$(sort $(2))" >$(1)/.packages; }
@wheel="$$(echo $(WHEEL_OUT)/*.whl)"; sum="$$(cksum <$$wheel)"; test "$$(cat $(1)/.wheel 2>/dev/null)" = "$$sum" || { \
    $(1)/bin/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall $$wheel && echo "$$sum" >$(1)/.wheel; }
endef

venv-frameworks: wheel | packages
	$(call framework_venv,$(VENV_FRAMEWORKS),$(FRAMEWORKS))
venv-frameworks-old: wheel | packages
	$(call framework_venv,$(VENV_FRAMEWORKS_OLD),$(FRAMEWORKS_OLD))

## frameworks: the agent frameworks with boxes: a cut of their own suites, walls, lifetimes, the examples
frameworks: venv-frameworks
	@$(FRAMEWORKS_ENV) timeout 600 $(VENV_FRAMEWORKS)/bin/python $(FRAMEWORKS_RUN) tests/frameworks $(FRAMEWORKS_ARGS)

## proof-frameworks: the frameworks' own suites whole, unmodified, from the wheel, as root and as an ordinary user; then with the deepagents of the suite
proof-frameworks: venv-frameworks venv-frameworks-old
	@$(FRAMEWORKS_ENV) CARREL_LONG=1 timeout 1200 $(VENV_FRAMEWORKS)/bin/python $(FRAMEWORKS_RUN) tests/frameworks $(FRAMEWORKS_ARGS)
	@$(FRAMEWORKS_ENV) timeout 1200 $(VENV_FRAMEWORKS)/bin/python -B tests/frameworks/as_user.py tests/frameworks $(FRAMEWORKS_ARGS)
	@$(FRAMEWORKS_ENV) CARREL_LONG=1 timeout 600 $(VENV_FRAMEWORKS_OLD)/bin/python $(FRAMEWORKS_RUN) tests/frameworks/test_deepagents.py $(FRAMEWORKS_ARGS)

## bench-frameworks: first and later commands of deepagents, Inspect and AutoGen in boxes, beside the frameworks' own unconfined defaults
bench-frameworks: venv-frameworks
	@$(VENV_FRAMEWORKS)/bin/python -B bench/frameworks.py

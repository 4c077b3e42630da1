# Packages of boxes: layers, made in worker boxes from an index of the tests' own on loopback, which serves the wheelhouse.
TEST_TARGETS     += layers
PROOF_TARGETS    += layers-proof

LAYERS_ARGS      ?= tests/layers
LAYERS_S         ?= 900
# What each change could break; layers-proof does all of it, as root and as an ordinary user.
LAYERS_CUT       ?= once_and_then_found or survive_a_stop or turned_on or tells_what_each or \
                    (root and not poisoned and (hostile or killed_installation or right_hashes or wrong_hash or pip_enforces or cannot_be_read or \
                     killed_builders_left or backup or \
                     other_versions_of_python or of_a_server or side_by_side or comes_before or two_remedies or cells \
                     or refused_in_words or setup_script or in_use or forked or identities or that_it_names or \
                     that_are or template))

.PHONY: layers layers-proof
## layers: packages of boxes: installed once, shared, walled off, removed; hostile packages; kills
layers: all | wheelhouse venv
	@CARREL_BUILD=$(abspath $(BUILD)) CARREL_WHEELHOUSE=$(abspath $(WHEELHOUSE)) \
	    timeout $(LAYERS_S) $(PYTHON) -B -m pytest -q -p no:cacheprovider $(LAYERS_ARGS) $(if $(LAYERS_CUT),-k "$(LAYERS_CUT)")

## layers-proof: the same, all of it as root and as an ordinary user; 200 kills; packages of the real index
layers-proof:
	@CARREL_KILLS=200 $(MAKE) --no-print-directory layers LAYERS_CUT= LAYERS_S=9000

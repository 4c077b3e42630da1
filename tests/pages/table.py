"""Every block of code and every command of the pages, by its lines: what it is, which repairs it needs, and the command that proves it.

A block is (page, first line, last line, what it begins with, what it is, repairs, proof). The proof is a command, run once in the
repository's directory for all blocks that name it: status 0 passes, 77 says on its last line what is lacking, anything else fails. A text in brackets is what
is lacking."""

PROVE = "{python} -B tests/pages/prove.py"
SRC = "src -> carrel"
CLUSTER = "{python} -B tests/pages/on_cluster.py"

SCOPED_004 = [
    ("004", 13, 21, "from src.environment", "configure the scoped sandbox", SRC, f"{PROVE} steps 004"),
    ("004", 31, 55, "# interface.py", "the interface", "", f"{PROVE} steps 004"),
    ("004", 65, 69, "model_tools = scoped.serve(", "serve it", "example_dir is defined before", f"{PROVE} steps 004"),
    ("004", 81, 87, "# helpers.py", "helpers", "", f"{PROVE} steps 004"),
    ("004", 95, 107, "from src.workspace", "workspace and session", SRC, f"{PROVE} steps 004"),
    ("004", 115, 132, "from src.harness", "run the agent", f"{SRC}; async for is put into a function", f"{PROVE} steps 004"),
    ("004", 138, 187, "import asyncio", "full example", SRC, f"{PROVE} full 004"),
    ("004", 191, 191, "cd experiments/", "its command", "", f"{PROVE} full 004"),
]
SCOPED_001 = [
    ("001", 13, 22, "from src.environment", "configure the scoped sandbox", SRC, f"{PROVE} steps 001"),
    ("001", 30, 54, "# interface.py", "the interface", "", f"{PROVE} steps 001"),
    ("001", 60, 64, "model_tools = scoped.serve(", "serve it", "example_dir is defined before", f"{PROVE} steps 001"),
    ("001", 74, 85, "from src.workspace", "workspace and session", SRC, f"{PROVE} steps 001"),
    ("001", 91, 104, "from src.harness", "run the agent", f"{SRC}; async for is put into a function", f"{PROVE} steps 001"),
    ("001", 108, 155, "import asyncio", "full example", SRC, f"{PROVE} full 001"),
    ("001", 156, 157, "cd experiments/", "its commands", "", f"{PROVE} full 001"),
]
PYBOX_003 = [
    ("003", 31, 31, "pip install", "install tablegpt-agent", "", 
     "[the package tablegpt-agent, which is not ours; its sandbox needs carrel[local] here]"),
    ("003", 43, 66, "from uuid import", "local sandbox", "pybox -> carrel.pybox", f"{PROVE} pybox 003 43 66 Local"),
    ("003", 73, 73, "data=[", "what it prints", "", f"{PROVE} pybox 003 43 66 Local"),
    ("003", 94, 117, "from uuid import", "remote sandbox", "pybox -> carrel.pybox; the gateway's address", f"{PROVE} pybox 003 94 117 Remote"),
    ("003", 125, 125, "data=[", "what it prints", "", f"{PROVE} pybox 003 94 117 Remote"),
    ("003", 151, 177, "from uuid import", "cluster sandbox", "pybox -> carrel.pybox",
     f"{CLUSTER} test_the_cluster_example_prints_what_the_page_says"),
    ("003", 185, 185, "data=[", "what it prints", "", f"{CLUSTER} test_the_cluster_example_prints_what_the_page_says"),
]
WORKSPACES_000 = [
    ("000", 97, 101, "# Port forward", "forward a port", "", f"{CLUSTER} test_the_pages_address_opens_the_notebook"),
    ("000", 111, 125, "# Create sandbox for Bob", "a sandbox for Bob", "the token, and the spec that is to be copied",
     f"{CLUSTER} test_two_persons_have_two_versions_and_two_secrets"),
]
CODING_002 = [
    ("002", 17, 23, "# Verify installations", "versions of tools", "", f"{CLUSTER} test_1_the_required_software_answers"),
    ("002", 28, 29, "# Verify installation", "wait for the controller", "", f"{CLUSTER} test_the_pages_verification_succeeds"),
    ("002", 33, 34, "# Export your", "a token in the environment", "", f"{CLUSTER} test_2_build_load_deploy_watch_and_wait"),
    ("002", 37, 40, "# Clone the repository", "fetch the example", "the repository is this one",
     f"{CLUSTER} test_2_build_load_deploy_watch_and_wait"),
    ("002", 44, 51, "apiVersion: v1", "a secret", "indentation was lost", f"{CLUSTER} test_2_build_load_deploy_watch_and_wait"),
    ("002", 53, 59, "# Build init container image", "build and load images", "", f"{CLUSTER} test_2_build_load_deploy_watch_and_wait"),
    ("002", 60, 65, "# Deploy to Kubernetes", "deploy", "", f"{CLUSTER} test_2_build_load_deploy_watch_and_wait"),
    ("002", 67, 71, "# Attach to the agent", "use the agent", "", f"{CLUSTER} test_3_attach_ask_and_see_the_error_fixed"),
    ("002", 84, 85, "limits:", "more memory", "indentation was lost", f"{CLUSTER} test_5_more_memory_replaces_the_pod"),
    ("002", 96, 96, "export SUBPROCESS_ENV", "variables for the code", "", "make --no-print-directory examples"),
    ("002", 100, 100, "MODEL_ID =", "another model", "", f"{CLUSTER} test_4_switching_the_model_deletes_the_claim_first"),
    ("002", 102, 102, "def __init__", "another model", "", f"{CLUSTER} test_4_switching_the_model_deletes_the_claim_first"),
    ("002", 104, 112, "# Delete PVC", "deploy again", "", f"{CLUSTER} test_4_switching_the_model_deletes_the_claim_first"),
    ("002", 115, 117, "kubectl delete sandbox", "remove the agent", "", f"{CLUSTER} test_7_clean_up_leaves_nothing_of_the_agent"),
    ("002", 119, 120, "kubectl delete namespace", "remove the controller", "", f"{CLUSTER} test_removing_it_as_the_page_does_keeps_kernels"),
    ("002", 122, 122, "kind delete", "remove the cluster", "", "[kind itself, which needs Docker; `make cluster-down` here]"),
    ("002", 127, 130, "kubectl logs", "look at logs", "the next item's words are on its line",
     f"{CLUSTER} test_6_the_commands_for_support_say_something"),
]
# Short pages of our own, for users without the others.
OWN = [
    ("scoped", 5, 9, "from src.environment", "configure the scoped sandbox", SRC, f"{PROVE} steps scoped"),
    ("scoped", 13, 27, "# interface.py", "the interface", "", f"{PROVE} steps scoped"),
    ("scoped", 31, 31, "model_tools = scoped.serve(", "serve it", "example_dir is defined before", f"{PROVE} steps scoped"),
    ("scoped", 35, 39, "# helpers.py", "helpers", "", f"{PROVE} steps scoped"),
    ("scoped", 43, 47, "from src.workspace", "workspace and session", SRC, f"{PROVE} steps scoped"),
    ("scoped", 51, 56, "from src.harness", "run the agent", f"{SRC}; async for is put into a function", f"{PROVE} steps scoped"),
    ("scoped", 60, 82, "import asyncio", "full example", SRC, f"{PROVE} full scoped"),
    ("scoped", 86, 86, "cd experiments/", "its command", "", f"{PROVE} full scoped"),
]
REAL = [
    ("torch", 5, 9, "from src.environment", "configure the scoped sandbox", SRC, f"{PROVE} steps torch"),
    ("torch", 13, 30, "# interface.py", "the interface", "", f"{PROVE} steps torch"),
    ("torch", 34, 34, "model_tools = scoped.serve(", "serve it", "example_dir is defined before", f"{PROVE} steps torch"),
    ("torch", 38, 42, "# helpers.py", "helpers", "", f"{PROVE} steps torch"),
    ("torch", 46, 50, "from src.workspace", "workspace and session", SRC, f"{PROVE} steps torch"),
    ("torch", 54, 59, "from src.harness", "run the agent", f"{SRC}; async for is put into a function", f"{PROVE} steps torch"),
    ("torch", 63, 85, "import asyncio", "full example", SRC, f"{PROVE} full torch"),
    ("torch", 89, 89, "cd experiments/", "its command", "", f"{PROVE} full torch"),
]
OWN += REAL
PAGES = [*WORKSPACES_000, *SCOPED_001, *CODING_002, *PYBOX_003, *SCOPED_004]

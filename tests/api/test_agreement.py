"""Several places list the settings of a box: they agree."""
import importlib.machinery
import importlib.util
import inspect
import json
import pathlib
import re
import subprocess
import sys

import pytest

from support import BUILD
from support.server import limits

TOP = pathlib.Path(__file__).parents[2]
SCHEMAS = json.loads((TOP / "src/doors/native/openapi.json").read_text())["components"]["schemas"]
ASKED = set(SCHEMAS["BoxCreate"]["properties"])
# Names that the command line and the SDK have for members of the API, where they are not the same.
MANY = {"keys": "key", "env": "env", "labels": "label", "mounts": "mount", "devices": "device", "volumes": "volume", "secrets": "secret"}


def load_table():
    loader = importlib.machinery.SourceFileLoader("limits_tool", str(TOP / "tools/limits"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("limits_tool", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return {row["name"]: row for row in module.read_table()}


TABLE = load_table()
NAMES = set(TABLE)


def options_of(*command):
    text = subprocess.run([str(BUILD / command[0]), *command[1:], "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"--([a-z][a-z-]+)", text))


def test_openapi_and_the_documentation_are_as_the_table_says():
    subprocess.run([str(TOP / "tools/limits"), "--check"], check=True)


def test_the_programs_help_has_every_limit_and_every_setting():
    assert NAMES <= options_of("carrel", "run")
    create = options_of("carrel-server", "create")
    wanted = {MANY.get(name, name).replace("_", "-") for name in ASKED - {"limits", "requests"}}
    assert wanted | NAMES | {"request-" + name for name in NAMES if "REQUEST" in TABLE[name]["flags"]} <= create


def test_the_sdk_has_a_parameter_for_every_setting():
    sys.path.insert(0, str(TOP / "sdk/python"))
    from carrel import Box
    parameters = set(inspect.signature(Box.__init__).parameters)
    assert ASKED - {"limits"} | NAMES <= parameters


def allowed(process):
    """How many calls the filter of that process lets through, always or with some arguments."""
    head, *rows = [line for line in (TOP / "tests/seccomp/golden.txt").read_text().splitlines() if not line.startswith("#")]
    at = re.search(rf"(?<!\S){process}(?!\S)", head).start()
    return sum(row[at:].split()[0] in ("allow", "args") for row in rows if row[:1].isdigit() and row[at:].strip())


def test_the_calls_of_init_and_of_the_dialer_are_as_many_as_the_documentation_says():
    number = {6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten", 20: "twenty", 21: "twenty-one"}
    page = " ".join((TOP / "docs/SECURITY.md").read_text().split())
    assert f"a filter of {number[allowed('init')]} calls, or of {number[allowed('init_desk')]}" in page
    assert f"knows one address and has {number[allowed('dialer')]} system calls" in page


def test_the_manual_names_every_setting():
    manual = (TOP / "docs/carrel.1").read_text()
    for name in NAMES | {MANY.get(name, name).replace("_", "-") for name in ASKED - {"limits", "requests"}}:
        assert re.search(r"Fl -(\S+ , -)*%s\b" % re.escape(name), manual), name


def test_what_is_asked_for_is_shown_as_it_was_asked_for(make_box):
    assert ASKED <= set(SCHEMAS["Box"]["properties"])
    wanted = limits(**{name: max(row["least"], row["server"] or row["least"]) // 2 * 2 for name, row in TABLE.items() if row["kind"] != "CPUS"}, cpus=0.5)
    wanted["disk"] = 64 << 20
    shown = make_box(limits=wanted)["limits"]
    assert set(shown) == NAMES and {name: shown[name] for name in wanted} == wanted


@pytest.mark.parametrize("name", sorted(NAMES))
def test_bounds_hold_in_the_api(alice, name):
    row, scale = TABLE[name], 1000 if TABLE[name]["kind"] == "CPUS" else 1
    wrong = [(row["least"] - 1) / scale if scale > 1 else row["least"] - 1] + ([row["most"] / scale + 1 if scale > 1 else row["most"] + 1] if row["most"] else [])
    for value in wrong:
        answer = alice.post("/v1/boxes", {"limits": {name: value}})
        assert answer.status == 400 and "limits." + name in answer.json["error"]["message"]


def test_only_some_may_change_while_the_box_is_there(alice, make_box):
    path = "/v1/boxes/" + make_box(limits={"disk": 16 << 20})["id"]
    live = {name for name, row in TABLE.items() if "LIVE" in row["flags"]}
    assert set(SCHEMAS["BoxUpdate"]["properties"]["limits"]["properties"]) == live
    for name in NAMES - live:
        answer = alice.patch(path, {"limits": {name: TABLE[name]["least"]}})
        assert answer.status == 400 and f"limits.{name} cannot be changed" in answer.json["error"]["message"]

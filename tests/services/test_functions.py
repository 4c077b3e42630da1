"""Forms of an interface, arguments and results of its functions, and messages when they are wrong."""
import json
import subprocess

import pytest

from support import BUILD
from support.waiting import wait_for

KINDS = """
import dataclasses, enum, typing
from typing import Optional, Union, Literal, List, Dict, Tuple, TypedDict

class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"

@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0
    next: Optional["Point"] = None

class Person(TypedDict, total=False):
    name: str
    age: int

@expose
def scalars(a: int, b: float, c: str, d: bool, e: None = None): return [a, b, c, d, e]
@expose
def maybe(n: Optional[int] = None): return n
@expose
def either(v: Union[int, str, List[int]]): return v
@expose
def literal(mode: Literal["fast", "slow", 3] = "fast"): return mode
@expose
def lists(v: List[int], w: list = []): return [v, w]
@expose
def table(v: Dict[str, float]): return v
@expose
def numbered(v: Dict[int, str]): return sorted(v)
@expose
def pair(v: Tuple[int, str]): return [type(v).__name__, *v]
@expose
def point(p: Point): return [type(p).__name__, p.x, p.y, p.next.x if p.next else None]
@expose
def points(ps: List[Point]) -> List[Point]: return ps
@expose
def color(c: Color = Color.RED): return c.name
@expose
def person(p: Person): return p
@expose
def keywords(a, /, b, *, c=3): return [a, b, c]
@expose
def variable(*args: int, **kwargs: str): return [list(args), kwargs]
@expose
def plain(a, b=None): return [a, b]
@expose
def late(v: "Optional[Point]" = None): return v
"""


@pytest.fixture(scope="module")
def kinds(alice):
    answer = alice.post("/v1/services", {"code": KINDS, "name": "kinds"})
    assert answer.status == 201, answer.body
    from conftest import Service
    yield Service(alice, answer.json)
    alice.delete("/v1/services/kinds")


@pytest.mark.parametrize("function, args, result", [
    ("scalars", [1, 2, "x", True], [1, 2.0, "x", True, None]),
    ("maybe", [], None), ("maybe", [3], 3), ("maybe", [None], None),
    ("either", ["x"], "x"), ("either", [4], 4), ("either", [[1, 2]], [1, 2]),
    ("literal", ["slow"], "slow"), ("literal", [3], 3),
    ("lists", [[1, 2], ["x"]], [[1, 2], ["x"]]),
    ("table", [{"a": 1}], {"a": 1.0}),
    ("numbered", [{"2": "b", "1": "a"}], [1, 2]),
    ("pair", [[1, "x"]], ["tuple", 1, "x"]),
    ("point", [{"x": 1, "next": {"x": 5}}], ["Point", 1.0, 0.0, 5.0]),
    ("points", [[{"x": 1}]], [{"x": 1.0, "y": 0.0, "next": None}]),
    ("color", ["blue"], "BLUE"), ("color", [], "RED"),
    ("person", [{"name": "a"}], {"name": "a"}),
    ("keywords", [1, 2], [1, 2, 3]),
    ("variable", [1, 2], [[1, 2], {}]),
    ("plain", [{"any": [1]}], [{"any": [1]}, None]),
    ("late", [{"x": 2}], {"x": 2.0, "y": 0.0, "next": None}),
    ("plain", [2 ** 80], [2 ** 80, None]),
])
def test_arguments_become_what_annotations_say(kinds, function, args, result):
    assert kinds.call(function, *args) == result


@pytest.mark.parametrize("function, args, kwargs, argument, words", [
    ("scalars", ["1", 2, "x", True], {}, "a", "must be an integer, not a string"),
    ("scalars", [1, 2, "x", 1], {}, "d", "must be a boolean"),
    ("scalars", [True, 2, "x", True], {}, "a", "must be an integer, not a boolean"),
    ("scalars", [1, 2, "x"], {}, None, "missing"),
    ("maybe", ["x"], {}, "n", "must be an integer or null"),
    ("literal", ["warp"], {}, "mode", "one of 'fast', 'slow', 3"),
    ("lists", [[1, "x"]], {}, "v", "v[1]"),
    ("lists", [3], {}, "v", "must be a list"),
    ("pair", [[1]], {}, "v", "2 members"),
    ("point", [{"y": 1}], {}, "p", "lacks the member 'x'"),
    ("point", [{"x": 1, "z": 2}], {}, "p", "unknown member 'z'"),
    ("points", [[{"x": 1}, {"x": "no"}]], {}, "ps", "ps[1].x"),
    ("color", ["green"], {}, "c", "one of 'red', 'blue'"),
    ("keywords", [1, 2, 3], {}, None, "too many positional"),
    ("plain", [1], {"z": 1}, None, "unexpected keyword argument 'z'"),
    ("variable", ["x"], {}, "args", "args[0]"),
    ("variable", [], {"a": 1}, "a", "must be a string"),
])
def test_wrong_arguments_are_named_before_the_call(kinds, function, args, kwargs, argument, words):
    answer = kinds.ask(function, *args, **kwargs)
    assert (answer.status, answer.code) == (422, "invalid_arguments"), answer.body
    assert words in answer.json["error"]["message"]
    assert answer.json["error"]["details"]["argument"] == argument


def test_schemas_are_json_schema(kinds):
    f = kinds.functions
    assert f["maybe"]["input_schema"] == {"type": "object", "properties": {"n": {"type": ["integer", "null"], "default": None}}, "additionalProperties": False}
    assert f["literal"]["input_schema"]["properties"]["mode"] == {"enum": ["fast", "slow", 3], "default": "fast"}
    assert f["points"]["input_schema"]["properties"]["ps"] == {"type": "array", "items": {"$ref": "#/$defs/Point"}}
    assert f["points"]["input_schema"]["$defs"]["Point"]["required"] == ["x"]
    assert f["points"]["output_schema"]["items"] == {"$ref": "#/$defs/Point"}
    assert f["scalars"]["input_schema"]["required"] == ["a", "b", "c", "d"]
    assert f["variable"]["input_schema"]["additionalProperties"] == {"type": "string"}
    assert f["keywords"]["signature"] == "(a, /, b, *, c=3)"


def test_an_unknown_function_is_not_there(kinds):
    assert kinds.ask("nope").status == 404
    assert kinds.ask("__import__").status == 404


# --- results ---

RESULTS = """
import sys, os, math, asyncio, decimal
class Thing: pass
class Tensor:
    def tolist(self): return []
@expose
def nan(): return {"loss": [1.0, float("nan")]}
@expose
def infinity(): return float("-inf")
@expose
def a_set(): return {1}
@expose
def tensor(): return {"x": Tensor()}
@expose
def data(): return b"x"
@expose
def keys(): return {1: 2}
@expose
def thing(): return [Thing()]
@expose
def lazy(): return (i for i in range(3))
@expose
def coroutine(): return asyncio.sleep(1)
@expose
def loop():
    a = []; a.append(a); return a
@expose
def deep():
    a = []
    for _ in range(500): a = [a]
    return a
@expose
def large(n: int): return "x" * n
@expose
def leave(): sys.exit(3)
@expose
def interrupt(): raise KeyboardInterrupt
@expose
def fail(): return helper(0)
def helper(x): return 1 / x
@expose
def odd_text(): return "\\ud800 \\u0000 \\u2028"
@expose
def fine(): return (1, [2, (3,)], {"a": None})
@expose
def forked():
    pid = os.fork()
    if pid == 0:
        return "child"
    os.waitpid(pid, 0)
    return "parent"
"""


@pytest.fixture(scope="module")
def shown(alice):
    answer = alice.post("/v1/services", {"code": RESULTS, "name": "results"})
    assert answer.status == 201, answer.body
    from conftest import Service
    yield Service(alice, answer.json)
    alice.delete("/v1/services/results")


@pytest.mark.parametrize("function, words", [
    ("nan", ["the result of nan()['loss'][1] is nan", "return None"]), ("infinity", ["is -inf"]),
    ("a_set", ["is a set", "list("]), ("tensor", ["['x']", "Tensor", ".tolist()"]), ("data", ["bytes", "base64"]),
    ("keys", ["the key 1", "str(k)"]), ("thing", ["[0]", "Thing"]), ("lazy", ["generator", "list("]), ("coroutine", ["async def"]),
    ("loop", ["contains itself"]), ("deep", ["nested"]),
])
def test_a_result_that_is_no_json_is_named_with_the_fix(shown, function, words):
    error = shown.error(function)
    assert error["type"] == "NotJSON"
    for word in words:
        assert word in error["message"], error


def test_a_large_result_is_an_error_and_a_middling_one_passes(shown):
    assert len(shown.call("large", 5 << 20)) == 5 << 20
    assert "the most is" in shown.error("large", 40 << 20)["message"]
    assert shown.call("fine") == [1, [2, [3]], {"a": None}]


def test_what_a_function_raises_does_not_end_the_worker(shown):
    before = shown.show()["restarts"]
    assert shown.error("leave")["type"] == "SystemExit"
    assert shown.error("interrupt")["type"] == "KeyboardInterrupt"
    assert shown.call("forked") == "parent"
    assert shown.call("odd_text").endswith("\u2028")
    assert shown.show()["restarts"] == before


def test_a_traceback_begins_in_the_interface_and_names_no_path_of_ours(shown):
    error = shown.error("fail")
    assert error["type"] == "ZeroDivisionError"
    assert 'File "interface.py"' in error["traceback"] and "in helper" in error["traceback"] and "return 1 / x" in error["traceback"]
    assert "carrel" not in error["traceback"] and "/tmp" not in error["traceback"], error["traceback"]


# --- loading ---

def failed(create, code, **body):
    answer = create(code, status=422, **body)
    assert answer["error"]["code"] == "load_failed"
    return answer["error"]


@pytest.mark.parametrize("python,words", [
    ("/no/such/python", "cannot be started: it is not in the box"), ("/etc/passwd", "cannot be started: the box's user may not run it"),
    ("/usr/bin/false", "ended with status 1 before it came to the interface"), ("/usr/bin/ldd", "ended with status 1"),
])
def test_an_interpreter_that_cannot_serve_is_blamed_and_not_the_interface(create, alice, python, words):
    boxes = len(alice.get("/v1/boxes").json["boxes"])
    error = create("@expose\ndef f(): pass\n", status=422, python=python)["error"]
    assert error["code"] == "interpreter_failed" and error["details"]["type"] == "InterpreterFailed", error
    assert f"the interpreter {python} {words}" in error["message"] and "interface could not be loaded" not in error["message"], error
    wait_for(lambda: len(alice.get("/v1/boxes").json["boxes"]) == boxes, "its box is gone")


@pytest.mark.parametrize("kind", ["service", "kernel"])
def test_an_interpreter_that_is_too_old_says_so_itself(kind):
    """Before it meets anything that it does not understand."""
    code = f"import sys, runpy\nsys.version_info = (3, 6)\nsys.argv = ['x']\nrunpy.run_path({str(BUILD / 'guest' / ('carrel_' + kind))!r}, run_name='__main__')"
    done = subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True, text=True, timeout=60)
    said = json.loads(done.stderr.splitlines()[-1])
    assert done.returncode == 78 and said == {"error": f"/usr/bin/python3 is Python 3.6, which is too old for a {kind}", "hint": "use 3.9 or newer"}


def test_an_interface_that_cannot_be_loaded_says_why_and_leaves_nothing(create, alice):
    boxes = len(alice.get("/v1/boxes").json["boxes"])
    error = failed(create, "def f(:\n  pass\n")
    assert error["details"]["type"] == "SyntaxError" and error["details"]["line"] == 1
    error = failed(create, "x = 1\nimport nothing_like_this\n")
    assert error["details"]["type"] == "ModuleNotFoundError" and error["details"]["line"] == 2
    assert "import nothing_like_this" in error["details"]["traceback"] and "carrel" not in error["details"]["traceback"]
    error = failed(create, "def f(): pass\n")
    assert "@expose" in error["message"]
    error = failed(create, "@expose\ndef f(): pass\n@expose\ndef f(): pass\n")
    assert "exposed already" in error["message"]
    error = failed(create, "import sys\nsys.exit(5)\n")
    assert error["details"]["type"] == "SystemExit" and error["details"]["line"] == 2
    error = failed(create, "import os\nos._exit(5)\n")
    assert "status 5" in error["message"]
    error = failed(create, "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    assert "SIGSEGV" in error["message"]
    error = failed(create, "while True:\n    pass\n", load_timeout=1)
    assert error["details"]["type"] == "TimeoutError" and error["details"]["line"] in (1, 2)
    assert not [s for s in alice.get("/v1/services").json["services"] if s["name"] not in ("kinds", "results")]
    wait_for(lambda: len([b for b in alice.get("/v1/boxes").json["boxes"]]) <= boxes)


def test_an_interface_that_does_not_heed_the_interrupt_is_ended(create):
    error = failed(create, """
        import signal, time
        while True:
            try:
                time.sleep(100)
            except BaseException:
                pass
        """, load_timeout=1)
    # On a slow machine the time may be over before the file's first line is run.
    assert error["details"]["outcome"] == "timeout" or error["details"]["type"] == "TimeoutError"


def test_prints_of_module_level_code_are_events_while_it_loads(alice):
    response = alice.open("POST", "/v1/services", {"code": "import sys, os\nprint('one')\nprint('two', file=sys.stderr)\nos.system('echo three')\n@expose\ndef f(): pass\n",
                                                   "name": "prints"}, {"Accept": "application/x-ndjson"})
    lines = [json.loads(line) for line in response]
    response.connection.close()
    assert lines[-1]["type"] == "service" and lines[-1]["state"] == "ready"
    assert "".join(e["text"] for e in lines if e["type"] == "stdout") == "one\nthree\n"
    assert "".join(e["text"] for e in lines if e["type"] == "stderr") == "two\n"
    alice.delete("/v1/services/prints")


def test_names_are_there_without_import_and_in_siblings(create, box, alice):
    put = alice.ask("PUT", f"/v1/boxes/{box}/files/home/box/lib/sibling.py?parents=true", b"path = get_model_path('org/model')\n@expose\ndef from_sibling(): return list_configured_models()\n")
    assert put.status in (200, 201, 204), put.body
    s = create("""
        import inspect, sibling
        @expose
        def where(): return [sibling.path, __name__, __file__.rsplit("/", 1)[1], inspect.getsource(where).strip().splitlines()[-1].strip()[:9]]
        @expose
        def unknown(): return get_model_path("other")
        """, box=box, path=["/home/box/lib"], models={"org/model": "/models/org--model"}, filename="tools.py")
    assert s.call("where") == ["/models/org--model", "tools", "tools.py", "def where"]
    assert s.call("from_sibling") == {"org/model": "/models/org--model"}
    assert "org/model" in s.error("unknown")["message"]


def test_env_and_secrets_reach_the_worker_and_secrets_are_nowhere_else(create, server, alice):
    s = create("import os\n@expose\ndef get(name): return os.environ.get(name)\n", env={"PLAIN": "seen"}, secrets={"HF_TOKEN": "hf-very-secret"})
    assert s.call("get", "HF_TOKEN") == "hf-very-secret" and s.call("get", "PLAIN") == "seen"
    assert b"hf-very-secret" not in alice.get(s.path).body
    for path in (server.folder / "state").rglob("*"):
        if path.is_file():
            assert b"hf-very-secret" not in path.read_bytes(), path
    assert "hf-very-secret" not in server.log_text()


def test_several_services_share_a_box_and_one_goes_without_the_other(create, box):
    one, two = create("@expose\ndef who(): return 1\n", box=box, name="one"), create("@expose\ndef who(): return 2\n", box=box, name="two")
    assert [one.call("who"), two.call("who")] == [1, 2]
    one.client.delete(one.path)
    assert two.call("who") == 2


def test_a_box_that_was_made_for_a_service_goes_with_it(create, alice):
    s = create("@expose\ndef f(): pass\n", settings={"limits": {"memory": "128M"}})
    assert alice.get("/v1/boxes/" + s.shown["box"]).json["limits"]["memory"] == 128 << 20
    assert alice.delete(s.path).status == 204
    wait_for(lambda: alice.get("/v1/boxes/" + s.shown["box"]).json["phase"] == "deleted")


@pytest.mark.parametrize("body, words", [
    ({"code": 3}, "code"), ({}, "code is missing"), ({"code": "x", "name": "a b"}, "name"), ({"code": "x", "filename": "../x"}, "filename"),
    ({"code": "x", "path": ["rel"]}, "path[0]"), ({"code": "x", "models": {"a": "rel"}}, "models"), ({"code": "x", "python": "python"}, "python"),
    ({"code": "x", "what": 1}, "what"), ({"code": "x", "env": {"A": 1}}, "env.A"), ({"code": "x", "settings": 3}, "settings"),
])
def test_a_body_that_is_wrong_is_refused_by_name(alice, body, words):
    answer = alice.post("/v1/services", body)
    assert answer.status == 400 and words in answer.json["error"]["message"], answer.body


def test_a_name_is_taken_once(create, alice):
    create("@expose\ndef f(): pass\n", name="taken")
    assert create("@expose\ndef f(): pass\n", name="taken", status=409)["error"]["code"] == "exists"


def test_a_service_may_have_all_the_memory_that_the_server_may_give(create, alice, admin):
    s = create("@expose\ndef f(): pass\n", settings={"limits": {"memory": "max"}})
    limit = alice.get("/v1/boxes/" + s.shown["box"]).json["limits"]["memory"]
    assert limit > 512 << 20
    assert alice.post("/v1/boxes", {"requests": {"memory": "max"}}).status == 400
    assert alice.ask("PATCH", "/v1/boxes/" + s.shown["box"], {"limits": {"memory": "max"}}).status == 400

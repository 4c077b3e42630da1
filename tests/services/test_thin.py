"""The thin path: a service, a call over HTTP, a call from a box through its inlet."""

ECHO = """
print("loading")
counter = 0

@expose
def echo(value):
    \"\"\"Gives back what it gets.\"\"\"
    return value

@expose()
def count(step: int = 1) -> int:
    global counter
    counter += step
    return counter
"""


def test_a_service_is_made_and_called(create):
    s = create(ECHO, name="echo")
    assert s.show()["state"] == "ready"
    assert s.functions["echo"]["doc"] == "Gives back what it gets."
    assert s.call("echo", {"a": [1, 2.5, None, "ü"]}) == {"a": [1, 2.5, None, "ü"]}
    assert [s.call("count"), s.call("count", step=3)] == [1, 4]


def test_a_box_calls_through_its_inlet(create, grant, box, run):
    s = create(ECHO, name="echo")
    grant(s, box=box, functions=["echo"])
    assert run(box, "print(json.dumps(call('echo', 42)))") == [200, {"ok": True, "result": 42}]
    status, told = run(box, "print(json.dumps(ask('GET', '/v1/grant')))")
    assert status == 200 and [f["name"] for f in told["services"][0]["functions"]] == ["echo"]

"""The worker alone, on each interpreter that the machine has: from 3.9 on it must do the same on all."""
import glob
import json
import os
import socket
import struct
import subprocess
import time

import pytest

from support import BUILD

GUEST = BUILD / "guest/carrel_service"
PYTHONS = sorted({os.path.realpath(p) for p in ["/usr/bin/python3", *glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3"))]
                  if subprocess.run([p, "-c", "import sys; sys.exit(sys.version_info < (3, 9))"], capture_output=True).returncode == 0},
                 key=lambda p: [int(n) for n in p.split("/")[-3].split(".")] if "pyenv" in p else [])
if os.environ.get("SERVICE_PYTHONS") != "all" and len(PYTHONS) > 3:
    PYTHONS = [PYTHONS[0], PYTHONS[1], PYTHONS[-1]]         # the system's, the oldest, the newest


class Worker:
    """The front's side of the link."""

    def __init__(self, python, code, **more):
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ours.settimeout(60)
        self.process = subprocess.Popen([python, GUEST], stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        theirs.close()
        self.number = 0
        self.send(type="load", code=code, filename="interface.py", **more)

    def send(self, **message):
        data = json.dumps(message).encode()
        for offset in range(0, len(data), 128 << 10):
            self.ours.send(struct.pack("<II", len(data), offset) + data[offset:offset + (128 << 10)])

    def receive(self):
        data = b""
        while True:
            packet = self.ours.recv((128 << 10) + 8)
            assert packet, "the worker is gone"
            total, offset = struct.unpack_from("<II", packet)
            data = data[:offset] + packet[8:]
            if len(data) == total:
                return json.loads(data)

    def until(self, *kinds):
        while True:
            message = self.receive()
            if message["type"] in kinds:
                return message

    def start(self, function, *args, **kwargs):
        self.number += 1
        self.send(type="call", id=self.number, function=function, args=args, kwargs=kwargs)
        return self.number

    def call(self, function, *args, **kwargs):
        self.start(function, *args, **kwargs)
        return self.until("result", "error", "invalid")

    def close(self):
        self.ours.close()
        self.process.wait(60)


CODE = """
import asyncio, dataclasses, enum, sys, threading, time
from typing import Dict, List, Literal, Optional, Tuple, Union
lock = asyncio.Lock()
@dataclasses.dataclass
class P:
    x: int
    q: "Optional[P]" = None
class E(enum.Enum):
    A = 1
@expose
def kinds(a: Optional[int], b: Literal["x", 2], c: Dict[str, List[P]], d: Tuple[int, ...], e: E = E.A, *f: int, **g: str): return [a, b, c, d, e, f, g]
@expose
def nap(): print("asleep"); time.sleep(1000)
@expose
def spin():
    print("spinning")
    while True: pass
@expose
def printing():
    while True: print("x")
@expose
async def locked(v):
    async with lock:
        await asyncio.sleep(0.01)
        return v
@expose
async def wait(): print("waiting"); await asyncio.sleep(1000)
@expose
async def block(seconds: float): print("blocking"); time.sleep(seconds)
@expose
def fail():
    try: 1 / 0
    except ZeroDivisionError as e: raise ValueError("wrapped") from e
@expose
def large(v: str): return v
@expose
def threads():
    out = []
    t = threading.Thread(target=lambda: out.append(print("from a thread"))); t.start(); t.join()
    return len(out)
@expose
def version(): return list(sys.version_info[:2])
"""
TEXTS = """
from __future__ import annotations
import dataclasses, datetime, decimal, pathlib, types, uuid
from typing import Optional
@dataclasses.dataclass
class P:
    x: int
first = P
@dataclasses.dataclass
class P:
    y: datetime.date
second = P
@expose
def written(d: datetime.datetime, b: bytes, u: uuid.UUID, p: pathlib.Path, n: decimal.Decimal, t: Optional[datetime.time] = None, day: datetime.date = None):
    return [type(v).__name__.replace("Posix", "") for v in (d, b, u, p, n, t, day)] + [d.isoformat(), b.decode(), p.name, str(n)]
def same(a: first, b: second): return [a.x, b.y.isoformat()]
same.__annotations__ = {"a": first, "b": second}
expose(same)
"""
MODERN = "@expose\ndef modern(a: int | None = None, b: list[int] | str = 'x'): return [a, b]\n"


@pytest.fixture(params=PYTHONS, ids=lambda p: ".".join(p.split("/")[-3].split(".")[:2]) if "pyenv" in p else "system")
def worker(request):
    w = Worker(request.param, CODE)
    w.description = w.until("loaded")
    yield w
    w.close()


def test_arguments_and_schemas(worker):
    shown = {f["name"]: f for f in worker.description["functions"]}
    properties = shown["kinds"]["input_schema"]["properties"]
    assert properties["a"] == {"type": ["integer", "null"]} and properties["b"] == {"enum": ["x", 2]}
    assert properties["c"] == {"type": "object", "additionalProperties": {"type": "array", "items": {"$ref": "#/$defs/P"}}}
    assert properties["d"] == {"type": "array", "items": {"type": "integer"}} and properties["e"]["enum"] == [1] and properties["e"]["default"] == 1
    answer = worker.call("kinds", None, 2, {"k": [{"x": 1, "q": {"x": 2}}]}, [1, 2], 1, 7, 8, z="s")
    assert answer["value"] == [None, 2, {"k": [{"x": 1, "q": {"x": 2, "q": None}}]}, [1, 2], 1, [7, 8], {"z": "s"}]
    assert worker.call("kinds", "no", 2, {}, [])["value"]["argument"] == "a"


def test_interrupts(worker):
    for function in ("nap", "spin", "printing", "wait"):
        number = worker.start(function)
        assert worker.until("print")["id"] == number
        worker.send(type="cancel", id=number)
        answer = worker.until("error")
        assert answer["id"] == number and answer["value"]["type"] in ("Interrupted", "CancelledError"), answer
    assert worker.call("version")["type"] == "result"


def test_a_cancel_that_comes_late_hits_nobody(worker):
    for _ in range(200):
        number = worker.start("version")
        worker.send(type="cancel", id=number)
        worker.until("result", "error")
        assert worker.call("version")["type"] == "result"


def test_async_and_sync_together(worker):
    number = worker.start("nap")
    worker.until("print")
    assert worker.call("locked", 5)["value"] == 5       # while the other sleeps
    worker.send(type="cancel", id=number)
    assert worker.until("error")["id"] == number
    numbers = [worker.start("locked", i) for i in range(20)]
    assert sorted(worker.until("result")["id"] for _ in numbers) == numbers


def test_an_async_call_that_waits_for_a_blocked_loop_is_cancelled_at_once(worker):
    """The front ends a worker that does not answer a cancel: its state is lost then."""
    for waits_already in (True, False):     # both come to the loop together, or one after the other
        if waits_already:
            worker.send(type="call", id=901, function="block", args=[0.3], kwargs={})
        worker.send(type="call", id=902, function="block", args=[3], kwargs={})
        worker.send(type="call", id=903, function="wait", args=[], kwargs={})
        while worker.until("print")["id"] != 902:
            pass
        worker.send(type="cancel", id=903)
        answer = worker.until("error", "result")
        while answer["id"] == 901:
            answer = worker.until("error", "result")
        assert (answer["id"], answer["type"], answer["value"]["type"]) == (903, "error", "Interrupted"), answer
        assert worker.until("error", "result", "print")["id"] == 902
        assert worker.call("version")["type"] == "result"       # and it never began


def test_errors_large_values_and_threads(worker):
    error = worker.call("fail")["value"]
    assert error["type"] == "ValueError" and "ZeroDivisionError" in error["traceback"] and 'File "interface.py"' in error["traceback"]
    assert "carrel_service" not in error["traceback"] and "/tmp" not in error["traceback"], error["traceback"]
    assert worker.call("large", "x" * (3 << 20))["value"] == "x" * (3 << 20)
    worker.start("threads")
    assert worker.until("print")["value"] == "from a thread\n"
    assert worker.until("result")["value"] == 1


def test_another_front_asks_again_and_what_goes_on_is_dropped(worker):
    worker.start("nap")
    worker.until("print")
    worker.send(type="describe")
    assert worker.until("loaded") == worker.description
    assert worker.until("error")["value"]["type"] == "Interrupted"
    assert worker.call("version")["type"] == "result"


def test_it_ends_when_the_front_closes(worker):
    worker.start("spin")
    worker.until("print")
    worker.ours.close()
    begin = time.monotonic()
    assert worker.process.wait(60) == 0 and time.monotonic() - begin < 30


@pytest.mark.parametrize("python", [p for p in PYTHONS if "3.9" not in p], ids=lambda p: ".".join(p.split("/")[-3].split(".")[:2]) if "pyenv" in p else "system")
def test_annotations_of_newer_pythons(python):
    w = Worker(python, MODERN)
    try:
        schema = w.until("loaded", "failed")["functions"][0]["input_schema"]
        assert schema["properties"]["a"] == {"type": ["integer", "null"], "default": None}
        assert w.call("modern", 3, [1])["value"] == [3, [1]]
        assert w.call("modern", "x")["type"] == "invalid"
    finally:
        w.close()


@pytest.mark.parametrize("python", PYTHONS, ids=lambda p: ".".join(p.split("/")[-3].split(".")[:2]) if "pyenv" in p else "system")
def test_what_json_has_as_text_arrives_as_what_it_is(python):
    w = Worker(python, TEXTS)
    try:
        shown = {f["name"]: f for f in w.until("loaded")["functions"]}
        assert shown["written"]["signature"].startswith("(d: datetime.datetime, b: bytes, u: uuid.UUID, p: pathlib.Path, n: decimal.Decimal, "), shown["written"]["signature"]
        properties = shown["written"]["input_schema"]["properties"]
        assert (properties["d"]["format"], properties["b"]["contentEncoding"], properties["u"]["format"]) == ("date-time", "base64", "uuid")
        good = ["2026-01-31T12:00:00Z", "aGk=", "12345678-1234-5678-1234-567812345678", "/a/name", "1.10", "12:30", "2026-01-31"]
        answer = w.call("written", *good)
        assert answer["value"] == ["datetime", "bytes", "UUID", "Path", "Decimal", "time", "date", "2026-01-31T12:00:00+00:00", "hi", "name", "1.10"], answer
        for at, words in enumerate(("date and time", "base64", "UUID", None, "decimal", "time", "date")):
            if words:
                refused = w.call("written", *good[:at], "?", *good[at + 1:])
                assert refused["type"] == "invalid" and words in refused["value"]["message"], refused
        defs = shown["same"]["input_schema"]["$defs"]
        assert sorted(tuple(d["properties"]) for d in defs.values()) == [("x",), ("y",)]
        assert w.call("same", {"x": 1}, {"y": "2026-01-31"})["value"] == [1, "2026-01-31"]
    finally:
        w.close()

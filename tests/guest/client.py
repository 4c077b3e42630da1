"""A client of a kernel's link, as the front is one."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import time
import uuid
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

PACKET = 128 << 10
PATIENCE = 120          # seconds for what must come: a first import on a slow machine takes its time
POLL = "7" if os.uname().machine == "x86_64" else "73"
FOREVER = (0, 0xffffffff, 0xffffffffffffffff)      # poll's -1, or no time for ppoll
Message = Dict[str, Any]


def pack(channel: str, parts: Sequence[bytes]) -> bytes:
    parts = [channel.encode(), *parts]
    offsets = [8 * (2 + len(parts))]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return struct.pack("<%dQ" % (1 + len(offsets)), len(offsets), *offsets) + b"".join(parts)


def unpack(data: bytes) -> Message:
    (count,) = struct.unpack_from("<Q", data)
    offsets = struct.unpack_from("<%dQ" % count, data, 8)
    assert offsets[0] == 8 * (1 + count) and offsets[-1] == len(data)
    parts = [data[a:b] for a, b in zip(offsets, offsets[1:])]
    header, parent, metadata, content = (json.loads(p.decode("utf-8"), parse_constant=refuse) for p in parts[1:5])
    return {"channel": parts[0].decode(), "header": header, "parent_header": parent, "metadata": metadata, "content": content,
            "buffers": parts[5:], "msg_type": header["msg_type"]}


def refuse(name: str) -> None:
    raise ValueError("not JSON: " + name)


class Client:
    """One end of a link. Each message is received whole or the test fails: nothing may be torn."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.session = uuid.uuid4().hex
        self.half: Optional[bytearray] = None
        self.total = 0

    def send_raw(self, data: bytes) -> None:
        for offset in range(0, len(data), PACKET) or [0]:
            self.socket.sendmsg([struct.pack("<II", len(data), offset), data[offset:offset + PACKET]])

    def send(self, msg_type: str, content: Optional[Message] = None, channel: str = "shell", buffers: Sequence[bytes] = (),
             metadata: Optional[Message] = None, parent: Optional[Message] = None) -> str:
        msg_id = uuid.uuid4().hex
        header = {"msg_id": msg_id, "msg_type": msg_type, "session": self.session, "username": "t", "date": "2026-01-01T00:00:00Z",
                  "version": "5.3"}
        self.send_raw(pack(channel, [json.dumps(p).encode() for p in (header, parent or {}, metadata or {}, content or {})] + list(buffers)))
        return msg_id

    def receive(self, timeout: float = PATIENCE) -> Message:
        deadline = time.monotonic() + timeout
        while True:
            ready, _, _ = select.select([self.socket], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("no message within %g s" % timeout)
            packet = self.socket.recv(PACKET + 8)
            if not packet:
                raise EOFError("the kernel closed the link")
            total, offset = struct.unpack_from("<II", packet)
            if offset == 0:
                assert self.half is None, "a torn message"
                self.half, self.total = bytearray(), total
            assert self.half is not None and offset == len(self.half) and total == self.total
            self.half += packet[8:]
            if len(self.half) == total:
                data, self.half = bytes(self.half), None
                return unpack(data)

    def collect(self, msg_id: str, timeout: float = PATIENCE, reply: bool = True) -> List[Message]:
        """All messages of a request, until its idle and its reply are there."""
        found: List[Message] = []
        idle = False
        while not idle or reply:
            m = self.receive(timeout)
            if m["parent_header"].get("msg_id") != msg_id:
                continue
            found.append(m)
            if m["channel"] in ("shell", "control"):
                reply = False
            idle = idle or (m["msg_type"] == "status" and m["content"]["execution_state"] == "idle")
        return found

    def request(self, msg_type: str, content: Optional[Message] = None, channel: str = "shell", timeout: float = PATIENCE) -> Message:
        found = self.collect(self.send(msg_type, content, channel), timeout)
        return [m for m in found if m["channel"] == channel][0]["content"]

    def run(self, code: str, timeout: float = PATIENCE, **more: Any) -> "Ran":
        return Ran(self.collect(self.submit(code, **more), timeout))

    def submit(self, code: str, **more: Any) -> str:
        return self.send("execute_request", dict({"code": code, "silent": False, "store_history": True, "user_expressions": {},
                                                  "allow_stdin": False, "stop_on_error": True}, **more))


class Ran:
    """What came of a cell."""

    def __init__(self, messages: List[Message]) -> None:
        self.messages = messages
        self.reply = [m for m in messages if m["msg_type"] == "execute_reply"][0]["content"]
        self.stdout = self.stream("stdout")
        self.stderr = self.stream("stderr")
        self.data = [m["content"]["data"] for m in messages if m["msg_type"] in ("execute_result", "display_data")]
        errors = [m["content"] for m in messages if m["msg_type"] == "error"]
        self.error = errors[-1] if errors else None

    def stream(self, name: str) -> str:
        return "".join(m["content"]["text"] for m in self.messages if m["msg_type"] == "stream" and m["content"]["name"] == name)

    @property
    def text(self) -> str:
        return self.data[-1]["text/plain"]

    def types(self) -> List[str]:
        return [m["msg_type"] for m in self.messages]


def link() -> Tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Kernel(Client):
    """A kernel as a process of its own, started plainly, with the client to it."""

    home: Optional[str] = None          # a folder that goes with it

    def __init__(self, argv: Sequence[str], env: Optional[Dict[str, str]] = None, cwd: Optional[str] = None) -> None:
        ours, theirs = link()
        super().__init__(ours)
        self.out_r, out_w = os.pipe()
        self.err_r, err_w = os.pipe()
        self.process = subprocess.Popen(list(argv), stdin=theirs, stdout=out_w, stderr=err_w, env=env, cwd=cwd, start_new_session=True)
        theirs.close()
        os.close(out_w)
        os.close(err_w)

    def interrupt(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def printed(self, fd: int = 1, timeout: float = PATIENCE, until: bytes = b"") -> bytes:
        """What came over the pipe of that descriptor, at least until these bytes are in it."""
        pipe, data, deadline = (self.out_r if fd == 1 else self.err_r), b"", time.monotonic() + timeout
        while until not in data or not data:
            if not select.select([pipe], [], [], max(0, deadline - time.monotonic()))[0]:
                break
            got = os.read(pipe, 65536)
            if not got:
                break
            data += got
        return data

    def close(self) -> int:
        self.socket.close()
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            os.close(self.out_r)
            os.close(self.err_r)
            if self.home:
                shutil.rmtree(self.home, ignore_errors=True)
        return status


def program(pid: int) -> str:
    """Empty for one that has ended."""
    try:
        return os.readlink("/proc/%d/exe" % pid)
    except OSError:
        return ""


def parent(pid: int) -> int:
    """0 for one that is gone."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            return int(file.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


class Boxes:
    """A family with a Python zygote, and its boxes, through tests/guest/driver.c."""

    ASK = struct.Struct("<4i4000s")
    ANSWER = struct.Struct("<2q200s")
    PARK, START, EXEC, END = range(4)

    def __init__(self, driver: str, layers: Sequence[str], argv: Sequence[str], timeout: float = PATIENCE, profile: str = "standard") -> None:
        ours, theirs = link()
        self.socket = ours
        self.errors_r, errors_w = os.pipe()

        def place() -> None:
            os.dup2(theirs.fileno(), 3, True)

        self.process = subprocess.Popen([driver, ":".join(layers), *argv], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors_w,
                                        preexec_fn=place, env=dict(os.environ, DRIVER_PROFILE=profile), pass_fds=[3, theirs.fileno()])
        theirs.close()
        os.close(errors_w)
        self.socket.settimeout(timeout)
        if not self.socket.recv(4096):
            raise RuntimeError(self.errors())

    def errors(self) -> str:
        return os.read(self.errors_r, 65536).decode()

    def ask(self, kind: int, slot: int = 0, argv: Sequence[str] = (), env: Optional[Dict[str, str]] = None, fds: Sequence[int] = ()) -> Tuple[int, int]:
        strings = [*argv, *("%s=%s" % pair for pair in (env or {}).items())]
        data = self.ASK.pack(kind, slot, len(argv), len(env or {}), b"".join(s.encode() + b"\0" for s in strings))
        socket.send_fds(self.socket, [data], list(fds))
        answer = self.socket.recv(4096)
        if not answer:
            raise RuntimeError(self.errors())
        value, us, text = self.ANSWER.unpack(answer)
        if value < 0:
            raise OSError(-value, text.rstrip(b"\0").decode())
        return value, us

    def park(self) -> int:
        return self.ask(self.PARK)[0]

    def children(self) -> Set[int]:
        """Not from .../children, which may lack some while others end."""
        return {int(pid) for pid in os.listdir("/proc") if pid.isdigit() and parent(int(pid)) == self.process.pid}

    def park_warm(self, timeout: float = PATIENCE) -> int:
        """A box whose kernel has done all that it does before its command comes."""
        before = self.children()
        slot, deadline = self.park(), time.monotonic() + timeout
        while time.monotonic() < deadline:
            # Not the box's init, and not the helper that gave birth, which may be about to end.
            new = [p for p in self.children() - before if program(p) not in ("", program(self.process.pid))]
            try:
                call = open("/proc/%d/syscall" % new[0]).read().split() if len(new) == 1 else ["running"]
            except OSError:             # it was the helper, and has ended now
                call = ["running"]
            if call[0] == POLL and int(call[3], 16) in FOREVER:
                return slot
            time.sleep(0.001)
        raise TimeoutError("the kernel does not wait for its command")

    def close(self) -> None:
        self.socket.close()
        assert self.process.wait(PATIENCE) == 0
        os.close(self.errors_r)


class BoxKernel(Kernel):
    """A kernel in a box: forked from the zygote, or executed there."""

    ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/box", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}

    def __init__(self, boxes: Boxes, slot: Optional[int] = None, env: Optional[Dict[str, str]] = None, argv: Sequence[str] = (), now: bool = True) -> None:
        ours, theirs = link()
        Client.__init__(self, ours)
        self.boxes = boxes
        self.slot = boxes.park() if slot is None else slot
        self.out_r, out_w = os.pipe()
        self.err_r, err_w = os.pipe()
        self.pid, self.start_us = boxes.ask(boxes.EXEC if argv else boxes.START, self.slot, argv or ["kernel"], dict(self.ENV, **(env or {})),
                                            [theirs.fileno(), out_w, err_w])
        theirs.close()
        os.close(out_w)
        os.close(err_w)

    def interrupt(self) -> None:
        os.killpg(self.pid, signal.SIGINT)

    def close(self) -> int:
        self.socket.close()
        self.boxes.ask(self.boxes.END, self.slot)
        os.close(self.out_r)
        os.close(self.err_r)
        return 0

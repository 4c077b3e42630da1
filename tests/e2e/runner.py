"""Runs carrel as root or as an ordinary user (support.boxes)."""
import functools
import json
import os
import pathlib
import pwd
import re
import select
import shutil
import subprocess
import tempfile
import time

from support import boxes
from support.boxes import CARREL, become_subreaper
from support.waiting import DEADLINE_S, SETTLE_S

DEADLINE, SETTLE = DEADLINE_S, SETTLE_S


class World:
    """Made once: a copy of carrel that everybody may run, and a place for everybody's files."""

    def __init__(self):
        become_subreaper()
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="carrel-e2e-"))
        self.place.chmod(0o755)
        self.carrel = str(shutil.copy(CARREL, self.place / "carrel"))
        os.chmod(self.carrel, 0o755)

    def close(self):
        shutil.rmtree(self.place, ignore_errors=True)


@functools.cache
def world():
    return World()


class Caller:
    """A caller of carrel: root, an ordinary user with a range of ids, one without, or the user who runs the tests."""

    def __init__(self, name, user=None):
        self.name = name
        self.user = user
        self.uid = user.pw_uid if user else os.getuid()
        self.gid = user.pw_gid if user else os.getgid()
        self.is_root = self.uid == 0
        self.baseline = None
        self.home = world().place / f"home-{name}"
        self.home.mkdir(mode=0o755, exist_ok=True)
        os.chown(self.home, self.uid, self.gid)
        self.environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.home),
                            "XDG_RUNTIME_DIR": str(self.home / "run"), "CALLERS_SECRET": "do-not-tell"}
        (self.home / "run").mkdir(mode=0o700, exist_ok=True)
        os.chown(self.home / "run", self.uid, self.gid)

    @property
    def rundir(self):
        return "/run/carrel" if self.is_root else str(self.home / "run/carrel")

    def folder(self, name):
        """An empty folder of the caller's own."""
        path = self.home / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(mode=0o755)
        os.chown(path, self.uid, self.gid)
        return path

    def file(self, path, content, mode=0o644):
        path = pathlib.Path(path)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        os.chown(path, self.uid, self.gid)
        return path

    def start(self, *words, environment=None, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options):
        """Starts `carrel WORDS`; the test's end ends it."""
        identity = {"user": self.uid, "group": self.gid, "extra_groups": []} if self.user else {}
        return boxes.start([world().carrel, *words], stdin=stdin, stdout=stdout, stderr=stderr, cwd=self.home,
                           env={**self.environment, **(environment or {})}, **identity, **options)

    def call(self, *words, data=None, deadline=None, **options):
        """Runs `carrel WORDS` to its end."""
        begin = time.monotonic()
        process = self.start(*words, stdin=subprocess.PIPE if data is not None else subprocess.DEVNULL, **options)
        return boxes.finish(process, begin, data, deadline or DEADLINE)

    def run(self, *words, **options):
        """Runs `carrel run WORDS`, where the last word, if it is a list, is the command."""
        return self.call("run", *spread(words), **options)

    def report(self, *words, **options):
        """The same with its report."""
        path = self.home / "report.json"
        path.unlink(missing_ok=True)
        result = self.run("--report", path, *words, **options)
        result.report = json.loads(path.read_text())
        return result

    def sh(self, script, *options, **more):
        return self.run(*options, ["sh", "-c", script], **more)

    @functools.cached_property
    def ids(self):
        """How many ids a box of this caller has: 65536, 1024 or 1."""
        return int(re.fullmatch(r"user namespace with (\d+) ids", self.report(["true"]).report["enforced"]["users"])[1])

    @functools.cached_property
    def limits(self):
        """The available limits: the report gives the reason for each limit that this host cannot enforce."""
        missing = self.report(["true"]).report["not_enforced"]
        return {name for name in ("memory", "pids", "cpus") if missing.get(name, "not asked for") == "not asked for"}


def spread(words):
    """(..., ["sh", "-c"]) -> (..., "--", "sh", "-c")"""
    return (*words[:-1], "--", *words[-1]) if words and isinstance(words[-1], list) else words


def make_user(name, *options):
    try:
        return pwd.getpwnam(name)
    except KeyError:
        subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/sh", *options, name], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE, timeout=60)
        return pwd.getpwnam(name)


@functools.cache
def callers():
    """Root is tested together with two ordinary users; an ordinary user alone."""
    if os.getuid() != 0:
        return {"self": Caller("self")}
    found = {"root": Caller("root")}
    try:
        found["user"] = Caller("user", make_user("carreltest"))
        found["one"] = Caller("one", make_user("carrelone", "-K", "SUB_UID_COUNT=0", "-K", "SUB_GID_COUNT=0"))
    except (OSError, subprocess.CalledProcessError):
        pass        # a machine whose users cannot be changed
    return found


def read_until(fd, wanted, seconds=None):
    """Reads a descriptor until the text has come; returns all that came."""
    got = b""
    end = time.monotonic() + (seconds or DEADLINE)
    while wanted not in got:
        ready, _, _ = select.select([fd], [], [], max(0, end - time.monotonic()))
        assert ready, f"{wanted!r} did not come, only {got!r}"
        try:
            piece = os.read(fd, 65536)
        except OSError:
            piece = b""
        assert piece, f"{wanted!r} did not come, only {got!r}, then the end"
        got += piece
    return got


def assert_refused(result, *phrases, status=125):
    """One line says why, nothing ran."""
    lines = result.complaint.splitlines()
    assert result.status == status, result
    assert len(lines) == 1 and lines[0].startswith("carrel: "), result.complaint
    for phrase in phrases:
        assert phrase.lower() in lines[0].lower(), f"{phrase!r} is not in {lines[0]!r}"
    assert result.stdout == b""

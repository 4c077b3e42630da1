"""A server of root's and one of an ordinary user's, each with two identities; and a search for values in everything that a server has."""
import hashlib
import os
import pathlib
import secrets
import shutil

import pytest

from support import BUILD
from support.processes import processes, status_of
from support.server import Server
from support.users import ORDINARY

KERNEL_PYTHON = os.environ.get("KERNEL_PYTHON", str(BUILD / "venv-kernel/bin/python"))
SERVICE = "import os\n@expose\ndef digest(name): import hashlib; return hashlib.sha256(os.environ[name].encode()).hexdigest()\n"


def fresh(words="value"):
    """A value that occurs nowhere else."""
    return f"{words}-{secrets.token_hex(16)}"


def digest(value):
    return hashlib.sha256(value.encode() if isinstance(value, str) else value).hexdigest()


def expect(answer, status=200):
    assert answer.status == status, (answer.status, answer.body)
    return answer.json if answer.body else None


def refused(answer, status, *words):
    message = expect(answer, status)["error"]["message"]
    assert all(word in message for word in words), message
    return message


def shell(client, box, line, **more):
    """What a command prints; it ends well."""
    done = expect(client.post(f"/v1/boxes/{box}/exec", {"shell": line, **more}))
    assert done["exit_code"] == 0, done
    return done["stdout"].strip()


def sha(client, box, variable, **more):
    return shell(client, box, f'printf %s "${variable}" | sha256sum', **more).split()[0]


def sha_file(client, box, name, **more):
    return shell(client, box, f"sha256sum </run/secrets/{name}", **more).split()[0]


@pytest.fixture(scope="session", params=["root", "user"])
def kind(request):
    if os.geteuid() != 0:
        pytest.skip("root is needed to look into every process, and to become another user")
    return request.param


@pytest.fixture(scope="session")
def make_server(kind, programs):
    """Starts servers of this kind, which are stopped at the end."""
    made = []

    def make(*options, **more):
        if kind == "user":
            if not (programs / "guest").exists():
                shutil.copytree(BUILD / "guest", programs / "guest")
            more = {"user": ORDINARY, "place": programs, **more}
        made.append(Server("--set", f"templates.python.python={KERNEL_PYTHON}", *options, **more))
        return made[-1]

    yield make
    for server in made:
        server.stop()


@pytest.fixture(scope="session")
def server(make_server):
    return make_server("--set", "templates.python.pool=1", "--set", "templates.given.python=" + KERNEL_PYTHON, "--set",
                       "templates.given.secrets=given=GIVEN given=/run/secrets/given", "--set", "templates.given.pool=off")


@pytest.fixture(scope="session")
def alice(server):
    return server.token("alice")


@pytest.fixture(scope="session")
def bob(server):
    return server.token("bob")


@pytest.fixture
def keep(server, alice):
    """Stores secrets of alice's, by name and value; removes them after the test."""
    kept = []

    def keep(client=alice, **values):
        for name, value in values.items():
            expect(client.put(f"/v1/secrets/{name}?replace=true", body=value.encode() if isinstance(value, str) else value))
            kept.append((client, name))

    yield keep
    for client, name in kept:
        client.delete(f"/v1/secrets/{name}")


@pytest.fixture
def make_box(server, alice):
    made = []

    def make(*secrets, client=alice, **body):
        box = expect(client.post("/v1/boxes", {"secrets": list(secrets), **body}), 201)["id"]
        made.append((client, box))
        return box

    yield make
    for client, box in made:
        client.delete(f"/v1/boxes/{box}")


def family(server):
    """The server's processes: its supervisor and all that descend from it."""
    parents, found = {pid: parent for pid, (parent, _) in processes().items()}, set()
    for pid in parents:
        line, at = [], pid
        while at in parents and at not in line:
            line.append(at)
            if at == server.process.pid:
                found.update(line)
            at = parents[at]
    return found


def in_memory(pid, values):
    """Those of the values that are in this process: its command line, its environment, its memory."""
    found = set()
    try:
        for name in ("cmdline", "environ", "comm"):
            text = pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
            found |= {v for v in values if v in text}
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in maps:
                words = line.split()
                if "r" not in words[1] or words[-1] in ("[vvar]", "[vsyscall]", "[vvar_vclock]"):
                    continue
                begin, end = (int(x, 16) for x in words[0].split("-"))
                try:
                    memory.seek(begin)
                    data = memory.read(end - begin)
                except (OSError, ValueError, OverflowError):
                    continue
                found |= {v for v in values if v in data}
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        pass
    return found


def in_files(top, values, but=()):
    """Files below a directory with one of the values; those below `but` are left out."""
    found = []
    for path in pathlib.Path(top).rglob("*"):
        if path.is_file() and not path.is_symlink() and not any(place in path.parents for place in but):
            data = path.read_bytes()
            found += [(str(path), v) for v in values if v in data]
    return found


def is_init(pid):
    return status_of(pid)["NSpid"].split()[-1] == "1"

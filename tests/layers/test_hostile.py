"""Packages that attack, while they are built and when they are used: each meets the walls of the box that it is in, and nothing of it is left outside."""
import json
import os
import pathlib
import shutil
import socket
import tempfile
import threading

import pytest

from support.index import IN_MEMORY, sdist, wheel
from support.processes import processes
from support.server import Server
from support.waiting import wait_for

# What each of them tries. MARK is a file name that must never exist on the host, PORT a server on the host's loopback.
TRIES = """
import os, socket
said = {}
def tried(what, action):
    try:
        said[what] = "done: " + repr(action())[:80]
    except BaseException as e:
        said[what] = type(e).__name__
tried("shadow", lambda: open("/etc/shadow").read())
tried("usr", lambda: open("/usr/MARK", "w"))
tried("tmp", lambda: open("/tmp/MARK", "w"))
tried("layers", lambda: os.listdir("LAYERS"))
tried("loopback", lambda: socket.create_connection(("127.0.0.1", PORT), 3))
tried("metadata", lambda: socket.create_connection(("169.254.169.254", 80), 3))
tried("internal", lambda: socket.create_connection(("host.carrel.internal", PORT), 3))
tried("elsewhere", lambda: socket.getaddrinfo("elsewhere.localhost", 80))
tried("root", lambda: os.setuid(0))
tried("mount", lambda: __import__("ctypes").CDLL(None).mount(b"none", b"/mnt", b"tmpfs", 0, None))
"""
NEVER = ("shadow", "usr", "layers", "loopback", "metadata", "internal", "elsewhere", "root")


class Outside:
    """What an attack could reach on the host: a server on loopback, and files of this name."""

    def __init__(self, layers):
        self.mark = "carrel-evil-%d" % os.getpid()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.code = TRIES.replace("MARK", self.mark).replace("LAYERS", str(layers)).replace("PORT", str(self.server.getsockname()[1]))

    def check(self, said):
        assert all(not said[what].startswith("done") for what in NEVER), said
        assert said["mount"] in ("done: -1", "OSError"), said
        assert not [path for path in ("/usr/" + self.mark, "/tmp/" + self.mark, "/mnt/" + self.mark) if os.path.exists(path)]
        self.server.setblocking(False)
        with pytest.raises(BlockingIOError):
            self.server.accept()


@pytest.fixture
def outside(user):
    it = Outside(user.layers)
    yield it
    it.server.close()


def script(name, code):
    return f"{code}\nimport pathlib\npathlib.Path('{name}.py').write_text('said = %r' % said)\n" \
           f"from setuptools import setup\nsetup(name='{name}', version='1.0', py_modules=['{name}'])\n"


def said_in_box(user, packages, code):
    done = user.run("run", "--packages", packages, "--", "python", "-c", code)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_build_that_attacks_meets_the_walls_hostile(user, outside):
    user.index.add(sdist("builds", "1.0", script("builds", outside.code)))
    outside.check(said_in_box(user, "builds", "import builds, json; print(json.dumps(builds.said))"))


def test_a_pth_file_runs_in_the_box_alone_hostile(user, outside):
    """It runs at each start of the layer's Python: while bytecode is made, and in boxes."""
    user.index.add(wheel("pth", "1.0", {"pth_tries.py": outside.code, "pth.pth": "import pth_tries\n"}))
    outside.check(said_in_box(user, "pth", "import sys, json; print(json.dumps(sys.modules['pth_tries'].said))"))
    code = "import os; [os.unlink(os.path.join(f, n)) for f, _, names in os.walk('/opt/venv') for n in names]"
    done = user.run("run", "--packages", "pth", "--", "python", "-c", code)
    assert done.returncode != 0 and "Read-only file system" in done.stderr


def test_a_program_of_a_package_runs_in_the_box_alone_hostile(user, outside):
    """A console entry point, and scripts with the names of those that everybody calls."""
    main = outside.code + "\ndef main():\n    import json; print(json.dumps(said))\n"
    info = {"tool-1.0.dist-info/entry_points.txt": "[console_scripts]\ntool = tool_main:main\n",
            "tool-1.0.data/scripts/git": "#!/bin/sh\nexec tool\n", "tool-1.0.data/scripts/python3.evil": "#!python\nimport tool_main; tool_main.main()\n"}
    user.index.add(wheel("tool", "1.0", {"tool_main.py": main, **info}))
    for program in ("tool", "git", "python3.evil"):
        done = user.run("run", "--packages", "tool", "--", program)
        assert done.returncode == 0, done.stderr
        outside.check(json.loads(done.stdout))


def test_processes_that_a_build_left_end_with_its_box_hostile(user):
    leaves = "import subprocess, sys, os\n" \
             "for i in range(50): subprocess.Popen(['/bin/sh', '-c', ': left-by-a-build; exec sleep 98765'], start_new_session=True, stdin=subprocess.DEVNULL)\n" \
             "if os.fork() == 0:\n    os.setsid()\n    os.execvp('sleep', ['sleep', '98765'])\n" \
             "from setuptools import setup\nsetup(name='leaves', version='1.0', py_modules=[])\n"
    user.index.add(sdist("leaves", "1.0", leaves))
    user.do("layer", "build", "leaves")
    wait_for(lambda: not sleepers(), lambda: str(sleepers()), deadline_s=30)
    assert user.parts() == []


def sleepers():
    found = []
    for pid in processes():
        try:
            found += [pid] if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x0098765\0" else []
        except OSError:
            pass
    return found


def test_a_fork_bomb_in_a_build_stops_at_its_boxs_limit_hostile(user):
    if user.name:
        pytest.skip("without root and a delegated cgroup there is no limit of processes")
    bomb = "import os, time\nn = 0\ntry:\n    while n < 4000:\n        if os.fork() == 0: os.execvp('sleep', ['sleep', '98765'])\n        n += 1\n" \
           "except OSError: pass\nraise SystemExit('bomb %d' % n)\n"
    user.index.add(sdist("bomb", "1.0", bomb))
    done = user.run("layer", "build", "bomb")
    assert done.returncode == 125, done.stderr
    wait_for(lambda: not sleepers(), lambda: f"{len(sleepers())} are left", deadline_s=60)
    assert user.parts() == []
    assert user.do("layer", "build", "alpha==1.0")


@pytest.fixture(scope="module")
def root(index):
    if os.geteuid() != 0:
        pytest.skip("a server of root, and two identities")
    place = tempfile.mkdtemp(prefix="carrel-layers-", dir=IN_MEMORY)
    server = Server("--set", "templates.python.pool=1", variables={"CARREL_LAYERS": place, "UV_DEFAULT_INDEX": index.url})
    server.layers = pathlib.Path(place)
    yield server
    server.stop()
    shutil.rmtree(place, ignore_errors=True)


def cell(client, code):
    """In a fresh box of the same list: how its kernel came to be, and the answer."""
    made = client.post("/v1/boxes", {"packages": ["shifty"]})
    assert made.status == 201, made.body
    answer = client.post(f"/v1/boxes/{made.json['id']}/run", {"code": code})
    assert answer.status == 200, answer.body
    assert client.delete(f"/v1/boxes/{made.json['id']}").status in (200, 204)
    return answer.json["kernel"]["way"], str(answer.json), made.json["layer"]


def test_a_poisoned_layer_reaches_nobody_but_its_owner_hostile_root(root, index):
    """Also not through interpreters that kernels are forked from: one identity's files are bad, the other has the same list a moment later."""
    alice, bob = root.token("alice"), root.token("bob")
    index.add(wheel("shifty", "1.0", {"shifty.py": "state = 'poi' + 'soned'\n", "shifty.pth": "import builtins; builtins.bad = 'through the family'\n"}))
    forked = {"parked", "forked"}

    def until_forked(client, expected):
        seen = []

        def look():
            way, text, layer = cell(client, "import builtins, shifty; (shifty.state, getattr(builtins, 'bad', 'none'))")
            seen[:] = [text, layer]
            assert expected in text, text
            return way in forked
        wait_for(look, lambda: str(seen), deadline_s=120)
        return seen[1]
    hers = until_forked(alice, "('poisoned', 'through the family')")
    index.add(wheel("shifty", "1.0", {"shifty.py": "state = 'clean'\n"}))
    his = until_forked(bob, "('clean', 'none')")
    assert hers != his and hers.split("/")[0] != his.split("/")[0]
    until_forked(alice, "('poisoned', 'through the family')")
    assert hers.split("/")[1] not in str(bob.get("/v1/layers").json)
    root.clear()


def test_numpy_1_and_2_at_the_same_time_from_the_real_index_root():
    """By two identities, of whom neither waits for the other."""
    if os.geteuid() != 0:
        pytest.skip("a server of root, and two identities")
    place = tempfile.mkdtemp(prefix="carrel-layers-", dir=IN_MEMORY)
    server = Server(variables={"CARREL_LAYERS": place})
    try:
        answers = {}

        def use(who, wanted):
            client = server.token(who)
            made = client.post("/v1/boxes", {"packages": [wanted]})
            answers[who] = made.body if made.status != 201 else \
                str(client.post(f"/v1/boxes/{made.json['id']}/run", {"code": "import numpy; (numpy.__version__, int(numpy.arange(5).sum()))"}).json)
        threads = [threading.Thread(target=use, args=pair) for pair in (("alice", "numpy<2"), ("bob", "numpy>=2"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        assert "('1.26." in str(answers["alice"]) and ", 10)" in str(answers["alice"]), answers
        assert "('2." in str(answers["bob"]) and ", 10)" in str(answers["bob"]), answers
    finally:
        server.stop()
        shutil.rmtree(place, ignore_errors=True)

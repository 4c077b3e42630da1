"""Interpreters of a server, and templates with packages, as root and as an ordinary user."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from support.server import Server
from support.waiting import wait_for

VERSIONS = "import sys, alpha; (alpha.version, sys.version_info[:2], sys.prefix)"


def interpreters():
    """pyenv's, below a home that no other user may enter: {"3.12": the prefix}."""
    root = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    found = {".".join(p.name.split(".")[:2]): p for p in root.glob("3.*") if p.name.replace(".", "").isdigit()} if root.is_dir() else {}
    return {version: path for version, path in found.items() if 9 <= int(version[2:]) <= 13 and version != system()}


def system():
    return subprocess.run(["/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def pythons(user):
    """Two other interpreters that the user can read: an ordinary user cannot read root's."""
    found = dict(sorted(interpreters().items(), key=lambda one: int(one[0][2:]))[-2:])
    if len(found) < 2:
        pytest.skip("needs two interpreters of pyenv")
    for version in found:
        user.index.add_wheels(version)
    if not user.name:
        return found
    place = user.home / "pythons"
    for version, path in found.items():
        program = place / "versions" / path.name / f"bin/python{version}"
        shutil.copytree(path, place / "versions" / path.name, symlinks=True, ignore=shutil.ignore_patterns("test", "config-*", "site-packages", "idlelib", "*.a"))
        (place / "versions" / path.name / f"lib/python{version}/site-packages").mkdir()
        # Its library is at a path below root's home.
        old, new = f"{path}/lib".encode(), b"$ORIGIN/../lib"
        program.write_bytes(program.read_bytes().replace(old + b"\0", new + bytes(len(old) - len(new) + 1)))
    place.chmod(0o755)
    return {version: place / "versions" / path.name for version, path in found.items()}


class Servers:
    def __init__(self, user, pythons):
        self.user, self.pythons, self.others = user, pythons, []

    def start(self, *options, **variables):
        server = Server(*options, user=self.user.name,
                        variables={"CARREL_LAYERS": str(self.user.layers), "UV_DEFAULT_INDEX": self.user.index.url, "PYENV_ROOT": "/nonexistent",
                                   "PATH": "/usr/bin:/bin", **variables})
        self.others.append(server)
        return server


@pytest.fixture(scope="module")
def servers(user, pythons):
    all = Servers(user, pythons)
    yield all
    for server in all.others:
        server.stop()


@pytest.fixture(scope="module")
def server(servers):
    first, last = servers.pythons
    return servers.start("--set", f"pythons.{first}={servers.pythons[first]}/bin/python3", "--set", f"pythons.own={servers.pythons[last]}",
                         "--set", "templates.small.packages=alpha==1.0", "--set", f"templates.small.python={first}",
                         "--set", "templates.ready.packages=alpha==2.0", "--set", "templates.ready.pool=1")


def run(client, box, code):
    answer = client.post(f"/v1/boxes/{box}/run", {"code": code})
    assert answer.status == 200, answer.body
    return answer.json


def create(client, **body):
    made = client.post("/v1/boxes", body)
    assert made.status == 201, made.body
    return made.json


def test_a_box_has_its_packages_for_the_python_that_it_names(server, servers):
    first, last = servers.pythons
    for name, version in ((first, first), ("own", last), (None, system())):
        box = create(server.admin, packages=["alpha==1.0"], **({"python": name} if name else {}))
        assert box["python"] == name
        shown = str(run(server.admin, box["id"], VERSIONS))
        assert f"('1.0', (3, {version[2:]}), '/opt/venv')" in shown, shown
        done = server.admin.post(f"/v1/boxes/{box['id']}/exec", {"argv": ["python", "-c", "import sys; print(sys.version_info[:2])"]})
        assert f"(3, {version[2:]})" in str(done.json), done.body
        server.admin.delete(f"/v1/boxes/{box['id']}")


def test_a_python_without_packages_is_an_environment_with_none(server, servers):
    first, _ = servers.pythons
    answer = server.admin.post("/v1/run", {"python": first, "code": "import sys, ipykernel; sys.version_info[:2], sys.prefix"})
    assert answer.status == 200 and f"((3, {first[2:]}), '/opt/venv')" in str(answer.json), answer.body


def test_a_python_that_is_not_listed_is_refused_with_those_that_are(server, servers):
    first, _ = servers.pythons
    for bad in ("3.7", "/usr/bin/python3", "../own", "x" * 63):
        refused = server.admin.post("/v1/boxes", {"packages": ["alpha"], "python": bad})
        assert refused.status == 400 and f"there is: {first}, own, {system()}" in refused.json["error"]["message"], refused.body
    for bad in (3.12, [], "", "x" * 300):
        assert server.admin.post("/v1/boxes", {"packages": ["alpha"], "python": bad}).status == 400
    assert server.admin.get("/v1/info").json["pythons"] == [first, "own", system()]


def test_boxes_kernels_and_services_of_a_template_have_its_packages(server, servers):
    first, _ = servers.pythons
    box = create(server.admin, template="small")
    assert box["packages"] == ["alpha==1.0"]
    assert f"('1.0', (3, {first[2:]}), '/opt/venv')" in str(run(server.admin, box["id"], VERSIONS))
    own = create(server.admin, template="small", packages=["alpha==2.0"])
    assert f"('2.0', (3, {first[2:]}), '/opt/venv')" in str(run(server.admin, own["id"], VERSIONS))
    assert create(server.admin, template="small", packages=[])["packages"] == []
    code = "import alpha\n\n@expose\ndef which() -> str:\n    return alpha.version\n"
    made = server.admin.post("/v1/services", {"name": "calc", "settings": {"template": "small"}, "code": code})
    assert made.status == 201, made.body
    called = server.admin.post("/v1/services/calc/call", {"function": "which", "args": [], "kwargs": {}})
    assert called.status == 200 and called.json["result"] == "1.0", called.body
    server.clear()


def test_kernels_of_a_template_with_packages_wait_ready(server):
    """The layer is made when the server starts, and no box has asked for it."""
    ways = []

    def is_parked():
        box = create(server.admin, template="ready")
        answer = run(server.admin, box["id"], VERSIONS)
        assert "('2.0', " in str(answer)
        server.admin.delete(f"/v1/boxes/{box['id']}")
        ways.append(answer["kernel"]["way"])
        return ways[-1] == "parked"
    wait_for(is_parked, lambda: f"{ways}\n{server.log_text()}", deadline_s=120)


def test_a_kernel_of_the_jupyter_gateway_has_the_templates_packages(server):
    specs = server.admin.get("/api/kernelspecs").json["kernelspecs"]
    assert {"small", "ready"} <= set(specs)
    started = server.admin.post("/api/kernels", {"name": "small"})
    assert started.status == 201, started.body
    boxes = [b for b in server.admin.get("/v1/boxes").json["boxes"] if b["template"] == "small"]
    assert [b["packages"] for b in boxes] == [["alpha==1.0"]]
    server.clear()


def test_all_identities_share_the_layer_of_a_template(server, servers):
    if servers.user.name:
        pytest.skip("an ordinary user's server has one identity")
    alice, bob = server.token("alice"), server.token("bob")
    boxes = [create(who, template="ready") for who in (alice, bob)]
    assert boxes[0]["layer"] == boxes[1]["layer"] and boxes[0]["layer"].startswith("uid-0/")
    # The same list for another interpreter, or one more package, is the caller's own.
    mine = create(alice, template="ready", packages=["alpha==2.0", "wants_one==1.0"][:1], python=system())
    assert not mine["layer"].startswith("uid-0/")
    for who, box in ((alice, boxes[0]), (bob, boxes[1])):
        assert "('2.0'" in str(run(who, box["id"], VERSIONS))
    server.clear()


def test_a_layer_that_was_removed_is_made_again_by_the_next_box(server, servers):
    def make():
        made = server.carrel("create", "--packages", "wants_one", "--json", user=servers.user.name, timeout=240)
        assert made.returncode == 0, made.stderr
        return json.loads(made.stdout)
    box = make()
    name = box["layer"].split("/")[1]
    server.admin.delete(f"/v1/boxes/{box['id']}")

    def is_removed():
        return servers.user.run("layer", "rm", name[:16]).returncode == 0
    wait_for(is_removed, lambda: servers.user.run("layer", "rm", name[:16]).stderr, deadline_s=60)
    again = make()
    assert again["layer"] == box["layer"] and "'1.0'" in str(run(server.admin, again["id"], "import alpha; alpha.version"))
    server.clear()


def test_a_private_server_finds_the_pythons_of_its_user(servers):
    first, last = servers.pythons
    root = servers.pythons[first].parent
    words = ["py", "--packages", "alpha==1.0", "-c", "import alpha, sys; (alpha.version, sys.version_info[:2])"]
    for version in servers.pythons:
        done = servers.user.run(words[0], "--python", version, *words[1:], PYENV_ROOT=str(root.parent))
        assert done.stdout == f"('1.0', (3, {version[2:]}))\n", done.stderr
    refused = servers.user.run(words[0], "--python", "3.99", *words[1:], PYENV_ROOT=str(root.parent))
    assert refused.returncode == 125 and first in refused.stderr and "3.99" in refused.stderr, refused.stderr


def test_a_listed_interpreter_that_is_missing_is_told_at_the_start(servers):
    done = servers.user.run("serve", "--no-config", "--private", servers.user.home / "private", "--set", "pythons.odd=/nonexistent/python")
    assert done.returncode == 125 and "pythons.odd: /nonexistent/python" in done.stderr, done.stderr
    unlisted = servers.user.run("serve", "--no-config", "--private", servers.user.home / "private", "--set", "templates.python.python=3.99")
    assert unlisted.returncode == 125 and "templates.python.python: there is no Python '3.99'" in unlisted.stderr, unlisted.stderr


def test_an_installation_is_shown_once(server, servers):
    """The same words as of carrel run; nothing if the layer is there."""
    list_of_its_own = ["--packages", "wants_one,alpha==1.0"]
    for words in (["py", *list_of_its_own, "--python", system(), "-c", "1"], ["create", *list_of_its_own, "--python", "own"]):
        first = server.carrel(*words, user=servers.user.name, timeout=240)
        assert first.returncode == 0 and "carrel: installing packages, once" in first.stderr and "carrel: installed in" in first.stderr, first
        again = server.carrel(*words, user=servers.user.name, timeout=240)
        assert (again.returncode, again.stderr) == (0, ""), again
    for words in (["py", "--packages", "nosuchpackage", "-c", "1"], ["create", "--packages", "nosuchpackage"]):
        failed = server.carrel(*words, user=servers.user.name, timeout=240)
        assert failed.returncode == 125 and "there is no such package" in failed.stderr and "installed in" not in failed.stderr, failed
    refused = server.carrel("create", "--packages", "alpha", "--python", "3.7", user=servers.user.name)
    assert refused.returncode == 125 and "python: there is no Python '3.7' on this server; there is: " in refused.stderr, refused
    assert [b["phase"] for b in server.admin.get("/v1/boxes").json["boxes"] if b["phase"] == "failed"] == []
    server.clear()

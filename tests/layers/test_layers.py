"""Packages of boxes, through the command line, as root and as an ordinary user, from an index on loopback."""
import json
import os
import signal
import subprocess
import time

import pytest

from support.index import sdist, wheel
from support.waiting import wait_for

VERSION = "import alpha; print(alpha.version)"


def test_a_list_is_installed_once_and_then_found(user):
    user.index.add(wheel("once", "1.0"))
    command = ["run", "--packages", "once", "--", "python", "-c", "import once; print(once.version)"]
    first = user.run(*command)
    assert (first.stdout, first.returncode) == ("1.0\n", 0), first.stderr
    assert "installing once" in first.stderr
    user.index.asked.clear()
    again = user.run(*command)
    assert (again.stdout, again.stderr) == ("1.0\n", "") and user.index.asked == []


def test_two_versions_live_side_by_side(user):
    assert user.do("run", "--packages", "alpha==2.0", "--", "python", "-c", VERSION) == "2.0\n"
    assert user.do("run", "--packages", "alpha==1.0", "--", "python", "-c", VERSION) == "1.0\n"


def test_lists_that_come_to_the_same_versions_share_a_layer(user):
    one = user.do("layer", "build", "alpha==1.0").strip()
    other = user.do("layer", "build", "alpha<2").strip()
    assert one == other and len(one) == 64


def test_a_requirements_file_is_taken(user):
    place = user.home / "requirements.txt"
    place.write_text("# ours\nalpha==1.0  # pinned\n\nipykernel>=6.17\n")
    place.chmod(0o644)
    assert user.do("run", "--requirements", place, "--", "python", "-c", VERSION) == "1.0\n"


def test_cells_have_the_packages_too(user):
    done = user.run("py", "--packages", "alpha==2.0", "-c", "import alpha, sys; (alpha.version, sys.prefix)")
    assert done.stdout == "('2.0', '/opt/venv')\n", done.stderr
    assert "alpha" in user.do("py", "--packages", "alpha==2.0", "-c", "!pip list --disable-pip-version-check")


def test_a_layer_cannot_be_changed_from_a_box(user):
    done = user.run("run", "--packages", "alpha==1.0", "--", "python", "-c", "import alpha; open(alpha.__file__, 'a').write('evil')")
    assert done.returncode == 1 and "Read-only file system" in done.stderr
    assert user.do("run", "--packages", "alpha==1.0", "--", "python", "-c", VERSION) == "1.0\n"


@pytest.mark.parametrize("packages, words", [
    (["nosuchpackage"], "there is no such package, or no such version"),
    (["alpha==9"], "there is no such package, or no such version"),
    (["alpha==2.0", "wants_one"], "the packages do not go together"),
    (["--index-url=http://example.org"], "options are not taken"),
    (["alpha @ http://example.org/alpha.whl"], "no addresses"),
    (["../alpha"], "only names and versions are taken"),
    (["a" * 5000], "longer than"),
    ([""], "needs a value"),
])
def test_what_cannot_be_installed_is_refused_in_words_and_leaves_nothing(user, packages, words):
    done = user.run("run", *(word for p in packages for word in ("--packages", p)), "--", "true")
    assert done.returncode == 125 and words in done.stderr, done.stderr
    assert user.parts() == []


@pytest.mark.parametrize("made, words", [
    (wheel("oldabi", "1.0", tag="cp36-cp36m-manylinux1_x86_64"), "only for Python 3.6"),
    (wheel("newest", "1.0", {"newest-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: newest\nVersion: 1.0\nRequires-Python: >=3.99\n"}), "Python>=3.99"),
])
def test_a_package_for_other_versions_of_python_is_refused_with_those_that_are_there(user, made, words):
    user.index.add(made)
    name = made[0].split("-")[0]
    done = user.run("run", "--packages", name, "--", "true")
    assert done.returncode == 125 and f"{name} has no version for Python 3." in done.stderr and words in done.stderr, done.stderr
    assert "--python here: 3." in done.stderr and "source" not in done.stderr.splitlines()[-1], done.stderr


def test_a_file_that_cannot_be_read_is_refused_with_the_reason(user):
    for path, reason in (("/nonexist", "No such file or directory"), ("/tmp", "Is a directory")):
        for words in (["run", "--requirements", path, "--", "true"], ["layer", "build", "--requirements", path]):
            done = user.run(*words)
            assert done.returncode == 125 and done.stderr == f"carrel: --requirements {path}: {reason}\n", done.stderr


def test_what_killed_builders_left_is_swept(user):
    name = user.do("layer", "build", "alpha==2.0").strip()
    own = next(user.layers.glob(f"*/{name}")).parent
    old, orphan = time.time() - 3600, "a" * 64
    left = [own / part for part in (f"part-{orphan}.info", f"{orphan}.info", f"{orphan}.dirty", f"{orphan}.key")]
    young = own / f"part-{name}.info"
    for path in left[:3]:
        path.write_text("")
        os.utime(path, (old, old))
    left[3].symlink_to(orphan)
    young.write_text("another builder is writing it")
    user.run("gc")
    assert [path.name for path in left if os.path.lexists(path)] == [] and young.exists()
    assert (own / f"{name}.info").exists() and len(list(own.glob("*.key"))) > 0
    young.unlink()
    user.do("layer", "rm", name)
    assert [path.name for path in own.glob("*.key") if os.readlink(path) == name] == []


def test_an_index_that_does_not_answer_is_told(user):
    done = user.run("run", "--packages", "alpha==1.0,nosuch", "--", "true", UV_DEFAULT_INDEX="http://index.localhost:9/simple")
    assert done.returncode == 125 and "the index of packages does not answer" in done.stderr, done.stderr
    secret = user.run("run", "--packages", "alpha==1.0,nosuch", "--", "true", UV_DEFAULT_INDEX="http://me:secret@index.localhost/simple")
    assert secret.returncode == 125 and "password" in secret.stderr and "secret" not in secret.stderr.replace("--secret", "")


SETUP = """
import os, pathlib, socket, sys
from setuptools import setup
said = []
def tried(what, action):
    try:
        said.append((what, repr(action())[:60]))
    except Exception as e:
        said.append((what, type(e).__name__))
tried("uid", os.getuid)
tried("shadow", lambda: open("/etc/shadow").read())
tried("usr", lambda: open("/usr/evil", "w"))
tried("net", lambda: socket.create_connection(("192.0.2.1", 80), 3))
tried("name", lambda: socket.getaddrinfo("elsewhere.localhost", 80))
tried("layers", lambda: os.listdir("@LAYERS@"))
pathlib.Path("evidence.py").write_text("said = %r" % (dict(said),))
setup(name="evidence", version="1.0", py_modules=["evidence"])
"""


def test_a_setup_script_that_attacks_meets_a_boxs_walls(user):
    user.index.add(sdist("evidence", "1.0", SETUP.replace("@LAYERS@", str(user.layers))))
    said = json.loads(user.do("run", "--packages", "evidence", "--", "python", "-c", "import evidence, json; print(json.dumps(evidence.said))"))
    assert said["uid"] == "1000" and said["shadow"] in ("FileNotFoundError", "PermissionError") and said["usr"] == "OSError", said
    assert said["net"] in ("OSError", "PermissionError") and said["name"] == "gaierror" and said["layers"] == "FileNotFoundError", said


def test_package_code_cannot_give_its_layer_anothers_name(user):
    """Output of a box in which package code ran is not trusted: the layer's name is made from the list, too."""
    liar = "import sys\nprint('lock alpha==1.0'); print('locked'); print('done')\nfrom setuptools import setup\nsetup(name='liar', version='1.0')\n"
    user.index.add(sdist("liar", "1.0", liar))
    honest = user.do("layer", "build", "alpha==1.0").strip()
    built = user.run("layer", "build", "liar")
    assert built.stdout.strip() != honest
    assert user.do("run", "--packages", "alpha==1.0", "--", "python", "-c", VERSION) == "1.0\n"


def test_packages_that_fill_the_disk_are_ended(user):
    fills = "from setuptools import setup\nf = open('/opt/venv/fill', 'wb')\nwhile True: f.write(b'x' * (1 << 20))\n"
    user.index.add(sdist("fills", "1.0", fills))
    done = user.run("layer", "build", "--disk", "64M", "fills")
    assert done.returncode == 125 and "there is no room for the packages: they take more than 64M" in done.stderr, done.stderr
    assert user.parts() == []


def test_a_killed_installation_leaves_nothing_and_can_be_repeated(user):
    waits = "import time\nfrom setuptools import setup\nopen('/opt/venv/began', 'w')\ntime.sleep(600)\nsetup(name='waits', version='1.0')\n"
    user.index.add(sdist("waits", "1.0", waits))
    process = subprocess.Popen(user.command("layer", "build", "waits"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_for(lambda: list(user.layers.glob("*/new-*/began")), "the installation to begin", deadline_s=120)
        began = list(user.layers.glob("*/new-*"))
        inner = [int(p) for p in subprocess.run(["pgrep", "-f", "layer build waits"], capture_output=True, text=True).stdout.split()]
        assert process.pid in inner or inner
        for pid in inner:
            os.kill(pid, signal.SIGKILL)
        process.wait(30)
        wait_for(lambda: not subprocess.run(["pgrep", "-f", str(began[0])], capture_output=True).stdout, "its box to end")
    finally:
        process.kill()
    assert user.do("layer", "build", "alpha==1.0")      # nothing is in the way
    user.index.files.pop("waits-1.0.tar.gz")
    user.run("layer", "build", "nosuch-at-all")         # the next installation sweeps
    assert user.parts() == []


def test_a_layer_in_use_is_not_removed(user):
    name = user.do("layer", "build", "alpha==2.0").strip()
    process = subprocess.Popen(user.command("run", "--packages", "alpha==2.0", "--", "sh", "-c", "echo here; sleep 600"), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "here\n"
        refused = user.run("layer", "rm", name[:12])
        assert refused.returncode == 125 and "a box uses the layer" in refused.stderr
    finally:
        process.terminate()
        process.wait(30)
    assert name in [one["layer"] for one in json.loads(user.do("layer", "list", "--json"))]
    user.do("layer", "rm", name[:12])
    assert name not in [one["layer"] for one in json.loads(user.do("layer", "list", "--json"))]
    assert user.do("run", "--packages", "alpha==2.0", "--", "python", "-c", VERSION) == "2.0\n"


def test_a_layer_that_a_crash_of_the_host_may_have_damaged_is_made_again(user):
    name = user.do("layer", "build", "alpha==1.0").strip()
    own = next(user.layers.glob(f"*/{name}")).parent
    wait_for(lambda: not (own / f"{name}.dirty").exists(), "the layer to be on the disk", deadline_s=120)
    (own / f"{name}.dirty").write_text("an earlier boot")
    next((own / name).glob("lib/python3*/site-packages/alpha.py")).write_text("")
    assert user.do("run", "--packages", "alpha==1.0", "--", "python", "-c", VERSION) == "1.0\n"


def test_layers_tell_what_is_in_them_and_are_pruned(user):
    name = user.do("layer", "build", "alpha==1.0").strip()
    listed = {one["layer"]: one for one in json.loads(user.do("layer", "list", "--json"))}
    assert listed[name]["packages"] == ["alpha==1.0"] or listed[name]["packages"] == ["alpha<2"]
    assert "alpha==1.0" in listed[name]["versions"] and listed[name]["bytes"] > 1 << 20
    user.do("layer", "prune")
    assert json.loads(user.do("layer", "list", "--json"))
    time.sleep(1.1)     # ages are whole seconds
    user.do("layer", "prune", "--unused", "1s")
    assert json.loads(user.do("layer", "list", "--json")) == []

"""The recipe of docs/workspaces.md with small packages, from an index on loopback: two persons of one server, and an ordinary user with a server of his own."""
import os
import pathlib
import shutil
import tempfile
import urllib.request

import pytest

from support.index import Index
from support.server import Server
from support.users import ORDINARY
from support.waiting import wait_for
from workspaces import Person

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the server of these tests runs as root")
SIX = "import six, sys; six.__version__, sys.prefix"


@pytest.fixture(scope="module")
def index():
    index = Index(pathlib.Path(os.environ["CARREL_WORKSPACE_WHEELS"]))
    yield index
    index.server.shutdown()


@pytest.fixture(scope="module")
def layers():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-workspaces-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def server(index, layers, people):
    return people(Server("--set", "pool.size=0", variables={"CARREL_LAYERS": str(layers / "root"), "UV_DEFAULT_INDEX": index.url}))


@pytest.fixture(scope="module")
def alice(people, server):
    person = people(Person(server, "alice", server.token("alice")))
    person.up("--packages", "jupyterlab,six==1.16.0", "--request-cpus", "0.75", "--cpus", "2", "--memory", "1G", "--request-memory", "256M")
    person.open()
    return person


@pytest.fixture(scope="module")
def bob(people, server):
    person = people(Person(server, "bob", server.token("bob")))
    person.up("--packages", "jupyterlab,six==1.17.0", "--request-cpus", "0.25", "--cpus", "2", "--memory", "1G", "--request-memory", "256M")
    person.open()
    return person


def test_two_persons_have_their_own_versions_at_once(alice, bob):
    kernels = [person.kernel() for person in (alice, bob)]
    assert [person.execute(SIX, kernel).text for person, kernel in zip((alice, bob), kernels)] == ["('1.16.0', '/opt/venv')", "('1.17.0', '/opt/venv')"]


def test_a_token_opens_one_workspace_and_no_other(alice, bob):
    assert alice.ask("GET", "/api/contents")[0] == 200
    assert alice.ask("GET", "/api/contents", token=bob.token)[0] == 403
    # Under the name that `open` prints, and under no other name, which stops DNS rebinding.
    for host, status in ((f"alice.localhost:{alice.port}", 200), (f"bob.localhost:{alice.port}", 403), ("example.org", 403)):
        request = urllib.request.Request(f"http://127.0.0.1:{alice.port}/lab?token={alice.token}", headers={"Host": host})
        try:
            assert urllib.request.urlopen(request, timeout=60).status == status
        except urllib.error.HTTPError as error:
            assert error.code == status
    # Carrel itself shows neither the box nor the volume to another identity.
    for words in (("exec", "alice", "--", "true"), ("forward", "alice", "0:8888"), ("volume", "inspect", "alice")):
        refused = bob.run(bob.settings["CARREL"], *words)
        assert refused.returncode == 125 and "alice" in refused.stderr, refused


def test_the_limit_of_memory_is_what_programs_see(alice):
    assert alice.execute("next(int(l.split()[1]) for l in open('/proc/meminfo') if l.startswith('MemTotal')) >> 10").text == "1024"


def test_up_again_changes_nothing_and_says_so(alice):
    box = alice.carrel("ps", "--json")
    done = alice.run(*alice.script("up", "alice"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = alice.run(*alice.script("up", "alice", "--memory", "2G"))
    assert done.returncode == 0 and "'alice' is running; for other options: workspace down alice" in done.stderr, done
    assert [line for line in alice.carrel("ps", "--json").splitlines() if '"id"' in line] == [line for line in box.splitlines() if '"id"' in line]


def test_notebooks_and_settings_stay(alice, server):
    """After down and up, and after the death of the server's keeper, which ends all boxes."""
    notebook = {"type": "notebook", "content": {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}}
    assert alice.ask("PUT", "/api/contents/kept.ipynb", notebook)[0] == 201
    alice.execute("import pathlib; p = pathlib.Path.home() / '.jupyter'; p.mkdir(exist_ok=True); (p / 'settings').write_text('dark')")
    old = alice.token
    alice.down()
    alice.up("--packages", "jupyterlab,six==1.16.0", "--memory", "1G")
    alice.open()
    assert alice.token != old and alice.ask("GET", "/api/status", token=old)[0] == 403
    for _ in range(2):
        assert alice.ask("GET", "/api/contents/kept.ipynb")[1]["type"] == "notebook"
        assert alice.execute("import six, pathlib; six.__version__, (pathlib.Path.home() / '.jupyter/settings').read_text()").text == "('1.16.0', 'dark')"
        if _ == 0:
            alice.close()
            server.kill("keeper")
            alice.up("--packages", "jupyterlab,six==1.16.0", "--memory", "1G")
            alice.open()


def test_a_list_without_jupyterlab_is_refused_in_words(people, server):
    carol = people(Person(server, "carol", server.token("carol")))
    failed = carol.run(*carol.script("up", "carol", "--packages", "six"))
    assert failed.returncode == 2 and "does --packages or --requirements name jupyterlab?" in failed.stderr, failed
    carol.down()
    carol.carrel("volume", "rm", "carol")


def test_jupyterlab_that_ended_is_started_again(alice):
    """By `open`, with the same token: the page that waits goes on."""
    (job,) = [line.split()[0] for line in alice.carrel("jobs", "alice").splitlines() if " running " in line and "jupyter lab" in line]
    alice.carrel("kill", "alice", job, "KILL")

    def is_back():
        try:
            return job not in alice.carrel("jobs", "alice").split(" running ")[0].splitlines()[-1] and alice.ask("GET", "/api/status")[0] == 200
        except OSError:
            return False
    wait_for(is_back, every_s=0.3)


def test_a_refused_option_leaves_no_box_and_the_server_is_named_if_it_is_missing(people, server):
    dora = people(Person(server, "dora", server.token("dora")))
    failed = dora.run(*dora.script("up", "dora", "--packages", "nosuchpackage"))
    assert failed.returncode == 125 and "there is no such package" in failed.stderr, failed
    assert "dora" not in dora.carrel("ps")
    failed = dora.run(*dora.script("up", "Dora!"))
    assert failed.returncode == 125 and "carrel: name must be 1 to 63 of a-z, 0-9 and -" in failed.stderr, failed
    dora.settings["CARREL_URL"] = "unix:/nonexistent/carrel.sock"
    failed = dora.run(*dora.script("up", "dora"))
    assert failed.returncode == 125 and "/nonexistent/carrel.sock" in failed.stderr, failed


def test_an_ordinary_user_has_one_with_a_server_of_his_own(people, index, layers):
    own = layers / "user"
    own.mkdir()
    shutil.chown(own, ORDINARY, ORDINARY)
    server = people(Server("--set", "pool.size=0", user=ORDINARY, variables={"CARREL_LAYERS": str(own), "UV_DEFAULT_INDEX": index.url}))
    person = people(Person(server, "mine", user=ORDINARY))
    person.up("--packages", "jupyterlab,six==1.16.0")
    person.open()
    assert person.execute(SIX).text == "('1.16.0', '/opt/venv')"
    assert person.ask("PUT", "/api/contents/a.txt", {"type": "file", "format": "text", "content": "stays"})[0] == 201
    person.down()
    person.up("--packages", "jupyterlab,six==1.16.0")
    person.open()
    assert person.ask("GET", "/api/contents/a.txt")[1]["content"] == "stays"
    person.down()

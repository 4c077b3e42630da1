"""The file of settings, its errors, and the places that a server uses."""
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile

import pytest

from support.users import ORDINARY as USER, user_command
from support.waiting import wait_for


@pytest.fixture
def folder():
    """One that every user can look into."""
    where = pathlib.Path(tempfile.mkdtemp(prefix="carrel-set-"))
    where.chmod(0o755)
    yield where
    shutil.rmtree(where)


def serve(place, folder, *options, user=None):
    """A server that must not start; its message."""
    done = subprocess.run([*user_command(user), place / "carrel", "serve", "--socket", folder / "api.sock", "--state", folder / "state",
                           "--run", folder / "run", *options], capture_output=True, text=True, timeout=60)
    assert done.returncode == 125, done.stderr
    return done.stderr


def test_the_file_in_its_usual_place_reaches_the_front(make_server, folder):
    (folder / "carrel").mkdir()
    (folder / "carrel/carrel.yaml").write_text("quota:\n  boxes: 1\n")
    server = make_server(user=USER, variables={"XDG_CONFIG_HOME": str(folder)})
    assert [server.request("POST", "/v1/boxes", {})[0] for _ in range(2)] == [201, 429]
    server.kill("front")
    assert server.request("POST", "/v1/boxes", {})[0] == 429     # of the next front too
    without = make_server("--no-config", user=USER, variables={"XDG_CONFIG_HOME": str(folder)})
    assert [without.request("POST", "/v1/boxes", {})[0] for _ in range(2)] == [201, 201]


def test_a_file_that_only_root_can_read(make_server, folder):
    (folder / "c.yaml").write_text("quota:\n  boxes: 1\n")
    (folder / "c.yaml").chmod(0o600)
    server = make_server("--config", folder / "c.yaml")
    assert [server.request("POST", "/v1/boxes", {})[0] for _ in range(2)] == [201, 429]


def test_a_file_or_none(place, folder):
    assert "either --config or --no-config" in serve(place, folder, "--config", folder / "c.yaml", "--no-config")


def test_a_private_directory_is_the_servers_own(place, folder):
    """Its mode and group are changed, so it must belong to no one else."""
    for name, make in (("open", lambda p: p.chmod(0o777)), ("theirs", lambda p: os.chown(p, 65534, 65534))):
        path = folder / name
        path.mkdir()
        make(path)
        before = path.stat()
        assert "with --private" in serve(place, folder, "--no-config", "--private", path)
        assert (path.stat().st_mode, path.stat().st_gid) == (before.st_mode, before.st_gid) and not os.listdir(path)
    (folder / "link").symlink_to(folder)
    assert str(folder / "link") in serve(place, folder, "--no-config", "--private", folder / "link")
    assert "not an absolute path" in serve(place, folder, "--no-config", "--private", "relative")
    assert "contradict each other" in serve(place, folder, "--no-config", "--private", folder / "new", "--allow-anonymous")
    assert not (folder / "new").exists()


@pytest.mark.parametrize("name, why", [("nosuchuser", "no such user"), ("root", "must not have")])
def test_the_fronts_user_must_be_an_ordinary_one(place, folder, name, why):
    assert why in serve(place, folder, "--no-config", "--set", f"user={name}")
    (folder / "c.yaml").write_text(f"user: {name}\n")
    checked = subprocess.run([place / "carrel", "config", "check", folder / "c.yaml"], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 125 and why in checked.stderr


def test_long_settings_are_not_cut(make_server, place, folder):
    assert "'..'" in serve(place, folder, "--set", "templates.python.layers=" + 6 * ("/" + "x" * 100 + ":") + "/../y")
    assert "KEY=VALUE" in serve(place, folder, "--set", "x" * 200 + "=1")
    assert "use a file" in serve(place, folder, *["--allow-anonymous"] * 100)
    server = make_server("--set", f"roots.{'r' * 63}=/")        # the front takes it too
    assert server.is_ready()


@pytest.mark.parametrize("owner, mode", [("root", 0o755), (USER, 0o777)])
def test_a_foreign_run_folder_is_refused(place, folder, owner, mode):
    shutil.chown(folder, USER)
    (folder / "run").mkdir()
    shutil.chown(folder / "run", owner)
    (folder / "run").chmod(mode)
    assert "belongs to another user or others may write there" in serve(place, folder, user=USER)


def test_a_link_is_no_run_folder(place, folder):
    shutil.chown(folder, USER)
    (folder / "other").mkdir()
    shutil.chown(folder / "other", USER)
    (folder / "run").symlink_to(folder / "other")
    assert "run" in serve(place, folder, user=USER)


def test_a_keeper_of_another_user_is_not_spoken_to(place, folder):
    """A server at the keeper's path would get the callers' descriptors."""
    path = folder / "k.sock"
    shutil.chown(folder, USER)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as foreign:
        foreign.bind(str(path))
        path.chmod(0o777)
        stranger = pwd.getpwnam("nobody").pw_uid
        os.seteuid(stranger)
        try:
            foreign.listen(8)       # here the kernel records the server's user
        finally:
            os.seteuid(0)
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen([*user_command(USER), place / "carrel", "serve", "--socket", folder / "api.sock", "--state",
                                        folder / "state", "--run", folder / "run", "--keeper", path], stdout=log, stderr=log,
                                       start_new_session=True)
        try:
            wait_for(lambda: "served by another user" in (folder / "log").read_text(), "the foreign keeper is seen")
            foreign.settimeout(60)
            connection = foreign.accept()[0]
            connection.settimeout(60)
            assert connection.recv(1) == b""        # it left without a word
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


@pytest.mark.parametrize("words", [("serve", "--socket"), ("keeper", "--listen")])
def test_a_file_in_the_sockets_place_is_kept(place, folder, words):
    notes = folder / "notes.txt"
    notes.write_text("dear")
    more = ["--state", folder / "state", "--run", folder / "run"] if words[0] == "serve" else []
    done = subprocess.run([place / "carrel", *words, notes, *more], capture_output=True, text=True, timeout=60)
    assert done.returncode == 125 and "is no socket" in done.stderr
    assert notes.read_text() == "dear"


def test_a_front_that_cannot_be_started_is_started_later(make_server):
    server = make_server(user=USER)
    supervisor, front = server.process.pid, server.child("front")

    def allow(processes):
        """As the user itself: root may lack the right here."""
        subprocess.run([*user_command(USER), "prlimit", "--pid", str(supervisor), f"--nproc={processes}:"], check=True, timeout=60)

    most = next(line.split()[2] for line in pathlib.Path(f"/proc/{supervisor}/limits").read_text().splitlines()
                if line.startswith("Max processes"))
    allow(0)
    os.kill(front, signal.SIGKILL)
    wait_for(lambda: "cannot start a process" in server.log_text(), "it could not be started")
    allow(most)
    wait_for(lambda: server.child("front") not in (None, front) and server.is_ready(), "another front is ready")


def test_a_keeper_with_too_few_templates_is_told_of(make_server, folder, place):
    """As the service's units do it: the keeper is started on its own, and has the templates of its command line."""
    with open(folder / "log", "wb") as log:
        keeper = subprocess.Popen([place / "carrel", "keeper", "--listen", folder / "k.sock", "--front-uid", "64998", "--template", "python="],
                                  stdout=log, stderr=log)
    try:
        wait_for((folder / "k.sock").exists, "the keeper listens")
        server = make_server("--no-config", "--keeper", folder / "k.sock", "--set", "templates.other.python=/usr/bin/python3")
        wait_for(lambda: "fewer templates" in server.log_text(), "the log says so")
        assert server.request("POST", "/v1/boxes", {})[0] == 201
        assert server.request("POST", "/v1/boxes", {"template": "other"})[0] == 201
        server.clear()
    finally:
        keeper.terminate()
        keeper.wait(60)

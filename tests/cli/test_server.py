"""Identities, quotas, the death of the front, and messages without a server."""
import json
import os
import pathlib
import pty
import re
import select
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request

import pytest

from support import REPOSITORY
from support.ports import free_port
from support.users import ORDINARY as USER


def test_two_identities_do_not_see_each_other(server, box):
    theirs = server.carrel("create", "--name", "theirs", user=USER).stdout.strip()
    assert theirs
    for words in (("exec", box, "true"), ("cp", f"{box}:/etc/passwd", "-"), ("logs", box), ("events", box), ("pause", box), ("rm", box),
                  ("stats", box), ("forward", box, "80")):
        result = server.carrel(*words, user=USER)
        assert result.returncode == 125 and "there is no box '" in result.stderr, words
    assert server.carrel("ps", "-q", user=USER).stdout.split() == [theirs]
    assert theirs not in server.carrel("ps", "-q").stdout
    assert server.carrel("exec", box, "true").returncode == 0
    assert server.carrel("ps", "--everybody", user=USER).returncode == 125
    assert theirs in server.carrel("ps", "-q", "--everybody").stdout
    assert server.carrel("token", "create", "me", user=USER).returncode == 125
    assert server.carrel("rm", theirs, user=USER).returncode == 0


def test_quotas_refuse_with_what_to_do(make_server):
    server = make_server("--set", "quota.boxes=2", "--set", "quota.memory=1G")
    assert [server.carrel("create", "--memory", "64M", user=USER).returncode for _ in range(3)] == [0, 0, 125]
    third = server.carrel("create", "--memory", "64M", user=USER)
    assert "carrel rm" in third.stderr
    server.carrel("rm", "--all", user=USER)
    assert server.carrel("create", "--memory", "2G", user=USER).returncode == 125
    assert server.carrel("create", "--memory", "64M", user=USER).returncode == 0


def test_tokens_over_tcp(make_server):
    server = make_server()
    url = {"CARREL_URL": f"http://127.0.0.1:{server.port}"}
    none = server.carrel("ps", environment=url)
    assert none.returncode == 125 and "CARREL_TOKEN" in none.stderr
    made = json.loads(server.carrel("token", "create", "bot", "--json", "--expires", "1h").stdout)
    url["CARREL_TOKEN"] = made["token"]
    assert server.carrel("create", "--name", "b", environment=url).returncode == 0
    assert server.carrel("exec", "b", "echo", "hi", environment=url).stdout == "hi\n"
    assert server.carrel("ps", "-q").stdout == ""
    listed = server.carrel("token", "list").stdout
    assert made["id"] in listed and made["token"] not in listed
    assert server.carrel("token", "revoke", made["id"]).returncode == 0
    assert server.carrel("ps", environment=url).returncode == 125
    only_read = server.carrel("token", "create", "reader", "--scope", "boxes:read").stdout.strip()
    url["CARREL_TOKEN"] = only_read
    assert server.carrel("ps", environment=url).returncode == 0
    refused = server.carrel("create", environment=url)
    assert refused.returncode == 125 and "boxes:write" in refused.stderr


def test_an_ordinary_user_has_a_server(make_server):
    server = make_server(user=USER)
    made = server.carrel("create", "--name", "mine", user=USER)
    assert made.returncode == 0, made.stderr
    assert server.carrel("exec", "mine", "echo", "hi", user=USER).stdout == "hi\n"
    assert server.carrel("cp", "-", "mine:f", data="x", user=USER).returncode == 0
    assert server.carrel("exec", "mine", "cat", "f", user=USER).stdout == "x"
    assert server.carrel("rm", "mine", user=USER).returncode == 0


def test_an_ordinary_users_server_is_for_nobody_else(make_server, tmp_path):
    """Its boxes have its user's rights: a caller who may make one has those rights."""
    server = make_server(user=USER)
    assert os.stat(server.socket).st_mode & 0o777 == 0o600 and os.stat(server.folder / "run").st_mode & 0o077 == 0
    tried = ("ps",), ("create", "--name", "theirs"), ("create", "--mount", f"{server.folder}:/x:rw")
    for words in tried:
        refused = server.carrel(*words, user="nobody")
        assert refused.returncode == 125 and "Permission denied" in refused.stderr, refused.stderr
    os.chmod(server.socket, 0o666)      # another user opens it nevertheless
    for words in tried:
        refused = server.carrel(*words, user="nobody")
        assert refused.returncode == 125 and "started by another user" in refused.stderr, refused.stderr
    for user in (USER, None):
        made = server.carrel("create", "--name", "mine", user=user)
        assert made.returncode == 0, made.stderr
        assert server.carrel("rm", "mine", user=user).returncode == 0


def test_an_ordinary_users_server_mounts_only_that_users(make_server, tmp_path):
    """Others' descriptors would be opened again, and written, with the server user's rights."""
    server = make_server(user=USER)
    (server.folder / "open").mkdir(mode=0o755)
    where = f"{server.folder}/open:/x"
    refused = server.carrel("create", "--mount", where)         # root may ask for a box, but its directory is not USER's to open
    assert refused.returncode == 125 and "its own user" in refused.stderr, refused.stderr
    made = server.carrel("create", "--name", "mine", "--mount", where, user=USER)
    assert made.returncode == 0, made.stderr
    assert server.carrel("exec", "mine", "ls", "/x", user=USER).returncode == 0


COUNTER = "i=0; while [ $i -lt 300 ]; do echo $i; i=$((i+1)); sleep 0.01; done"


def test_a_counter_is_complete_after_the_front_was_killed(make_server):
    server = make_server()
    server.carrel("create", "--name", "c", "--memory", "64M")
    exec_id = server.carrel("exec", "-d", "c", "--", "sh", "-c", COUNTER).stdout.strip()
    following = server.start_carrel("logs", "-f", "c", exec_id, stdout=subprocess.PIPE, text=True)
    seen = following.stdout.readline()      # from now on it looks for a front that went away
    for _ in range(3):
        server.kill("front")
    expected = "".join(f"{n}\n" for n in range(300))
    assert seen + following.stdout.read() == expected
    assert following.wait(60) == 0
    following.stdout.close()
    assert server.carrel("logs", "-f", "c", exec_id).stdout == expected
    assert server.carrel("exec", "c", "true").returncode == 0


def test_a_foreground_command_ends_with_the_front_and_the_client_says_so(make_server):
    server = make_server()
    server.carrel("create", "--name", "c", "--memory", "64M")
    endless = COUNTER.replace("300", "1000000")
    running = server.start_carrel("exec", "c", "--", "sh", "-c", endless, stdout=subprocess.PIPE, text=True)
    assert running.stdout.readline() == "0\n"
    server.kill("front")
    seen = running.stdout.read().split()    # communicate() would leave out what readline() has taken from the pipe already
    assert running.wait(60) == 137
    running.stdout.close()
    assert seen == [str(n) for n in range(1, len(seen) + 1)]
    assert server.carrel("exec", "c", "true").returncode == 0


def test_without_a_server_it_is_told_how_to_start_one(place):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CARREL_")}
    result = subprocess.run([place / "carrel", "ps", "--url", "unix:/nosuch/socket"], env=environment, capture_output=True, text=True)
    assert result.returncode == 125 and "carrel serve" in result.stderr
    if os.path.exists("/run/carrel/carrel.sock"):
        return
    result = subprocess.run([place / "carrel", "ps"], env=environment, capture_output=True, text=True)
    assert result.returncode == 125 and "no server is running" in result.stderr and "carrel serve" in result.stderr


def test_a_default_place_is_used_only_if_nobody_else_can_change_it(make_server, place):
    """Root serves at the end of another user's link, who could redirect it after the server was checked."""
    if os.path.exists("/run/carrel/carrel.sock"):
        pytest.skip("this machine has a server")
    server = make_server()
    runtime = server.folder / "runtime"
    folder = runtime / "carrel"
    runtime.mkdir()
    runtime.chmod(0o1777)
    sdk = "import carrel.local; print(carrel.local.running_server())"

    def found():
        """By the client, by `run` and by the SDK."""
        line = ["runuser", "-u", USER, "--", "env", "-u", "CARREL_URL", f"XDG_RUNTIME_DIR={runtime}", f"PYTHONPATH={server.folder}/sdk"]
        tries = [[place / "carrel", "ps"], [place / "carrel", "run", "--request-memory", "16M", "--memory", "64M", "true"], ["/usr/bin/python3", "-B", "-c", sdk]]
        said = [subprocess.run([*line, *words], capture_output=True, text=True, timeout=60, cwd="/") for words in tries]
        assert said[2].returncode == 0, said[2].stderr
        return [said[0].returncode == 0, said[1].returncode == 0, said[2].stdout == f"unix:{folder}/carrel.sock\n"]

    shutil.copytree(REPOSITORY / "sdk/python/carrel", server.folder / "sdk/carrel", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["chmod", "-R", "a+rX", server.folder / "sdk"], check=True)
    folder.mkdir(mode=0o755)
    os.symlink(server.socket, folder / "carrel.sock")
    shutil.chown(folder, "nobody")
    assert found() == [False] * 3
    shutil.chown(folder, USER)
    assert found() == [False] * 3               # a link still
    (folder / "carrel.sock").unlink()
    os.link(server.socket, folder / "carrel.sock")
    assert found() == [True] * 3
    for wrong in (lambda: folder.chmod(0o775), lambda: folder.chmod(0o757), lambda: shutil.chown(folder, "nobody")):
        folder.chmod(0o755)
        wrong()
        assert found() == [False] * 3
    folder.chmod(0o755)
    shutil.chown(folder, USER)
    runtime.chmod(0o777)
    assert found() == [False] * 3
    runtime.chmod(0o755)
    folder.rename(runtime / "real")
    os.symlink("real", folder)
    assert found() == [False] * 3


def test_a_strangers_socket_in_a_default_place_is_not_trusted(place, tmp_path):
    """Root runs it with an XDG_RUNTIME_DIR in which another user listens: root ignores it; another user does not trust it."""
    import tempfile
    directory = tempfile.mkdtemp()
    try:
        os.chmod(directory, 0o777)
        os.mkdir(f"{directory}/carrel")
        os.chmod(f"{directory}/carrel", 0o777)
        code = ("import os,socket,sys; s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); os.setgid(65534); os.setuid(65534)\n"
                "s.listen(); print(flush=True)\n"
                "while True:\n c=s.accept()[0]; print(c.recv(4), flush=True)")
        path = f"{directory}/carrel/carrel.sock"
        stranger = subprocess.Popen(["/usr/bin/python3", "-c", code, path], stdout=subprocess.PIPE, text=True)
        stranger.stdout.readline()
        os.chmod(path, 0o777)

        def ask(said):
            """What the stranger hears first must be this, where b'mine' is said after the command."""
            result = subprocess.run(["runuser", "-u", USER, "--", "env", "-u", "CARREL_URL", f"XDG_RUNTIME_DIR={directory}", place / "carrel", "ps"],
                                    capture_output=True, text=True, timeout=60)
            assert "no server is running" in result.stderr or os.path.exists("/run/carrel/carrel.sock")
            with socket.socket(socket.AF_UNIX) as mine:
                mine.connect(path)
                mine.sendall(b"mine")
                assert [stranger.stdout.readline() for _ in said] == [f"{word!r}\n" for word in said]
        ask([b"mine"])                          # others may write there: the server is not even checked
        shutil.chown(f"{directory}/carrel", USER)
        for folder in (directory, f"{directory}/carrel"):
            os.chmod(folder, 0o755)
        ask([b"", b"mine"])                     # the place is USER's own, but another user serves there
    finally:
        stranger.kill()
        stranger.communicate()
        shutil.rmtree(directory)


@pytest.mark.parametrize("words, said", [
    (("ps", "--nosuch"), "--nosuch"), (("ps", "-Z"), "-Z"), (("create", "--memory", "lots"), "--memory"), (("create", "--memory"), "--memory"),
    (("create", "--memory", "900T"), "--memory may be at most"), (("create", "--name", "../x"), "name"), (("create", "--cpus", "0"), "--cpus"),
    (("create", "--mount", "x"), "SOURCE:TARGET"), (("create", "--env", "x"), "NAME=VALUE"), (("create", "--profile", "odd"), "profile"),
    (("create", "--root", "nosuch"), "root"), (("create", "word"), "--name"), (("exec", "one"), "no command"), (("exec",), "which box"),
    (("exec", "one", "--timeout", "x", "--", "true"), "--timeout"), (("exec", "../../v1/info", "true"), ""), (("shell",), "which box"),
    (("logs", "one", "../x"), "not the id"), (("events",), "which box"), (("forward", "one", "0"), "port"), (("forward", "one", "x"), "port"),
    (("forward", "one", "99999"), "port"), (("rm",), "which box"), (("rm", "--label", "x"), "which box"), (("token",), "action"),
    (("token", "odd"), "odd"), (("token", "create"), "identity"), (("token", "revoke", "nosuch"), "no token 'nosuch'"),
    (("ps", "--url", "ftp://x"), "http://HOST:PORT"), (("ps", "--url", "http://127.0.0.1:99999"), "port"),
])
def test_wrong_words_are_refused_with_a_reason(server, box, words, said):
    result = server.carrel(*words)
    assert result.returncode == 125 and result.stderr.startswith("carrel: ") and said in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("command", "create ps exec shell cp jobs logs wait kill events forward pause resume stop start rm stats token".split())
def test_every_command_has_help(place, command):
    result = subprocess.run([place / "carrel", command, "--help"], capture_output=True, text=True)
    assert result.returncode == 0 and result.stdout.startswith(f"usage: carrel {command}")


def test_what_a_box_is_called_cannot_steer_the_terminal(server):
    server.request("POST", "/v1/boxes", {"labels": {"a": "\033]0;evil\007\u009b31m"}})
    shown = server.carrel("ps").stdout
    assert "\033" not in shown and "\u009b" not in shown and "evil" in shown


def test_serve_on_a_terminal_speaks_to_people(place):
    """And the line for JupyterLab that it prints has all that the gateway wants."""
    port, ours, theirs = free_port(), *pty.openpty()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-people-"))
    folder.chmod(0o755)
    process = subprocess.Popen([place / "carrel", "serve", "--no-config", "--listen", f"127.0.0.1:{port}", "--socket", folder / "s", "--state", folder / "state",
                                "--run", folder / "run", "--set", "templates.python.pool=off"], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen, end = b"", time.monotonic() + 60
    try:
        while b"the keeper is there" not in seen:
            assert select.select([ours], [], [], 60)[0] and time.monotonic() < end, seen
            seen += os.read(ours, 4096)
        text = seen.decode()
        assert '"level"' not in text and f"http://127.0.0.1:{port}" in text
        line = next(one for one in text.splitlines() if "jupyter lab" in one)
        command = re.search(r'auth_token="\$\(carrel (.*)\)"', line)[1].split()
        made = subprocess.run([place / "carrel", *command], env={**os.environ, "CARREL_URL": f"unix:{folder}/s"}, capture_output=True, text=True, timeout=60)
        url = re.search(r"--gateway-url=(\S+)", line)[1]
        request = urllib.request.Request(url + "/api/kernelspecs", headers={"Authorization": "token " + made.stdout.strip()})
        assert "python3" in json.load(urllib.request.urlopen(request, timeout=60))["kernelspecs"]
    finally:
        process.terminate()
        process.wait(60)
        os.close(ours)
        shutil.rmtree(folder)

"""Without a server: one that belongs to the process. And the package as others install it."""
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile

import pytest

from support.processes import processes
from support.users import ORDINARY as USER, user_command
from support.waiting import wait_for

HELLO = """
from carrel import Box
import carrel.local
with Box(memory="64M") as box:
    print(box.exec(["echo", "hello"]).stdout, end="")
    print(carrel.local.private_server().directory, carrel.local.private_server().process.pid, flush=True)
"""


def gone(pid):
    """Also a process whose new parent has not noticed it yet."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def skip_if_taken():
    if os.path.exists("/run/carrel/carrel.sock"):
        pytest.skip("this machine has a server")


def test_a_private_server_ends_with_its_process(environment):
    skip_if_taken()
    done = subprocess.run([sys.executable, "-c", HELLO], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    hello, directory, pid = done.stdout.split()
    assert hello == "hello" and not os.path.exists(directory) and gone(pid)


def test_a_private_server_ends_when_its_process_is_killed(environment):
    skip_if_taken()
    code = HELLO + "import signal, os; os.kill(os.getpid(), signal.SIGKILL)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == -9, done.stderr
    _, directory, pid = done.stdout.split()
    wait_for(lambda: gone(pid), "the server is gone")
    subprocess.run(["rm", "-rf", directory], check=True)


def test_a_forked_child_shares_the_server_and_leaves_it_alone(environment):
    skip_if_taken()
    code = """
import os, sys
from carrel import Box
with Box(memory="64M") as box:
    pid = os.fork()
    if pid == 0:
        assert Box(memory="64M").exec(["echo", "child"]).stdout == "child\\n"
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    print(box.exec(["echo", "parent"]).stdout, end="")
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "parent\n"), done.stderr


def test_an_ordinary_user_has_a_private_server(environment, place):
    skip_if_taken()
    line = [*user_command(USER), "env", *[f"{k}={environment[k]}" for k in ("CARREL_BIN", "PYTHONPATH")], "/usr/bin/python3", "-c",
            HELLO.replace('memory="64M"', "")]      # a limit that is asked for may be refused to ordinary users
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, cwd="/")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("hello\n")


def test_a_private_server_reads_no_file_of_settings(environment, place):
    """That file is for the server that everybody uses; here it names a port that is taken."""
    skip_if_taken()
    with tempfile.TemporaryDirectory(prefix="carrel-set-") as folder, socket.create_server(("127.0.0.1", 0)) as taken:
        os.chmod(folder, 0o755)
        os.mkdir(f"{folder}/carrel")
        pathlib.Path(folder, "carrel/carrel.yaml").write_text(f"listen: 127.0.0.1:{taken.getsockname()[1]}\n")
        line = [*user_command(USER), "env", f"XDG_CONFIG_HOME={folder}", *[f"{k}={environment[k]}" for k in ("CARREL_BIN", "PYTHONPATH")]]
        done = subprocess.run([*line, "/usr/bin/python3", "-c", HELLO.replace('memory="64M"', "")], capture_output=True, text=True, timeout=120,
                              cwd="/")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("hello\n")


def test_an_ordinary_users_private_server_is_closed_to_others(environment, place):
    skip_if_taken()
    code = HELLO + "    import os; print(*[oct(os.stat(p).st_mode & 0o777) for p in (carrel.local.private_server().directory,\n" \
        "                                                                  carrel.local.private_server().socket)])\n"
    line = [*user_command(USER), "env", *[f"{k}={environment[k]}" for k in ("CARREL_BIN", "PYTHONPATH")], "/usr/bin/python3", "-c",
            code.replace('memory="64M"', "")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, cwd="/")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "0o700 0o600"), done.stderr


def directory_of(program):
    """Of the private server that a process has started."""
    parents = {pid: parent for pid, (parent, _) in processes().items()}
    for pid in parents:
        above = pid
        while above not in (0, None, program):
            above = parents.get(above)
        try:
            found = re.search(rb"/tmp/carrel-\w+", pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()) if above == program else None
        except OSError:
            continue
        if found:
            return pathlib.Path(os.fsdecode(found[0]))
    return None


@pytest.fixture(params=["the SDK's", "the client's"])
def roots_server(request, environment):
    """The directory of a private server whose program is root's."""
    skip_if_taken()
    if os.geteuid() != 0:
        pytest.skip("root's private server is tried by root")
    line, said, answer = {
        "the SDK's": ([sys.executable, "-c", HELLO.replace("flush=True)", "flush=True)\n    input()")], "", "hello"),
        "the client's": ([environment["CARREL_BIN"], "mcp"], '{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n', '"id":1')}[request.param]
    # An empty CARREL_URL names no server.
    with subprocess.Popen(line, env={**environment, "CARREL_URL": ""}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdin.write(said)
        process.stdin.flush()
        assert answer in process.stdout.readline()
        yield directory_of(process.pid)
        process.communicate("\n" if not said else "", timeout=120)


# Attempts of another user at a socket: to make a box, and to see root's.
STRANGER = """
import http.client, socket, sys
for method, body in (("POST", "{}"), ("GET", None)):
    c = http.client.HTTPConnection("localhost", timeout=60)
    c.sock = socket.socket(socket.AF_UNIX)
    try: c.sock.connect(sys.argv[1])
    except OSError as e: print(type(e).__name__); continue
    c.request(method, "/v1/boxes", body, {"Content-Type": "application/json"})
    print(c.getresponse().status)
"""


def strangers_luck(path, uid):
    done = subprocess.run(["/usr/bin/python3", "-c", STRANGER, path], user=uid, group=uid, extra_groups=[], capture_output=True, text=True, timeout=120, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def mode_of(path):
    return oct(path.stat().st_mode & 0o777)


@pytest.mark.parametrize("uid", [65534, 64998])     # nobody, and every user with the front's id
def test_roots_private_server_serves_root_alone(roots_server, uid):
    directory, path = roots_server, roots_server / "carrel.sock"
    assert strangers_luck(path, uid) == ["PermissionError", "PermissionError"]
    front = (directory / "state").stat()
    assert (mode_of(directory), directory.stat().st_uid, directory.stat().st_gid) == ("0o710", 0, front.st_gid) and front.st_gid != 0
    assert (mode_of(path), mode_of(directory / "log"), mode_of(directory / "state")) == ("0o600", "0o600", "0o700")
    # If the modes were wrong, the front would still check the caller's uid.
    directory.chmod(0o711)
    path.chmod(0o666)
    assert strangers_luck(path, uid) == ["403", "403"]


def test_a_server_that_does_not_start_says_why(environment):
    skip_if_taken()
    code = "import carrel\ntry:\n carrel.Carrel()\nexcept carrel.Unavailable as e:\n print(e)"
    broken = {**environment, "CARREL_BIN": "/bin/false"}
    done = subprocess.run([sys.executable, "-c", code], env=broken, capture_output=True, text=True, timeout=120)
    assert "did not start" in done.stdout


def test_a_server_that_cannot_be_started_leaves_nothing(environment, tmp_path):
    skip_if_taken()
    lost = {**{k: v for k, v in environment.items() if k != "CARREL_BIN"}, "PATH": "/nosuch", "TMPDIR": str(tmp_path)}
    code = "import carrel\ntry:\n carrel.Carrel()\nexcept carrel.Unavailable as e:\n print(e)"
    done = subprocess.run([sys.executable, "-c", code], env=lost, capture_output=True, text=True, timeout=120)
    assert "CARREL_BIN" in done.stdout and os.listdir(tmp_path) == [], done.stderr


def test_ctrl_c_while_a_server_starts_ends_it(environment, tmp_path):
    skip_if_taken()
    (tmp_path / "tmp").mkdir()
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid.new\nmv {tmp_path}/pid.new {tmp_path}/pid\nexec sleep 1000\n")
    slow.chmod(0o755)
    stuck = {**environment, "CARREL_BIN": str(slow), "TMPDIR": str(tmp_path / "tmp")}
    code = "import carrel\ntry:\n carrel.Carrel()\nexcept KeyboardInterrupt:\n print('caught', flush=True)\n input()"
    process = subprocess.Popen([sys.executable, "-c", code], env=stuck, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    wait_for((tmp_path / "pid").exists, "the server was started")
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "caught\n"
    wait_for(lambda: gone((tmp_path / "pid").read_text().strip()), "the server is gone")
    assert os.listdir(tmp_path / "tmp") == [] and process.poll() is None
    process.communicate("\n", timeout=120)


def test_the_package_installs_by_itself(tmp_path, shared):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=120)
    source = tmp_path / "source"
    subprocess.run(["cp", "-r", pathlib.Path(__file__).parents[2] / "sdk/python", source], check=True)
    python = tmp_path / "venv/bin/python"
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", source], capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stderr
    code = "from carrel import Carrel, Box\nwith Box() as b: print(b.exec(['echo', 'hi']).stdout, end='')"
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([python, "-c", code], env={**clean, "CARREL_URL": shared.url}, capture_output=True, text=True, timeout=120, cwd="/")
    assert done.stdout == "hi\n", done.stderr

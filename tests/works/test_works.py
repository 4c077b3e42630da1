"""Common work in a box: Python with its libraries, node, a compiler, git, a shell with job control."""
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import pytest

from support.boxes import WAY, command_line, run_box

VENV = os.environ.get("CARREL_WORKS_VENV", "build/works-venv")
LIMITS = ("--memory", "1G", "--pids", "128", "--disk", "256M")
DEADLINE = 50


def check(command, **options):
    result = run_box(command, limits=LIMITS, options=("--timeout", "100s"), **options)
    assert result.status == 0, result
    return result.stdout.decode()


def python(script, *arguments):
    return check(["/usr/bin/python3", "-c", script, *arguments])


def in_venv(script):
    """The venv is mounted read-only at its own path, for that path is written in its files."""
    path = pathlib.Path(VENV).resolve()
    if not (path / "bin/python").exists():
        pytest.skip("no venv; make attack builds it")
    return check([f"{path}/bin/python", "-c", script], mounts=[f"{path}:{path}:ro"])


# --- Python ---

def test_python_starts_and_knows_its_home():
    assert python("import os, sys, pathlib; print(pathlib.Path.home(), os.getcwd(), os.getuid() != 0)") == "/home/box /home/box True\n"


def test_python_writes_files_and_reads_them_back():
    python("import pathlib, tempfile\n"
           "for d in ('/home/box', '/tmp', '/dev/shm'):\n"
           "    p = pathlib.Path(d, 'x'); p.write_text('é'); assert p.read_text() == 'é'\n"
           "with tempfile.TemporaryDirectory() as d: pathlib.Path(d, 'y').touch()")


def test_python_threads_work():
    assert python("import threading\nn = []\nt = [threading.Thread(target=n.append, args=(i,)) for i in range(50)]\n"
                  "[x.start() for x in t]; [x.join() for x in t]; print(sorted(n) == list(range(50)))") == "True\n"


def test_python_subprocesses_work():
    assert python("import subprocess; print(subprocess.run(['sh', '-c', 'echo $((6*7))'], capture_output=True, text=True, check=True).stdout)") == "42\n\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_python_multiprocessing_works(method, tmp_path):
    script = ("import multiprocessing as m, sys\n"
              "def f(x): return x * x\n"
              "if __name__ == '__main__':\n"
              "    with m.get_context(sys.argv[1]).Pool(3) as p: print(p.map(f, range(5)))\n")
    (tmp_path / "m.py").write_text(script)
    tmp_path.chmod(0o755)
    assert check(["/usr/bin/python3", "/work/m.py", method], mounts=[f"{tmp_path}:/work:ro"]) == "[0, 1, 4, 9, 16]\n"


def test_python_shared_memory_and_semaphores_work():
    assert python("from multiprocessing import shared_memory, Semaphore, Queue\ns = shared_memory.SharedMemory(create=True, size=100)\n"
                  "s.buf[0] = 7\nt = shared_memory.SharedMemory(s.name)\nprint(t.buf[0]); t.close(); s.close(); s.unlink()\n"
                  "q = Queue(); q.put(1); print(q.get(), Semaphore(2).acquire())") == "7\n1 True\n"


def test_python_asyncio_works():
    assert python("""
import asyncio
async def serve(r, w):
    w.write((await r.readline()).upper()); await w.drain(); w.close()
async def main():
    server = await asyncio.start_server(serve, '127.0.0.1', 0)
    r, w = await asyncio.open_connection(*server.sockets[0].getsockname())
    w.write(b'hello\\n'); print((await r.readline()).decode(), end='')
    p = await asyncio.create_subprocess_exec('echo', 'sub', stdout=asyncio.subprocess.PIPE)
    print((await p.communicate())[0].decode(), end='')
    await asyncio.wait_for(asyncio.sleep(0.01), 1)
asyncio.run(main())
""") == "HELLO\nsub\n"


def test_sockets_as_programs_open_them_work():
    """With the protocol named or not, with flags in the type, as getaddrinfo says it; a multipath one falls back, as Go's does."""
    assert python("""
import errno, fcntl, socket
for host in '127.0.0.1', '::1':
    for kind, protocols in (socket.SOCK_STREAM, (0, socket.IPPROTO_TCP)), (socket.SOCK_DGRAM, (0, socket.IPPROTO_UDP)):
        for family, kind, protocol, _, address in [i for p in protocols for i in socket.getaddrinfo(host, 0, 0, kind, p)]:
            with socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol) as here, socket.socket(family, kind, protocol) as there:
                here.bind(address)
                if kind == socket.SOCK_STREAM:
                    here.listen()
                there.connect(here.getsockname())
                there.send(b'x')
                here.settimeout(50)
                assert (here.accept()[0] if kind == socket.SOCK_STREAM else here).recv(9) == b'x'
def answer(call, *arguments):
    try: call(*arguments)
    except OSError as e: return errno.errorcode[e.errno]
    return 'done'
print(answer(socket.socket, socket.AF_INET, socket.SOCK_STREAM, 262), answer(socket.socket, socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_TCP))
print({answer(fcntl.ioctl, socket.socket(), request, b'\\0' * 64) for request in (0x8940, 0x8941, 0x8982, 0x8983, 0x89a0, 0x89a1)})
""") == "EPROTONOSUPPORT EPROTONOSUPPORT\n{'ENOTTY'}\n"


# --- what people and agents type first ---

def test_python_is_there_by_its_short_name():
    assert check(["python", "-c", "import sys; print(sys.version_info.major, sys.executable)"]) == "3 /usr/bin/python3\n"
    assert check(["sh", "-c", "printf '#!/usr/bin/env python\nprint(42)\n' > x; chmod +x x; ./x; python -m venv v; v/bin/python -c 'print(43)'"]) == "42\n43\n"


def test_git_commits_and_reads_repositories_of_other_users(tmp_path):
    assert check(["sh", "-c", "git init -q r && cd r && git commit -q --allow-empty -m one && git log --format='%an %s'"]) == "box one\n"
    subprocess.run(["git", "init", "-q", tmp_path], check=True, timeout=DEADLINE)
    assert "No commits yet" in check(["git", "-C", "/repository", "status"], mounts=[f"{tmp_path}:/repository:ro"])


@pytest.mark.parametrize("pip", [["pip"], ["python", "-m", "pip"]])
def test_pip_without_network_ends_at_once_and_says_why(pip):
    result = run_box([*pip, "install", "no-such-package-of-carrel"], limits=LIMITS, options=("--timeout", "20s"))
    assert result.status == 1 and b"Retrying" not in result.stderr and b"externally-managed" not in result.stderr, result
    assert b"carrel: this box has no network: " in result.stderr and b"; allow it with --allow " in result.stderr, result


def test_pip_installs_what_lies_in_the_box():
    assert check(["sh", "-c", """
mkdir -p p/carrel_try && cd p && echo 'answer = 42' > carrel_try/__init__.py
python - <<'END'
import zipfile
with zipfile.ZipFile('carrel_try-1-py3-none-any.whl', 'w') as z:
    z.write('carrel_try/__init__.py')
    z.writestr('carrel_try-1.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: carrel-try\\nVersion: 1\\n')
    z.writestr('carrel_try-1.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    z.writestr('carrel_try-1.dist-info/RECORD', '')
END
pip install --quiet ./carrel_try-1-py3-none-any.whl && cd / && python -c 'import carrel_try; print(carrel_try.answer)'"""]) == "42\n"


# --- interfaces: programs ask netlink for them ---

def test_interfaces_can_be_listed():
    assert check(["ip", "-brief", "address"]).split()[:3] == ["lo", "UNKNOWN", "127.0.0.1/8"]
    assert check(["ip", "route", "show", "table", "local"]).startswith("local 127.0.0.0/8 dev lo")
    assert check(["hostname", "-I"]).strip() == ""
    assert python("import socket; print(socket.if_nameindex())") == "[(1, 'lo')]\n"
    assert in_venv("import psutil; print(sorted(psutil.net_if_addrs()), [a.address for a in psutil.net_if_addrs()['lo']][0])") == "['lo'] 127.0.0.1\n"


def test_node_and_go_list_interfaces(tmp_path):
    if shutil.which("node"):
        assert check(["node", "-e", "console.log(os.networkInterfaces().lo[0].address)"]) == "127.0.0.1\n"
    if not shutil.which("go"):
        return
    (tmp_path / "main.go").write_text('package main\nimport ("fmt"; "net")\n'
                                      'func main() { i, e := net.Interfaces(); fmt.Println(len(i), i[0].Name, e) }\n')
    subprocess.run(["go", "build", "-o", tmp_path / "list", tmp_path / "main.go"], check=True, timeout=240,
                   env={**os.environ, "CGO_ENABLED": "0", "GOCACHE": str(tmp_path / "cache"), "GOFLAGS": "-mod=mod", "GO111MODULE": "off"})
    tmp_path.chmod(0o755)
    assert check(["/work/list"], mounts=[f"{tmp_path}:/work:ro"]) == "1 lo <nil>\n"


def test_children_and_threads_list_interfaces_at_once():
    """One listener answers for all that a command starts."""
    python("import concurrent.futures as c, os, socket\n"
           "def ask(_): return [socket.if_nameindex() for _ in range(50)]\n"
           "with c.ProcessPoolExecutor(4) as p, c.ThreadPoolExecutor(8) as t:\n"
           "    assert all(x == [(1, 'lo')] for r in [*p.map(ask, range(8)), *t.map(ask, range(8))] for x in r)")


def test_python_sqlite_works():
    assert python("import sqlite3\nc = sqlite3.connect('/home/box/x.db'); c.execute('pragma journal_mode=wal')\n"
                  "c.execute('create table t(a)'); c.executemany('insert into t values (?)', [(i,) for i in range(1000)]); c.commit()\n"
                  "print(sqlite3.connect('/home/box/x.db').execute('select sum(a) from t').fetchone()[0])") == "499500\n"


def test_python_locale_time_random_and_names_work():
    python("import locale, time, random, secrets, uuid, socket, getpass, pwd, os, platform\n"
           "time.localtime(); secrets.token_hex(); uuid.uuid4(); assert socket.gethostname(); assert pwd.getpwuid(os.getuid())\n"
           "assert getpass.getuser(); platform.platform(); socket.getaddrinfo('localhost', 80)")


def test_python_tools_venv_and_zipapp_work():
    python("import compileall, zipfile, tarfile, venv\nvenv.create('/home/box/v', symlinks=True)\n"
           "import subprocess; subprocess.run(['/home/box/v/bin/python', '-c', 'print(1)'], check=True)")


def test_numpy_works():
    assert in_venv("import numpy as n; a = n.random.rand(300, 300); print(round(float((a @ n.linalg.inv(a)).trace())))") == "300\n"


def test_pandas_works():
    assert in_venv("import pandas as p; d = p.DataFrame({'a': [1, 2, 3], 'b': list('xyx')}); d.to_csv('/tmp/d.csv'); "
                   "print(p.read_csv('/tmp/d.csv').groupby('b').a.sum().to_dict())") == "{'x': 4, 'y': 2}\n"


def test_matplotlib_works():
    assert in_venv("import matplotlib; matplotlib.use('Agg'); import matplotlib.pyplot as p, os; p.plot([1, 2, 3]); p.savefig('/tmp/f.png'); "
                   "print(os.path.getsize('/tmp/f.png') > 1000)") == "True\n"


def test_psutil_works_and_sees_only_the_box():
    out = in_venv("import psutil as p; print(len(p.pids())); p.virtual_memory(); p.cpu_count(); p.cpu_times(); p.Process().memory_info(); "
                  "p.disk_partitions(all=True); p.net_connections(); p.Process().open_files(); p.boot_time()")
    assert int(out) <= 4


def test_a_python_under_a_prefix_of_its_own_works():
    """As pyenv and conda lay them out: a whole prefix, mounted at its own path."""
    prefix = next((p for p in sorted(pathlib.Path.home().glob(".pyenv/versions/3.1*"), reverse=True) if (p / "bin/python3").exists()), None)
    if prefix is None:
        pytest.skip("no pyenv here")
    out = check([f"{prefix}/bin/python3", "-c", "import sys, ssl, sqlite3, ctypes, hashlib; print(sys.prefix)"], mounts=[f"{prefix}:{prefix}:ro"])
    assert out == f"{prefix}\n"


@pytest.mark.parametrize("user", [None, 65534], ids=["caller", "rootless"])
def test_standard_streams_can_be_opened_by_name(user):
    """As scripts do: echo >/dev/stderr, tee /dev/stderr, open('/dev/stdout')."""
    if user is not None and (os.getuid() != 0 or WAY == "fork"):
        pytest.skip("needs root, to become an ordinary user")
    script = "echo one >/dev/stdout; echo two >>/dev/stderr; echo three | tee /dev/stderr >/proc/self/fd/1; echo four >/dev/fd/2"
    result = run_box(["/bin/sh", "-c", script], limits=(), user=user)
    assert (result.status, result.stdout, result.stderr) == (0, b"one\nthree\n", b"two\nthree\nfour\n"), result


# --- other languages and tools ---

def test_node_works():
    script = ("const {execSync} = require('child_process'); const w = require('worker_threads');"
              "if (w.isMainThread) { console.log(execSync('echo sub').toString().trim(), [1,2,3].map(x => x * 2).join());"
              "require('http').createServer((q, r) => r.end('ok')).listen(0, '127.0.0.1', function () {"
              "require('http').get({port: this.address().port}, r => r.on('data', d => { console.log(d.toString()); process.exit(0); })); }); }")
    node = shutil.which("node")
    if not node:
        pytest.skip("no node")
    if not os.path.realpath(node).startswith("/usr/"):
        pytest.skip("node is not below /usr")
    assert check([node, "-e", script]) == "sub 2,4,6\nok\n"


def test_gcc_compiles_and_its_program_runs():
    assert check(["/bin/sh", "-c", "printf '#include <stdio.h>\\nint main(void){puts(\"compiled\");}' >a.c && gcc -O2 -o a a.c && ./a"]) == "compiled\n"


def test_make_runs_jobs_in_parallel():
    assert check(["/bin/sh", "-c", "printf 'all: a b c\\na b c:\\n\\t@echo $@ >$@\\n' >Makefile && make -j3 && cat a b c"]) == "a\nb\nc\n"


def test_git_works():
    out = check(["/bin/sh", "-c", "git init -q r && cd r && git config user.email a@b && git config user.name n && echo x >f && git add f && "
                 "git commit -qm first && git checkout -qb other && git clone -q . ../copy && git -C ../copy log --format=%s"])
    assert out == "first\n"


def test_shell_pipelines_and_tools_work():
    assert check(["/bin/bash", "-c", "set -o pipefail; seq 1000 | sort -rn | head -3 | tr '\\n' ' ' || true; diff <(echo a) <(echo a) && "
                  "mkfifo p && (echo fifo >p &) && cat p && find /usr/bin -name env | xargs -n1 basename"]).split() == ["1000", "999", "998", "fifo", "env"]


def test_a_broken_pipe_ends_a_writer_quietly():
    """SIGPIPE has its default action inside, or `yes | head` never ends."""
    result = run_box(["/bin/bash", "-c", "yes | head -1; echo ${PIPESTATUS[0]}"], limits=LIMITS)
    assert result.stdout == b"y\n141\n"


def test_tar_cp_and_sparse_files_work():
    check(["/bin/sh", "-c", "cp -r /usr/lib/os-release . && truncate -s 1G s && tar cSf t.tar s os-release && mkdir o && tar xf t.tar -C o && cmp os-release o/os-release"])


def test_flock_and_locks_work():
    check(["/bin/sh", "-c", "flock /tmp/l -c true && flock -n /tmp/l echo locked"])


def test_standard_input_reaches_the_command():
    data = os.urandom(300_000)
    result = run_box(["/bin/cat"], limits=LIMITS, data=data)
    assert result.stdout == data


def test_output_and_errors_stay_apart():
    result = run_box(["/bin/sh", "-c", "echo out; echo err >&2; exit 3"], limits=LIMITS)
    assert (result.stdout, result.stderr, result.status) == (b"out\n", b"err\n", 3)


def test_memory_and_processors_inside_are_the_boxs():
    result = run_box(["/bin/sh", "-c", "grep MemTotal /proc/meminfo; nproc; grep -c ^processor /proc/cpuinfo"],
                     limits=("--memory", "100M", "--cpus", "1", "--pids", "32"))
    total = int(re.search(rb"MemTotal:\s+(\d+) kB", result.stdout).group(1))
    assert total == 100 * 1024


# --- a terminal ---

class Terminal:
    """A person at a terminal who started `carrel run -it`."""

    def __init__(self, command):
        master, slave = pty.openpty()
        line = command_line(command, limits=LIMITS, options=("-i", "-t", "--env", "TERM=dumb", "--env", "PS1=ready> "))
        self.process = subprocess.Popen(line, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, cwd="/")
        os.close(slave)
        self.master, self.seen = master, ""

    def expect(self, text, seconds=60):
        end = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            assert ready, f"no {text!r} in {self.seen!r}"
            try:
                data = os.read(self.master, 4096)
            except OSError:
                data = b""
            assert data, f"the terminal closed without {text!r}: {self.seen!r}"
            self.seen += data.decode("utf-8", "replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text):
        os.write(self.master, text.encode())

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def shell():
    terminal = Terminal(["/bin/bash", "--norc", "--noprofile", "-i"])
    yield terminal
    terminal.close()


def test_job_control_works_on_a_terminal(shell):
    before = shell.expect("ready> ")
    assert "no job control" not in before and "cannot set terminal" not in before
    shell.type("sh -c 'echo begun; exec cat'\n")
    shell.expect("begun\r\n")
    shell.type("typed\n")
    shell.expect("typed\r\ntyped\r\n")
    shell.type("\x1a")                      # ^Z stops the job in front
    shell.expect("Stopped")
    shell.expect("ready> ")
    shell.type("fg\n")
    shell.expect("exec cat'\r\n")
    shell.type("again\n")
    shell.expect("again\r\nagain\r\n")
    shell.type("\x03")                      # ^C ends it
    shell.expect("ready> ")
    shell.type("sleep 100 & kill %1; wait %1; echo code $?\n")
    shell.expect("code 143")
    shell.type("exit 7\n")
    assert shell.process.wait(60) == 7


def test_interrupt_on_a_terminal_ends_the_command_not_the_shell(shell):
    shell.expect("ready> ")
    shell.type("sh -c 'echo begun; exec sleep 100'\n")
    shell.expect("begun\r\n")
    shell.type("\x03")
    shell.expect("ready> ")
    shell.type("echo alive $((1+1))\n")
    shell.expect("alive 2")
    shell.expect("ready> ")
    shell.type("\x04")
    assert shell.process.wait(60) == 0


def test_the_terminal_inside_has_a_name_and_a_size(shell):
    shell.expect("ready> ")
    shell.type("tty; stty size; test -t 0 && echo is terminal\n")
    shell.expect("/dev/pts/0")
    shell.expect("is terminal")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))


# --- sizes ---

def test_node_finds_the_limits_of_the_box():
    """As it does in a container: its heap follows the memory, so that the box is not killed for it."""
    result = run_box(["node", "-p", "process.constrainedMemory() + ' ' + (require('v8').getHeapStatistics().heap_size_limit <= 600 << 20)"],
                     limits=("--memory", "512M", "--pids", "64"))
    assert result.stdout.decode() == f"{512 << 20} true\n", result

"""Programs that people use, unmodified, in boxes of root and of an ordinary user, against real servers: `make egress-proof`. The last ones use the package
registries that this host is configured for."""

import dataclasses
import os
import shutil
import subprocess

import pytest
from backends import Backends, let_in
from outside import CARREL

from support.users import ORDINARY, make_user, user_command

NAME = "web.wild.test"


@pytest.fixture(scope="module")
def backends(world):
    made = Backends(world)
    yield made
    made.close()


@dataclasses.dataclass
class User:
    name: str
    carrel: str
    folder: object

    def run(self, namespace, options, *command, timeout=120):
        return namespace([*user_command(self.name), self.carrel, "run", *map(str, options), "--", *map(str, command)], timeout)


@pytest.fixture(scope="module", params=["root", ORDINARY])
def user(request, programs, tmp_path_factory):
    if request.param == "root":
        return User(None, os.path.abspath(CARREL), tmp_path_factory.mktemp("root"))
    shutil.copy(os.environ.get("CARREL_EGRESS", "build/carrel-egress"), programs / "carrel-egress")
    make_user(ORDINARY)
    folder = tmp_path_factory.mktemp("user")
    let_in(folder)
    return User(ORDINARY, programs / "carrel", folder)


@pytest.fixture
def box(world, backends, user):
    """A box that may reach the servers by name, and trusts their certificate as it would one of the host's."""
    def run(*command, options=(), timeout=120):
        def inside(line, limit):
            return world.host.run(*line, check=False, capture_output=True, text=True, cwd="/", timeout=limit)
        certificates = [f"--env={name}=/ca.pem" for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO")]
        return user.run(inside, ["--allow", NAME, "--allow", "[2001:db8:77::12]:443", *certificates,
                                 "--mount", f"{world.folder / 'certificate.pem'}:/ca.pem", *options], *command, timeout=timeout)
    return run


def test_curl_and_wget(box):
    for command in (["curl", "-sS", "--cacert", "/ca.pem"], ["wget", "-q", "-O", "-", "--ca-certificate=/ca.pem"]):
        for scheme in ("http", "https"):
            done = box(*command, f"{scheme}://{NAME}/hello.txt")
            assert done.stdout == "hello\n", done.stderr
    done = box("curl", "-sS", "-k", "https://[2001:db8:77::12]/hello.txt")
    assert done.stdout == "hello\n", done.stderr


def test_curl_falls_back_when_quic_does_not_leave(box):
    code = """
import socket, time
start = time.monotonic()
for family, to in ((socket.AF_INET, "198.18.1.1"), (socket.AF_INET, "203.0.113.12"), (socket.AF_INET6, "2001:db8:77::12")):
    s = socket.socket(family, socket.SOCK_DGRAM)
    try: s.connect((to, 443)); s.send(b"x"); print("sent")
    except OSError as error: print(error.errno)
print(time.monotonic() - start < 5)
"""
    assert box("python3", "-c", code).stdout.split() == ["1", "1", "1", "True"]
    ping = box("ping", "-c1", "-W5", "203.0.113.12")
    assert ping.returncode != 0


def test_git_clones_and_pushes_over_https(box):
    done = box("sh", "-ec", f"cd /tmp; git clone -q https://{NAME}/git/project.git; cd project; echo x >a; git add a; "
               "git commit -qm second; git push -q origin HEAD:refs/heads/box-$(cat /proc/sys/kernel/random/uuid); git ls-remote origin")
    assert done.returncode == 0 and "refs/heads/box-" in done.stdout, done.stderr


def test_psql_with_tls_and_redis(box):
    done = box("psql", f"host={NAME} user=box dbname=postgres sslmode=require", "-Atc", "select 6*7, ssl from pg_stat_ssl where pid=pg_backend_pid()")
    assert done.stdout == "42|t\n", done.stderr
    done = box("redis-cli", "-h", NAME, "set", "key", "value")
    assert done.stdout == "OK\n", done.stderr


def test_scripts_that_wait_for_a_port_are_told_the_truth(box):
    assert box("nc", "-z", "-w5", NAME, "5432").returncode == 0
    assert box("nc", "-z", "-w5", NAME, "5433").returncode == 1


PYTHON = """
import asyncio, aiohttp, requests, ssl, sys
print(requests.get(sys.argv[1]).text.strip())
async def main():
    async with aiohttp.ClientSession() as session, session.get(sys.argv[1], ssl=ssl.create_default_context(cafile="/ca.pem")) as answer:
        print((await answer.text()).strip())
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("libraries")
    subprocess.run(["/usr/bin/python3", "-m", "pip", "install", "-q", "--target", folder, "requests", "aiohttp"], check=True, timeout=300)
    let_in(folder)
    return folder


def test_requests_and_aiohttp(box, libraries):
    done = box("/usr/bin/python3", "-c", PYTHON, f"https://{NAME}/hello.txt", options=["--mount", f"{libraries}:/lib-py", "--env", "PYTHONPATH=/lib-py"])
    assert done.stdout.split() == ["hello", "hello"], done.stderr


def test_node_fetch(box):
    done = box("node", "-e", f"fetch('https://{NAME}/hello.txt').then(r => r.text()).then(t => console.log(t.trim()))")
    assert done.stdout == "hello\n", done.stderr
    refused = box("node", "-e", "fetch('https://other.test/').catch(e => console.log(e.cause.code))")
    assert refused.stdout == "ENOTFOUND\n", refused.stderr


GO = """
package main
import ("fmt"; "io"; "net/http"; "os")
func main() {
    r, err := http.Get(os.Args[1])
    if err != nil { fmt.Println(err); os.Exit(1) }
    b, _ := io.ReadAll(r.Body); fmt.Print(string(b))
}
"""


@pytest.fixture(scope="module")
def go_program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("go")
    (folder / "main.go").write_text(GO)
    subprocess.run(["go", "build", "-o", folder / "fetch", folder / "main.go"], check=True, timeout=300,
                   env={**os.environ, "CGO_ENABLED": "0", "GOCACHE": str(folder / "cache"), "GOFLAGS": "-mod=mod"}, cwd=folder)
    let_in(folder)
    return folder / "fetch"


def test_a_static_go_program_with_its_own_resolver(box, go_program):
    done = box("/fetch", f"https://{NAME}/hello.txt", options=["--mount", f"{go_program}:/fetch"])
    assert done.stdout == "hello\n", done.stdout + done.stderr
    assert "no such host" in box("/fetch", "https://other.test/", options=["--mount", f"{go_program}:/fetch"]).stdout


JAVA = """
import java.net.*; import java.net.http.*;
public class Fetch {
    public static void main(String[] a) throws Exception {
        System.out.print(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(a[0])).build(), HttpResponse.BodyHandlers.ofString()).body());
    }
}
"""


def test_a_java_program(box, tmp_path_factory):
    folder = tmp_path_factory.mktemp("java")
    (folder / "Fetch.java").write_text(JAVA)
    subprocess.run(["javac", "-d", folder, folder / "Fetch.java"], check=True, timeout=300)
    let_in(folder)
    done = box("java", "-cp", "/classes", "Fetch", f"http://{NAME}/hello.txt", options=["--mount", f"{folder}:/classes"])
    assert done.stdout == "hello\n", done.stderr


# ---- the registries of this host: their names are in its settings, not here ----


@pytest.fixture
def registry_box(user):
    def run(*command, options=(), timeout=400):
        def outside(line, limit):
            return subprocess.run(list(map(str, line)), capture_output=True, text=True, cwd="/", timeout=limit)
        return user.run(outside, ["--net", "public", *options], *command, timeout=timeout)
    return run


def test_pip_and_uv(registry_box):
    done = registry_box("sh", "-ec", "cd /tmp; /usr/bin/python3 -m pip download -q --no-deps six; ls *.whl")
    assert "six-" in done.stdout, done.stderr
    done = registry_box("sh", "-ec", "cd /tmp; /usr/bin/python3 -m pip install -q --target /tmp/uv uv; "
                        "PYTHONPATH=/tmp/uv /usr/bin/python3 -m uv pip install -q --python /usr/bin/python3 --target /tmp/t six; ls /tmp/t",
                        options=["--disk", "1G", "--env", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"])  # uv has a list of its own
    assert "six.py" in done.stdout, done.stderr


def test_npm(registry_box):
    done = registry_box("sh", "-ec", "cd /tmp; npm pack --silent is-odd")
    assert done.stdout.startswith("is-odd-"), done.stderr


APT = """mkdir -p /tmp/s/lists/partial /tmp/c/archives/partial; cd /tmp
apt-get -q -o Dir::State=/tmp/s -o Dir::State::status=/dev/null -o Dir::Cache=/tmp/c update
apt-get -q -o Dir::State=/tmp/s -o Dir::State::status=/dev/null -o Dir::Cache=/tmp/c download hello; ls *.deb"""


def test_apt_downloads_without_rights(registry_box):
    done = registry_box("sh", "-ec", APT, options=["--mount", "/etc/apt:/etc/apt"])
    assert "hello_" in done.stdout, done.stderr


def test_apt_installs_in_a_system_box_with_a_root_of_its_own(user, registry_box):
    if user.name:
        pytest.skip("the files of this host's root belong to no user of an ordinary user's box")
    done = registry_box("sh", "-ec", "apt-get -q update; apt-get -q install -y hello; /usr/bin/hello",
                        options=["--root", "/", "--profile", "system", "--writable-root", "--disk", "2G"])
    assert done.stdout.endswith("Hello, world!\n"), done.stderr

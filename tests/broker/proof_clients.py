"""Programs that people use, unmodified, with a key that their box does not hold, as root and as an ordinary user: `make broker-proof`."""

import os
import pathlib
import shutil
import subprocess

import pytest
from keys import HOST, VALUE, command, variables
from outside import CARREL
from test_server import Keyed

from support.users import ORDINARY, user_command


@pytest.fixture(params=["root", ORDINARY])
def box(request, upstream, shared_programs):
    user = None if request.param == "root" else request.param

    def run(*words, options=(), key=f"API_KEY@{HOST}", value=VALUE, memory="1G"):
        upstream.requests()
        options = [*options, *([] if user else ["--memory", memory])]
        done = upstream.world.host.run(*command(user, options, *words, key=key, carrel=shared_programs / "carrel" if user else None), check=False,
                                       capture_output=True, text=True, cwd="/", timeout=120, env=variables(value))  # fmt: skip
        assert VALUE not in done.stdout + done.stderr
        return done
    return run


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("libraries")
    subprocess.run(["/usr/bin/python3", "-m", "pip", "install", "-q", "--target", folder, "openai", "anthropic", "httpx", "requests", "aiohttp", "langgraph"],
                   check=True, timeout=600)  # fmt: skip
    for one in (folder, *folder.parents[:2]):
        one.chmod(0o755)
    return folder


def with_libraries(libraries):
    return ["--mount", f"{libraries}:/lib-py", "--env", "PYTHONPATH=/lib-py"]


OPENAI = """
import openai
client = openai.OpenAI(base_url="https://api.keys.test/v1")
ask = dict(model="m", messages=[{"role": "user", "content": "hi"}])
print(client.chat.completions.create(**ask).choices[0].message.content)
print("".join(part.choices[0].delta.content for part in client.chat.completions.create(stream=True, **ask)))
import asyncio
async def main():
    print((await openai.AsyncOpenAI(base_url="https://api.keys.test/v1").chat.completions.create(**ask)).choices[0].message.content)
asyncio.run(main())
"""


def test_the_openai_package(box, upstream, libraries):
    done = box("/usr/bin/python3", "-c", OPENAI, options=with_libraries(libraries), key="OPENAI_API_KEY@api.keys.test", value={"OPENAI_API_KEY": VALUE})
    assert done.stdout.split() == ["hello"] * 3, done.stderr
    assert all(f"authorization: bearer {VALUE}" in head.lower() for head in upstream.heads())


ANTHROPIC = """
import anthropic
client = anthropic.Anthropic(base_url="https://api.keys.test")
ask = dict(model="m", max_tokens=10, messages=[{"role": "user", "content": "hi"}])
print(client.messages.create(**ask).content[0].text)
with client.messages.stream(**ask) as stream:
    print("".join(stream.text_stream))
"""


def test_the_anthropic_package(box, upstream, libraries):
    done = box("/usr/bin/python3", "-c", ANTHROPIC, options=with_libraries(libraries), value={"ANTHROPIC_API_KEY": VALUE},
               key=["ANTHROPIC_API_KEY@api.keys.test:x-api-key: {}", "ANTHROPIC_API_KEY@api.keys.test"])  # fmt: skip
    assert done.stdout.split() == ["hello"] * 2, done.stderr
    heads = upstream.heads()
    assert all(VALUE in head for head in heads), "\n".join(heads)


def test_a_wrong_header_is_an_error_that_the_package_shows(box, libraries):
    code = ANTHROPIC.replace('base_url="https://api.keys.test"', 'base_url="https://api.keys.test", default_headers={"Authorization": "Basic " + __import__("os").environ["ANTHROPIC_API_KEY"]}')
    done = box("/usr/bin/python3", "-c", code, options=with_libraries(libraries), key="ANTHROPIC_API_KEY@api.keys.test", value={"ANTHROPIC_API_KEY": VALUE})
    assert "in another form than 'Authorization: Bearer {}'" in done.stderr, done.stderr


CLIENTS = """
import asyncio, os, urllib.request
import aiohttp, httpx, requests
url, fields = "https://api.keys.test/hello", {"Authorization": "Bearer " + os.environ["API_KEY"]}
print(requests.get(url, headers=fields).text.strip())
print(httpx.get(url, headers=fields).text.strip())
print(urllib.request.urlopen(urllib.request.Request(url, headers=fields)).read().decode().strip())
async def main():
    async with aiohttp.ClientSession() as session, session.get(url, headers=fields) as answer: print((await answer.text()).strip())
asyncio.run(main())
"""


def test_requests_httpx_urllib_and_aiohttp(box, upstream, libraries):
    done = box("/usr/bin/python3", "-c", CLIENTS, options=with_libraries(libraries))
    assert done.stdout.split() == ["hello"] * 4, done.stderr
    assert sum(VALUE in head for head in upstream.heads()) == 4


def test_curl_and_wget(box, upstream):
    script = 'for c in "curl -sS -H" "wget -qO- --header"; do $c "Authorization: Bearer $API_KEY" https://api.keys.test/hello; done'
    assert box("sh", "-c", script).stdout == "hello\nhello\n"
    assert sum(VALUE in head for head in upstream.heads()) == 2


def test_node(box, upstream):
    code = """
const fields = { Authorization: `Bearer ${process.env.API_KEY}` };
fetch('https://api.keys.test/hello', { headers: fields }).then(r => r.text()).then(t => { process.stdout.write(t);
  require('https').get('https://api.keys.test/hello', { headers: fields }, r => r.pipe(process.stdout)); });
"""
    done = box("node", "-e", code)
    assert done.stdout == "hello\nhello\n", done.stderr
    assert sum(VALUE in head for head in upstream.heads()) == 2


def test_git_with_a_header(box, upstream):
    script = 'git -c http.extraHeader="Authorization: Bearer $API_KEY" ls-remote https://api.keys.test/hello'
    done = box("sh", "-c", script)
    assert any(VALUE in head and "GET /hello/info/refs" in head for head in upstream.heads()), done.stderr
    assert "SSL" not in done.stderr and "certificate" not in done.stderr


def test_a_coding_assistant_in_boxed(upstream, tmp_path):
    """What stands for the assistant sends the request that it would send: its address is the provider's own."""
    boxed = pathlib.Path(__file__).parents[2] / "examples" / "coding-cli" / "boxed"
    subprocess.run(["git", "init", "-q", tmp_path / "project"], check=True)
    script = 'echo done >result; exec curl -sS -H "x-api-key: $ANTHROPIC_API_KEY" -H "Content-Type: application/json" -d "{}" https://api.keys.test/v1/messages'
    upstream.requests()
    done = upstream.world.host.run("/usr/bin/python3", boxed, "--project", tmp_path / "project", "--carrel", os.path.abspath(CARREL),
                                   "--option=--key=ANTHROPIC_API_KEY@api.keys.test:x-api-key: {}", "--", "sh", "-c", script,
                                   env=variables({"ANTHROPIC_API_KEY": VALUE}), stdin=subprocess.DEVNULL, check=False, capture_output=True, text=True)  # fmt: skip
    assert '"text": "hello"' in done.stdout and VALUE in upstream.heads()[0], done.stderr
    assert (tmp_path / "project" / "result").read_text() == "done\n"


GO = """
package main
import ("fmt"; "io"; "net/http"; "os")
func main() {
    q, _ := http.NewRequest("GET", "https://api.keys.test/hello", nil); q.Header.Set("Authorization", "Bearer " + os.Getenv("API_KEY"))
    r, err := http.DefaultClient.Do(q)
    if err != nil { fmt.Println(err); os.Exit(1) }
    b, _ := io.ReadAll(r.Body); fmt.Print(string(b))
}
"""


def test_go(box, upstream, tmp_path_factory):
    go = shutil.which("go") or "/usr/local/go/bin/go"
    folder = tmp_path_factory.mktemp("go")
    (folder / "main.go").write_text(GO)
    subprocess.run([go, "build", "-o", folder / "fetch", folder / "main.go"], check=True, timeout=300, cwd=folder,
                   env={**os.environ, "CGO_ENABLED": "0", "GOCACHE": str(folder / "cache"), "GOFLAGS": "-mod=mod"})  # fmt: skip
    for one in (folder, *folder.parents[:2]):
        one.chmod(0o755)
    done = box("/fetch", options=["--mount", f"{folder}/fetch:/fetch"])
    assert done.stdout == "hello\n", done.stdout + done.stderr
    assert VALUE in upstream.heads()[0]


JAVA = """
import java.net.*; import java.net.http.*;
public class Fetch {
    public static void main(String[] a) throws Exception {
        HttpRequest q = HttpRequest.newBuilder(URI.create("https://api.keys.test/hello")).header("Authorization", "Bearer " + System.getenv("API_KEY")).build();
        System.out.print(HttpClient.newHttpClient().send(q, HttpResponse.BodyHandlers.ofString()).body());
    }
}
"""


def test_java(box, upstream, tmp_path_factory):
    folder = tmp_path_factory.mktemp("java")
    (folder / "Fetch.java").write_text(JAVA)
    subprocess.run(["javac", "-d", folder, folder / "Fetch.java"], check=True, timeout=300)
    for one in (folder, *folder.parents[:2]):
        one.chmod(0o755)
    done = box("java", "-cp", "/classes", "Fetch", options=["--mount", f"{folder}:/classes"], memory="2G")
    assert done.stdout == "hello\n", done.stderr
    assert VALUE in upstream.heads()[0]


def test_the_coding_agent_with_a_hosted_model(box, upstream, libraries, tmp_path_factory):
    """As examples/coding-agent/README.md says: the whole agent in a box, its key outside."""
    agent = tmp_path_factory.mktemp("agent")
    shutil.copytree(pathlib.Path(__file__).parents[2] / "examples/coding-agent", agent / "coding-agent")
    for one in (agent, *agent.parents[:2]):
        one.chmod(0o755)
    options = [*with_libraries(libraries), "--mount", f"{agent}/coding-agent:/agent", "--env", "OPENAI_MODEL=coder", "--env", f"OPENAI_BASE_URL=https://{HOST}/v1",
               "--env", "CODING_AGENT_RUNNER=subprocess"]  # fmt: skip
    script = "echo print a number | /usr/bin/python3 -B /agent/coding_agent.py"
    done = box("sh", "-c", script, options=options, key=f"OPENAI_API_KEY@{HOST}", value={"OPENAI_API_KEY": VALUE})
    assert "=== done ===" in done.stdout and "--- output\n42\n" in done.stdout, done.stdout + done.stderr
    assert all(f"authorization: bearer {VALUE}" in head.lower() for head in upstream.heads())


@pytest.mark.parametrize("user", [None, ORDINARY])
def test_official_packages_in_boxes_of_a_server(upstream, libraries, user):
    server = Keyed(user=user, enter=upstream.world.host.enter)

    def carrel(*words, data=None):
        """In the server's mount namespace, where the libraries are."""
        return upstream.world.host.run(*user_command(user), "env", f"CARREL_URL={server.url}", server.place / "carrel", *words, check=False, capture_output=True,
                                       text=True, input=data)  # fmt: skip
    try:
        assert carrel("secret", "create", "api", data=VALUE).returncode == 0
        made = carrel("create", "--mount", f"{libraries}:/lib-py", "--env", "PYTHONPATH=/lib-py", *([] if user else ["--memory", "1G"]),
                             *(f"--key={one}" for one in (f"OPENAI_API_KEY=api@{HOST}", f"ANTHROPIC_API_KEY=api@{HOST}:x-api-key: {{}}",
                                                          f"ANTHROPIC_API_KEY=api@{HOST}", f"API_KEY=api@{HOST}")))  # fmt: skip
        assert made.returncode == 0, made.stderr
        upstream.requests()
        for code, times in ((OPENAI, 3), (ANTHROPIC, 2), (CLIENTS, 4)):
            done = carrel("exec", made.stdout.strip(), "--", "/usr/bin/python3", "-c", code)
            assert done.stdout.split() == ["hello"] * times, done.stderr
        assert all(VALUE in head for head in upstream.heads())
    finally:
        server.stop()

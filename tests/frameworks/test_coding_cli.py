"""examples/coding-cli: a coding assistant of the command line in a box, here a script that does what a bad one would
try."""
import http.server
import json
import os
import pathlib
import subprocess
import sys
import threading

import pytest
from walls import Secret

from carrel.local import find_binary

BOXED = pathlib.Path(os.environ.get("CARREL_EXAMPLES", "")).parent / "coding-cli/boxed"
ASSISTANT = """
echo changed >file.txt
git -c safe.directory='*' -c user.name=a -c user.email=a@a commit -qam 'by the assistant' && echo committed
echo evil >.git/hooks/pre-commit || echo no hook
git -c safe.directory='*' config core.fsmonitor evil || echo no config
mv .git other && echo moved || echo not moved
rm -rf .git/hooks && echo removed || echo not removed
echo evil >>~/.bashrc || echo no rc
ls -A ~
cat %s
"""


@pytest.fixture
def project(tmp_path):
    place = tmp_path / "project"
    place.mkdir()
    place.chmod(0o755)
    (place / "file.txt").write_text("first\n")
    for words in (["init", "-q"], ["add",
                                   "-A"], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=place, check=True)
    return place


def boxed(project, *words, **environment):
    return subprocess.run([sys.executable, "-B", BOXED, "--project", project, *words], capture_output=True, text=True,
                          timeout=120, stdin=subprocess.DEVNULL,
                          env={**os.environ, "CARREL_BIN": find_binary(), **environment})


def test_an_assistant_may_change_the_project_and_nothing_that_runs_by_itself(project):
    git = project / ".git"
    hooks = {path.name: path.read_text() for path in (git / "hooks").iterdir()}
    config = (git / "config").read_text()
    with Secret() as secret:
        done = boxed(project, "--", "sh", "-c", ASSISTANT % secret.path)
        assert secret.text not in done.stdout and secret.path.name not in done.stdout
    assert (project / "file.txt").read_text() == "changed\n" and "committed" in done.stdout, done
    for refused in ("no hook", "no config", "not moved", "not removed"):
        assert refused in done.stdout, done
    assert {path.name: path.read_text()
            for path in (git / "hooks").iterdir()} == hooks and (git / "config").read_text() == config
    assert subprocess.run(["git", "-C", project, "-c", "safe.directory=*", "log", "--oneline"], capture_output=True,
                          text=True).stdout.count("\n") == 2


def test_it_reaches_one_address_and_the_key_stays_outside(project):
    seen = []

    class Model(http.server.BaseHTTPRequestHandler):
        def log_message(self, *words):
            pass

        def do_POST(self):
            seen.append((self.path, self.headers["x-api-key"],
                         json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"from the model")

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    asking = """import os, urllib.request as u
print(u.urlopen(u.Request(os.environ["BASE"] + "/messages", b'{"a": 1}')).read().decode(), os.environ)
try: u.urlopen("http://192.0.2.1", timeout=5)
except Exception as e: print("nowhere else", e)
"""
    try:
        done = boxed(project, "--upstream", f"http://127.0.0.1:{server.server_address[1]}/v1", "--key", "THE_KEY",
                     "--key-header", "x-api-key", "--base-url", "BASE", "--", "python3", "-c", asking,
                     THE_KEY="secret-key")
    finally:
        server.shutdown()
        server.server_close()
    assert "from the model" in done.stdout and "nowhere else" in done.stdout and "secret-key" not in done.stdout, done
    assert seen == [("/v1/messages", "secret-key", {"a": 1})]


def test_a_whole_home_is_no_project():
    done = boxed(pathlib.Path.home(), "--", "true")
    assert done.returncode != 0 and "too much for a project" in done.stderr

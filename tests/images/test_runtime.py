"""carrel-runtime: agent-sandbox's protocols for commands and files, by hand, and what a client may send wrongly."""

import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from support.ports import free_port
from support.waiting import wait_for

PROGRAM = pathlib.Path(__file__).resolve().parent.parent.parent / "packaging/images/carrel-runtime"


class Runtime:
    def __init__(self, root, **environment):
        self.root, self.port = root, free_port()
        self.process = subprocess.Popen(
            [sys.executable, "-B", PROGRAM, "--host", "127.0.0.1", "--port", str(self.port), "--rest-port", "0"],
            env={**os.environ, "SANDBOX_BASE_DIR": str(root), **environment},
            stdout=subprocess.DEVNULL,
        )
        wait_for(self.answers, "it answers")

    def answers(self):
        try:
            return self.ask("GET", "/")[0] == 200
        except OSError:
            return False

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        is_json = data and answer.headers.get("Content-Type") == "application/json"
        return answer.status, json.loads(data) if is_json else data

    def run(self, command):
        status, result = self.ask("POST", "/execute", json.dumps({"command": command}))
        assert status == 200
        return result

    def upload(self, name, data):
        body = (
            f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
            + data
            + b"\r\n--x--\r\n"
        )
        return self.ask("POST", "/upload", body, Content_Type="multipart/form-data; boundary=x")


@pytest.fixture
def runtime(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    one = Runtime(root, SANDBOX_EXEC_TIMEOUT_SECONDS="1", SANDBOX_ID="7", SANDBOX_API_TOKEN="secret")
    yield one
    one.process.send_signal(signal.SIGTERM)
    one.process.wait(10)


def test_a_command_runs_without_a_shell(runtime):
    assert runtime.run("echo 'a b' $HOME") == {"stdout": "a b $HOME\n", "stderr": "", "exit_code": 0}
    assert runtime.run("sh -c 'pwd; echo bad >&2; exit 3'") == {
        "stdout": f"{runtime.root}\n",
        "stderr": "bad\n",
        "exit_code": 3,
    }
    assert runtime.run("sh -c 'kill -9 $$'")["exit_code"] == -9
    assert (
        runtime.run("no-such-program")["exit_code"] == 1
        and "Failed to execute command" in runtime.run("no-such-program")["stderr"]
    )
    assert "Failed to execute command" in runtime.run("'")["stderr"] and runtime.run("")["exit_code"] == 1


def test_a_command_that_takes_too_long_ends_with_all_that_it_started(runtime):
    began = time.monotonic()
    result = runtime.run("sh -c 'sleep 1000 & echo $! >pid; wait'")
    assert result["exit_code"] == 1 and "timed out" in result["stderr"] and time.monotonic() - began < 10
    pid = int((runtime.root / "pid").read_text())
    wait_for(
        lambda: not os.path.exists(f"/proc/{pid}") or "State:\tZ" in open(f"/proc/{pid}/status").read(),
        "its child is gone",
    )


def test_files_go_there_and_back(runtime):
    data = os.urandom(300_000) + b"\r\n--x-almost\r\n"
    assert runtime.upload("d/e.bin", data) == (200, {"message": "File 'd/e.bin' uploaded successfully."})
    assert runtime.ask("GET", "/download/d%2Fe.bin")[1] == data
    assert runtime.ask("GET", "/exists/d") == (200, {"path": "d", "exists": True})
    assert [(e["name"], e["size"], e["type"]) for e in runtime.ask("GET", "/list/d")[1]] == [
        ("e.bin", len(data), "file")
    ]
    assert runtime.ask("GET", "/download/none") == (404, {"message": "File not found"})
    assert runtime.ask("GET", "/list/none")[0] == 404


@pytest.mark.parametrize("path", ["..%2F..%2Fetc%2Fpasswd", "%2F..%2Fetc%2Fpasswd", "link%2Fpasswd"])
def test_no_path_leads_out_of_the_root_folder(runtime, path):
    (runtime.root / "link").symlink_to("/etc")
    for door in ("download", "list", "exists"):
        assert runtime.ask("GET", f"/{door}/{path}") == (403, {"message": "Access denied"})
    assert runtime.ask("GET", f"/v1/files/{path}")[0] == 403
    assert (
        runtime.upload("../out", b"x") == (403, {"message": "Access denied"})
        and not (runtime.root.parent / "out").exists()
    )
    assert "link" not in [e["name"] for e in runtime.ask("GET", "/list/.")[1]]


def test_sandboxd_s_files(runtime):
    assert runtime.ask("PUT", "/v1/files/a/b?mode=0600", b"text")[0] == 204
    assert (runtime.root / "a/b").stat().st_mode & 0o777 == 0o600
    assert runtime.ask("GET", "/v1/files/a/b", Range="bytes=1-2") == (206, b"ex")
    status, listing = runtime.ask("GET", "/v1/files/a")
    assert status == 200 and listing["path"] == "/a" and listing["entries"][0]["mode"] == "0600"
    assert runtime.ask("HEAD", "/v1/files/a/b")[0] == 200 and runtime.ask("HEAD", "/v1/files/none")[0] == 404
    assert (
        runtime.ask("PUT", "/v1/files/a", b"x")[0] == 400 and runtime.ask("PUT", "/v1/files/c?mode=9", b"x")[0] == 400
    )
    assert runtime.ask("DELETE", "/v1/files/a")[0] == 409 and runtime.ask("DELETE", "/v1/files/")[0] == 403
    assert (
        runtime.ask("DELETE", "/v1/files/a?recursive=true")[0] == 204 and runtime.ask("DELETE", "/v1/files/a")[0] == 404
    )
    assert runtime.ask("GET", "/v1/health")[1]["status"] == "ok"
    assert runtime.ask("GET", "/v1/metadata")[1]["env"] == {
        "SANDBOX_ID": "7",
        "SANDBOX_BASE_DIR": str(runtime.root),
        "SANDBOX_EXEC_TIMEOUT_SECONDS": "1",
    }


@pytest.mark.parametrize(
    "body, kind",
    [
        (
            b'--x\r\nContent-Disposition: form-data; name="other"\r\n\r\nd\r\n--x--\r\n',
            "multipart/form-data; boundary=x",
        ),
        (b"", "multipart/form-data; boundary=x"),
        (b"x", "multipart/form-data"),
        (b"--x\r\n", "multipart/form-data; boundary=x"),
        (
            b'--x\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nhalf',
            "multipart/form-data; boundary=x",
        ),
    ],
)
def test_a_wrong_upload_is_told_and_leaves_nothing(runtime, body, kind):
    status, told = runtime.ask("POST", "/upload", body, Content_Type=kind)
    assert status == 400 and told["message"]
    assert list(runtime.root.iterdir()) == [] and runtime.answers()


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"command": 1}', b"\xff"])
def test_a_wrong_request_is_told(runtime, body):
    assert runtime.ask("POST", "/execute", body)[0] == 422
    assert runtime.ask("POST", "/nothing")[0] == 404 and runtime.ask("DELETE", "/execute")[0] == 404

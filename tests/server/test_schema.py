"""schemathesis: tries everything that the description allows and forbids; no answer is a failure of the server, and every answer is described."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from traces import Server, amount, make_box

# Streams never end, upgrades are no answers, a gateway's 502 is none of the server's failures, and there is no tar among what is generated.
LEFT_OUT = ["/v1/events", "/v1/boxes/{id}/events", "/v1/boxes/{id}/exec/ws", "/v1/boxes/{id}/exec/{xid}/attach", "/v1/boxes/{id}/tunnel/{port}",
            "/v1/boxes/{id}/ports/{port}/{rest}", "/v1/boxes/{id}/archive"]
SETTINGS = """
[parameters]
"path.id" = "box-0"
"path.xid" = "%s"

[[operations]]
include-name = "DELETE /v1/boxes/{id}"
parameters = { "path.id" = "box-1" }
"""


def test_every_answer_is_described(tmp_path):
    program = shutil.which("schemathesis", path=str(pathlib.Path(sys.executable).parent)) or shutil.which("schemathesis")
    if not program:
        pytest.skip("schemathesis is not installed")
    s = Server("--set", "limits.memory=8G", "--set", "quota.boxes=12", "--set", "defaults.memory=64M", "--set", "defaults.disk=32M")
    try:
        client = s.token("schema", scopes=["boxes:read", "boxes:write", "exec", "files", "ports"])
        for i in range(2):
            make_box(client, name=f"box-{i}")
        x = client.post("/v1/boxes/box-0/exec", {"shell": "echo out; sleep 1000", "background": True}).json["id"]
        (tmp_path / "schemathesis.toml").write_text(SETTINGS % x)
        done = subprocess.run(
            [program, "run", "http://127.0.0.1:%d/openapi.json" % s.port, "--header", "Authorization: Bearer " + client.token,
             "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
             "--max-examples", str(amount(4, 100)), "--phases", amount("fuzzing", "examples,coverage,fuzzing"), "--workers", "1", "--request-timeout", "20",
             "--suppress-health-check", "all", "--warnings", "off", "--continue-on-failure", "--no-color", *[a for p in LEFT_OUT for a in ("--exclude-path", p)]],
            cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=amount(150, 3000), env={**os.environ, "HOME": str(tmp_path)})
        said = done.stdout + done.stderr
        assert done.returncode == 0, said[-30000:]
        assert s.admin.get("/readyz").status == 200
    finally:
        s.stop()

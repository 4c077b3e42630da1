"""schemathesis: whatever the description allows and forbids is tried; no answer is a failure of the server, and every answer is one that is described."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from support import Server, amount, make_box

# Streams never end, upgrades are no answers, and tokens must not be revoked under the feet of the test.
LEFT_OUT = [("GET", "/v1/events"), ("GET", "/v1/boxes/{id}/events"), ("GET", "/v1/boxes/{id}/exec/ws"), ("GET", "/v1/boxes/{id}/exec/{xid}/attach"),
            ("POST", "/v1/boxes/{id}/tunnel/{port}")]


def test_every_answer_is_described(tmp_path):
    program = shutil.which("schemathesis", path=str(pathlib.Path(sys.executable).parent)) or shutil.which("schemathesis")
    if not program:
        pytest.skip("schemathesis is not installed")
    s = Server("--set", "limits.memory=8G", "--set", "quota.boxes=12", "--set", "defaults.memory=64M", "--set", "defaults.disk=32M")
    try:
        client = s.token("schema", scopes=["boxes:read", "boxes:write", "exec", "files", "ports"])
        for i in range(2):
            make_box(client, name=f"box-{i}")
        (tmp_path / "schemathesis.toml").write_text("")
        done = subprocess.run(
            [program, "run", "http://127.0.0.1:%d/openapi.json" % s.port, "--header", "Authorization: Bearer " + client.token,
             "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
             "--max-examples", str(amount(6, 100)), "--phases", "examples,coverage,fuzzing", "--workers", "4", "--request-timeout", "20",
             "--suppress-health-check", "all", "--continue-on-failure", "--no-color", *[a for _, p in LEFT_OUT for a in ("--exclude-path", p)]],
            cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=amount(150, 3000), env={**os.environ, "HOME": str(tmp_path)})
        said = done.stdout + done.stderr
        assert done.returncode == 0, said[-30000:]
        assert s.admin.get("/readyz").status == 200
    finally:
        s.stop()

"""The commands of docs/operating.md for a backup: what they copy is all that a server needs."""
import os
import shutil
import subprocess

import pytest

from support import BUILD
from support.server import Server
from support.users import ORDINARY

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not os.access("/dev/loop-control", os.R_OK), reason="needs root and loop devices")


def in_box(server, box, command):
    done = subprocess.run([BUILD / "carrel", "exec", "--url", server.url, box, "--", "sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def tar(*words):
    subprocess.run(["tar", "--numeric-owner", *map(str, words)], check=True, timeout=120)


@pytest.mark.parametrize("user, disk", [(None, {"store": "disk", "limits": {"disk": "64M"}}), (ORDINARY, {})], ids=["root", "user"])
def test_a_backup_has_volumes_secrets_and_boxes_on_disk(tmp_path, user, disk):
    server = Server(user=user)
    try:
        admin, state = server.admin, server.state
        assert admin.put("/v1/secrets/hf", body=b"value").status in (200, 201)
        assert admin.post("/v1/volumes", {"name": "data", "size": "64M"}).status == 201
        box = admin.post("/v1/boxes", {"volumes": [{"name": "data", "path": "/data"}], **disk}).json["id"]
        in_box(server, box, "umask 077; echo 42 >/data/answer; echo 43 >~/kept")
        server.process.terminate()
        server.process.wait(60)
        tar("--sparse", "-C", state.parent, "-czf", tmp_path / "carrel.tgz", state.name)
        shutil.move(state, tmp_path / "damaged")
        tar("-C", state.parent, "-xzpf", tmp_path / "carrel.tgz")
        server.start()
        if disk:
            assert admin.post(f"/v1/boxes/{box}/start").status == 200
            assert in_box(server, box, "cat ~/kept") == "43\n"
        assert admin.delete(f"/v1/boxes/{box}").status in (200, 204)
        again = admin.post("/v1/boxes", {"volumes": [{"name": "data", "path": "/data"}], "secrets": [{"name": "hf", "file": "/run/secrets/hf"}]}).json["id"]
        assert in_box(server, again, "cat /data/answer /run/secrets/hf") == "42\nvalue"
    finally:
        server.stop()

"""A server whose keeper is not there yet: health checks report it, and all other requests wait."""
import os
import subprocess
import threading
import time

import pytest

from support import BUILD, USER
from support.client import Client
from support.server import Server
from support.users import as_user
from support.waiting import wait_for


@pytest.fixture
def early():
    """A server whose keeper the test itself manages, and a function that starts it."""
    if os.geteuid() != 0:
        pytest.skip("the server of these tests runs as root")
    running = []
    path = f"/tmp/carrel-early-{os.getpid()}.sock"
    s = Server("--keeper", path, ready=False)

    def start(*options):
        uid = 0 if USER else os.stat(f"/proc/{s.front_pid()}").st_uid
        running.append(subprocess.Popen([BUILD / "carrel", "keeper", "--listen", path, "--front-uid", str(uid), *options], **as_user(USER)))
        return running[-1]

    try:
        wait_for(lambda: answers(s), s.log_text)
        yield s, start
    finally:
        s.stop()
        for it in running:
            it.terminate()
            it.wait(60)


def answers(s):
    try:
        return Client(s.socket).get("/openapi.json").status == 200
    except OSError:
        return False


def in_background(call):
    result = []
    t = threading.Thread(target=lambda: result.append(call()))
    t.start()
    return t, result


def test_a_server_is_healthy_when_boxes_can_be_made(early):
    s, start = early
    me = Client(s.socket)
    assert [me.get(p).status for p in ("/healthz", "/readyz", "/v1/info")] == [503, 503, 200]
    assert not me.get("/v1/info").json["ready"]
    asked = [in_background(lambda: me.post("/v1/boxes", {})), in_background(lambda: me.get("/v1/boxes")), in_background(lambda: me.get("/api/kernels"))]
    gone = me.raw_socket()      # a request that does not wait
    gone.sendall(b"GET /v1/boxes HTTP/1.1\r\nHost: localhost\r\n\r\n")
    gone.close()
    assert not any(done for _, done in asked)
    keeper = start()
    for t, done in asked:
        t.join(60)
        assert done and done[0].status in (200, 201), [d.body for d in done]
    assert [me.get(p).status for p in ("/healthz", "/readyz")] == [200, 200]
    # The next one is waited for as well.
    keeper.kill()
    keeper.wait()
    wait_for(lambda: me.get("/readyz").status == 503)
    assert me.get("/healthz").status == 200
    t, done = in_background(lambda: me.post("/v1/boxes", {}))
    start()
    t.join(60)
    assert done[0].status == 201, done[0].body


def test_a_keeper_that_does_not_come_is_not_waited_for_for_ever(early):
    s, _ = early
    begun = time.monotonic()
    answer = Client(s.socket).post("/v1/boxes", {})
    assert (answer.status, answer.code) == (503, "unavailable") and time.monotonic() - begun < 50
    assert answer.headers["Retry-After"]


def test_nobody_waits_for_ever_for_the_files_of_a_box_to_go(early):
    s, start = early
    if USER:
        pytest.skip("boxes on disk are root's")
    me = Client(s.socket)
    keeper = start("--stores", str(s.folder / "stores"))
    box = me.post("/v1/boxes", {"store": "disk", "limits": {"disk": "16M"}}).json["id"]
    assert me.post(f"/v1/boxes/{box}/stop", {}).status == 200
    keeper.kill()
    keeper.wait()
    assert wait_for(lambda: me.get("/readyz").status == 503)
    begun = time.monotonic()
    answer = me.delete(f"/v1/boxes/{box}")
    assert (answer.status, answer.code) == (503, "unavailable") and time.monotonic() - begun < 50
    start("--stores", str(s.folder / "stores"))
    assert wait_for(lambda: me.get("/readyz").status == 200)
    assert me.get(f"/v1/boxes/{box}").json["phase"] == "stopped"
    assert me.delete(f"/v1/boxes/{box}").status == 204

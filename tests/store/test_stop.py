"""Stop and start through the server: what a caller sees, and what survives the death of front and keeper."""
import os
import pathlib
import time

import pytest

from support.server import Server as Plain
from support.waiting import wait_for

MB = 1 << 20

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not os.access("/dev/loop-control", os.R_OK), reason="needs root and loop devices")


class Server(Plain):
    def __init__(self):
        super().__init__("--set", "limits.disk=100000G", "--set", "host.memory=2G", folder="/var/tmp")
        self.stores = self.state / "stores"

    def ask(self, method, path, body=None):
        return self.request(method, path, body)

    def must(self, method, path, body=None):
        status, answer = self.ask(method, path, body)
        assert status < 300, (status, answer, (self.folder / "log").read_text()[-2000:])
        return answer

    def create(self, **more):
        more.setdefault("limits", {"memory": 64 * MB, "disk": 64 * MB})
        return self.must("POST", "/v1/boxes", {"store": "disk", **more})["id"]

    def box(self, box):
        return self.must("GET", f"/v1/boxes/{box}")

    def sh(self, box, script):
        answer = self.must("POST", f"/v1/boxes/{box}/exec", {"argv": ["sh", "-c", script]})
        assert answer["exit_code"] == 0, answer
        return answer["stdout"]

    def images(self):
        return sorted(p.name for p in self.stores.iterdir() if p.name != "volumes")

    def losses(self):
        return (self.folder / "log").read_text().count("the keeper is gone")

    def kill(self, name):
        before = self.losses()
        super().kill(name)
        # A child that was being born holds the link open for a moment; until then the front knows of nothing.
        wait_for(lambda: name != "keeper" or self.losses() > before)
        wait_for(self.is_ready)

    def end(self):
        """It ends, and what it keeps stays."""
        self.process.terminate()
        assert self.process.wait(60) == 0

    def remove(self):
        self.end()
        wait_for(lambda: not loops(self.folder))
        self.stop()


def loops(folder):
    found = []
    for p in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            text = p.read_text()
        except OSError:
            continue
        if str(folder) in text:
            found.append(text.strip())
    return found


@pytest.fixture(scope="module")
def server():
    s = Server()
    yield s
    for b in s.must("GET", "/v1/boxes")["boxes"]:
        s.ask("DELETE", f"/v1/boxes/{b['id']}")
    assert s.images() == []
    s.remove()


def test_files_survive_stop_and_start(server):
    box = server.create(name="keeps")
    assert server.box(box)["store"] == "disk"
    server.sh(box, "echo hello >~/f; echo t >/tmp/t")
    running = server.must("POST", f"/v1/boxes/{box}/exec", {"argv": ["sleep", "1000"], "background": True})["id"]
    wait_for(lambda: server.must("GET", f"/v1/boxes/{box}/exec/{running}")["state"] == "running")
    stopped = server.must("POST", f"/v1/boxes/{box}/stop")
    assert (stopped["phase"], stopped["reason"]) == ("stopped", "asked")
    ended = server.must("GET", f"/v1/boxes/{box}/exec/{running}")
    assert (ended["state"], ended["outcome"], ended["reason"]) == ("ended", "killed", "stopped")
    wait_for(lambda: not loops(server.folder))      # a device scanner may still have it open
    assert server.ask("POST", f"/v1/boxes/{box}/exec", {"argv": ["true"]})[0] == 409
    assert server.ask("POST", f"/v1/boxes/{box}/pause")[0] == 409
    assert server.ask("POST", "/v1/boxes", {"name": "keeps"})[0] == 409
    assert server.must("POST", f"/v1/boxes/{box}/stop")["phase"] == "stopped"
    assert server.must("POST", f"/v1/boxes/{box}/start")["phase"] == "running"
    assert server.sh(box, "cat ~/f /tmp/t; stat -c %u ~/f") == "hello\nt\n1000\n"
    phases = [e["body"]["to"] for e in server.must("GET", f"/v1/boxes/{box}/events")["events"] if e["type"] == "phase"]
    assert phases == ["running", "stopping", "stopped", "starting", "running"]
    assert len(server.images()) == 1
    server.must("DELETE", f"/v1/boxes/{box}")
    assert server.images() == []


def test_a_paused_box_can_be_stopped_and_a_stopped_one_deleted(server):
    box = server.create()
    server.must("POST", f"/v1/boxes/{box}/pause")
    assert server.must("POST", f"/v1/boxes/{box}/stop")["phase"] == "stopped"
    assert len(server.images()) == 1
    server.must("DELETE", f"/v1/boxes/{box}")
    assert server.box(box)["phase"] == "deleted"
    assert server.images() == []


def test_disk_may_be_larger_than_memory_only_on_disk(server):
    box = server.create(limits={"memory": 64 * MB, "disk": 256 * MB})
    assert int(server.sh(box, "head -c 200M /dev/zero >/tmp/x; stat -c %s /tmp/x")) == 200 * MB
    server.must("DELETE", f"/v1/boxes/{box}")
    status, answer = server.ask("POST", "/v1/boxes", {"limits": {"memory": 64 * MB, "disk": 256 * MB}})
    assert status == 400 and "store" in answer["error"]["message"]


def test_a_box_in_memory_cannot_be_stopped(server):
    box = server.must("POST", "/v1/boxes", {})["id"]
    status, answer = server.ask("POST", f"/v1/boxes/{box}/stop")
    assert status == 400 and "memory" in answer["error"]["message"]
    server.must("DELETE", f"/v1/boxes/{box}")


def test_a_size_that_cannot_be_held_is_refused(server):
    disk = os.statvfs(server.stores)
    status, answer = server.ask("POST", "/v1/boxes", {"store": "disk", "limits": {"memory": 64 * MB, "disk": disk.f_bavail * disk.f_frsize}})
    assert status == 503 and "free" in answer["error"]["message"], answer
    assert server.images() == []


def test_a_stopped_box_gives_its_guarantee_back(server):
    total = server.must("GET", "/v1/info")["host"]["memory"]
    share = total * 6 // 10
    limits = {"memory": share, "disk": 64 * MB}
    first = server.create(limits=limits, requests={"memory": share})
    ask = {"store": "disk", "limits": limits, "requests": {"memory": share}}
    assert server.ask("POST", "/v1/boxes", ask)[0] == 503
    server.must("POST", f"/v1/boxes/{first}/stop")
    second = server.must("POST", "/v1/boxes", ask)["id"]
    status, answer = server.ask("POST", f"/v1/boxes/{first}/start")
    assert status == 503 and "memory" in answer["error"]["message"]
    assert server.box(first)["phase"] == "stopped"
    server.must("DELETE", f"/v1/boxes/{second}")
    assert server.must("POST", f"/v1/boxes/{first}/start")["phase"] == "running"
    server.must("DELETE", f"/v1/boxes/{first}")


def test_a_box_on_disk_survives_the_death_of_the_keeper(server):
    box, other = server.create(), server.must("POST", "/v1/boxes", {})["id"]
    stopped = server.create()
    server.must("POST", f"/v1/boxes/{stopped}/stop")
    server.sh(box, "echo kept >~/f; sync ~/f")
    server.kill("keeper")
    assert (server.box(box)["phase"], server.box(box)["reason"]) == ("stopped", "keeper_lost")
    assert server.box(other)["phase"] == "failed"
    assert server.box(stopped)["phase"] == "stopped"
    server.must("POST", f"/v1/boxes/{box}/start")
    assert server.sh(box, "cat ~/f") == "kept\n"
    for b in (box, stopped):
        server.must("DELETE", f"/v1/boxes/{b}")
    assert server.images() == []


def test_a_box_on_disk_survives_the_death_of_the_front(server):
    box, stopped = server.create(), server.create()
    server.must("POST", f"/v1/boxes/{stopped}/stop")
    server.sh(box, "echo kept >~/f")
    server.kill("front")
    assert server.box(box)["phase"] == "running" and server.box(box)["store"] == "disk"
    assert server.sh(box, "cat ~/f") == "kept\n"
    assert server.box(stopped)["phase"] == "stopped"
    assert server.must("POST", f"/v1/boxes/{stopped}/start")["phase"] == "running"
    server.must("POST", f"/v1/boxes/{box}/stop")
    server.must("POST", f"/v1/boxes/{box}/start")
    assert server.sh(box, "cat ~/f") == "kept\n"
    for b in (box, stopped):
        server.must("DELETE", f"/v1/boxes/{b}")
    assert server.images() == []


def test_the_whole_server_can_be_restarted(server):
    box = server.create()
    server.sh(box, "echo kept >~/f")
    server.end()
    server.start()
    assert server.box(box)["phase"] == "stopped"
    server.must("POST", f"/v1/boxes/{box}/start")
    assert server.sh(box, "cat ~/f") == "kept\n"
    server.must("DELETE", f"/v1/boxes/{box}")


def test_files_of_nobody_are_removed(server):
    box = server.create()
    server.must("POST", f"/v1/boxes/{box}/stop")
    (server.stores / "987654.img").write_bytes(b"x")
    (server.stores / "987655.new").write_bytes(b"x")
    server.kill("keeper")
    wait_for(lambda: len(server.images()) == 1)
    server.must("DELETE", f"/v1/boxes/{box}")
    assert server.images() == []


@pytest.mark.parametrize("name", ["front", "keeper"])
def test_kill_in_the_middle_of_stop_and_start(server, name):
    """Whatever was going on, the box is then running or stopped, its files are there, and nothing else is."""
    box = server.create()
    server.sh(box, "echo kept >~/f; sync ~/f")
    for i in range(12):
        action = "stop" if server.box(box)["phase"] == "running" else "start"
        c = server.admin.connection()
        c.request("POST", f"/v1/boxes/{box}/{action}")
        time.sleep(i * 0.004)       # other moments are to be met
        server.kill(name)
        c.close()
        wait_for(lambda: server.box(box)["phase"] in ("running", "stopped"))
    if server.box(box)["phase"] == "stopped":
        server.must("POST", f"/v1/boxes/{box}/start")
    assert server.sh(box, "cat ~/f") == "kept\n"
    assert len(server.images()) == 1
    server.must("DELETE", f"/v1/boxes/{box}")
    assert server.images() == []
    wait_for(lambda: not loops(server.folder))


def test_ttl_ends_a_stopped_box(server):
    for ttl in (2, 10, 50):     # a slow machine may need longer to stop it
        box = server.create(ttl=ttl)
        if server.ask("POST", f"/v1/boxes/{box}/stop")[0] == 200:
            break
    else:
        pytest.fail("it could not be stopped in time")
    wait_for(lambda: server.box(box)["phase"] == "deleted")
    assert server.box(box)["reason"] == "ttl"
    wait_for(lambda: server.images() == [])

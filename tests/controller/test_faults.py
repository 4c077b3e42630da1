"""The API server answers late, twice, wrongly, in halves or not at all, at every single response in turn; the controller
is killed between any two writes; two of them run at once. Always the same end, never two Pods, never a lost object."""
import os
import random
import signal
import subprocess
import threading

import pytest

import apiserver
from conftest import Controller, claim, conditions, is_ready, pool, sandbox, template
from support.waiting import wait_for

ALL = os.environ.get("CONTROLLER_FAULTS") == "all"
CLAIM = [{"metadata": {"name": "data"}, "spec": {}}]


def live(server):
    """A short life with every kind of write in it. Ends with one Sandbox Ready, one suspended, one gone."""
    server.apply("sandboxes", sandbox("a", service=True, volumeClaimTemplates=CLAIM))
    server.apply("sandboxes", sandbox("b", service=True))
    server.apply("sandboxes", sandbox("c", shutdownTime="2020-01-01T00:00:00Z", shutdownPolicy="Delete"))
    wait_for(lambda: is_ready(server, "a"), "a is Ready")
    wait_for(lambda: is_ready(server, "b"), "b is Ready")
    server.patch("sandboxes", "b", {"spec": {"operatingMode": "Suspended"}})
    server.delete("pods", "a")
    wait_for(lambda: conditions(server.get("sandboxes", "b")).get("Suspended", {}).get("status") == "True", "b is suspended")
    wait_for(lambda: server.get("sandboxes", "c") is None, "c is gone")
    wait_for(lambda: server.get("pods", "a") and is_ready(server, "a"), "a is Ready again")


def claimed(server, name):
    """The Sandbox of a claim that is Ready."""
    found = server.get("sandboxclaims", name) or {}
    ready = conditions(found).get("Ready", {})
    return ready.get("status") == "True" and found["status"]["sandbox"]["name"]


def live_with_claims(server):
    """Every kind of write for pools and claims. Ends with a pool of two, a warm and a cold claim, one that is retained."""
    server.apply("sandboxtemplates", template(envVarsInjectionPolicy="Allowed"))
    server.apply("sandboxwarmpools", pool())
    wait_for(lambda: server.get("sandboxwarmpools", "pool").get("status", {}).get("readyReplicas") == 2, "the pool is full")
    server.apply("sandboxclaims", claim("warm"))
    server.apply("sandboxclaims", claim("cold", env=[{"name": "A", "value": "1"}]))
    server.apply("sandboxclaims", claim("over", lifecycle={"shutdownTime": "2020-01-01T00:00:00Z", "shutdownPolicy": "Delete"}))
    server.apply("sandboxclaims", claim("gone"))
    for name in ("warm", "cold", "gone"):
        wait_for(lambda name=name: claimed(server, name), f"{name} is Ready")
    server.patch("sandboxclaims", "gone", {"spec": {"lifecycle": {"shutdownTime": "2020-01-01T00:00:00Z"}}})
    server.patch("sandboxtemplates", "template", {"spec": {"networkPolicy": {"ingress": [{}]}}})
    wait_for(lambda: server.get("sandboxclaims", "over") is None, "over is gone")
    wait_for(lambda: not server.get("sandboxclaims", "gone")["status"].get("sandbox", {}).get("name"), "gone has no Sandbox")
    wait_for(lambda: server.get("networkpolicies", "template-network-policy")["spec"].get("ingress") == [{}], "the policy is the new one")


def check_with_claims(server):
    assert server.call(lambda: server.store.two_pods + server.store.two_claims) == []
    wait_for(lambda: len([s for s in server.all("sandboxes") if server.store.owner(s) == server.get("sandboxwarmpools", "pool")["metadata"]["uid"]]) == 2,
             "two wait in the pool")
    wait_for(lambda: len(server.all("sandboxes")) == 4 and len(server.all("pods")) == 4, "and two are claimed")
    assert claimed(server, "warm") != "warm" and claimed(server, "cold") == "cold"
    pods = {p["metadata"]["name"]: p for p in server.all("pods")}
    assert pods["cold"]["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]
    wait_for(lambda: pods_label(server, claimed(server, "warm")) == server.get("sandboxclaims", "warm")["metadata"]["uid"], "the Pod says whose it is")


def pods_label(server, name):
    return server.get("pods", name)["metadata"]["labels"].get("agents.x-k8s.io/claim-uid")


def check(server):
    assert server.call(lambda: server.store.two_pods) == []
    assert sorted(p["metadata"]["name"] for p in server.all("pods")) == ["a"]
    assert sorted(p["metadata"]["name"] for p in server.all("persistentvolumeclaims")) == ["data-a"]
    assert sorted(p["metadata"]["name"] for p in server.all("services")) == ["a", "b"]
    assert sorted(p["metadata"]["name"] for p in server.all("sandboxes")) == ["a", "b"]


def responses_of_a_life(tmp_path, a_life, an_end):
    with apiserver.Server() as s:
        s.fault = lambda *_: None
        c = Controller(s, tmp_path, "--leader-elect=false")
        a_life(s)
        an_end(s)
        assert c.stop() == 0
        return s.responses


@pytest.mark.parametrize("fault", apiserver.FAULTS)
@pytest.mark.parametrize("a_life, an_end", [(live, check), (live_with_claims, check_with_claims)], ids=["sandboxes", "claims"])
def test_a_fault_at_every_response_in_turn(tmp_path, fault, a_life, an_end):
    count = responses_of_a_life(tmp_path, a_life, an_end)
    assert count > 15
    # Quick cut: several responses of one life are hit, so that all are hit in few lives.
    lives = range(count) if ALL else range(3)
    for n in lives:
        with apiserver.Server() as s:
            if ALL:
                s.fault = lambda i, *_, n=n: fault if i == n + 1 else None
            else:
                s.fault = lambda i, *_, n=n: fault if i % 3 == n and i <= count else None
            c = Controller(s, tmp_path, "--leader-elect=false")
            a_life(s)
            s.fault = None
            an_end(s)
            assert c.stop() == 0
            assert "Sanitizer" not in c.log()


def test_random_faults_all_the_time(server, start):
    chance = random.Random(7)
    server.fault = lambda *_: chance.choice(apiserver.FAULTS) if chance.random() < 0.25 else None
    start()
    for i in range(20):
        server.apply("sandboxes", sandbox("s%d" % i, service=i % 2 == 0, volumeClaimTemplates=CLAIM if i % 3 == 0 else []))
    wait_for(lambda: all(is_ready(server, "s%d" % i) for i in range(20)), "all Ready")
    assert len(server.all("pods")) == 20 and len(server.all("services")) == 10


def test_versions_that_are_forgotten_lead_to_a_new_list(server, start):
    start()
    server.page_max = 2
    for i in range(7):
        server.apply("sandboxes", sandbox("s%d" % i))
    wait_for(lambda: all(is_ready(server, "s%d" % i) for i in range(7)), "Ready")
    server.delete("sandboxes", "s3")
    server.forget()
    server.apply("sandboxes", sandbox("late"))
    server.patch("sandboxes", "s1", {"spec": {"operatingMode": "Suspended"}})
    wait_for(lambda: is_ready(server, "late"), "late is Ready")
    wait_for(lambda: server.get("pods", "s1") is None, "s1 is suspended")
    lists = [r for r in server.requests if r[1].endswith("/sandboxes") and "limit" in r[2]]
    assert any("continue" in r[2] for r in lists)


def test_a_server_that_was_gone_for_a_while(server, start):
    c = start()
    server.apply("sandboxes", sandbox())
    wait_for(lambda: is_ready(server), "Ready")
    down = {"now": True}
    server.fault = lambda *_: "close" if down["now"] else None
    server.cut()
    server.delete("pods", "box")
    wait_for(lambda: "the API server does not answer" in c.log(), "it is told")
    asked = len(server.requests)
    down["now"] = False
    wait_for(lambda: server.get("pods", "box") and is_ready(server), "Ready again")
    assert asked < 200


def test_a_definition_that_is_deleted_takes_its_objects_along(server, start):
    c = start()
    server.apply("sandboxes", sandbox())
    wait_for(lambda: is_ready(server), "Ready")
    server.uninstall("sandboxes")
    wait_for(lambda: "sandboxes: cannot be watched" in c.log(), "it is noticed")
    wait_for(lambda: server.get("pods", "box") is None, "its Pod is collected")
    spec = {"template": {"spec": {"containers": [{"image": "i"}]}}}
    server.apply("kernels", {"kind": "Kernel", "metadata": {"name": "later"}, "spec": spec})
    wait_for(lambda: conditions(server.get("kernels", "later")).get("Ready", {}).get("status") == "True", "a later thing is done")
    assert server.get("pods", "box") is None


class Immortal:
    """A controller that the server kills at its n-th write, before or after it is made, and that is restarted."""

    def __init__(self, server, folder, n, before):
        self.writes, self.n, self.before, self.killed, self.over = 0, n, before, False, False
        server.fault = self.fault
        self.controller = Controller(server, folder, "--leader-elect=false")
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def fault(self, _, method, path, query):
        if method == "GET" or path.endswith("/events"):
            return None
        self.writes += 1
        if self.writes != self.n:
            return None
        self.killed = True
        self.controller.process.send_signal(signal.SIGKILL)
        return "close" if self.before else "close-after"

    def watch(self):
        while not self.over:
            try:
                self.controller.process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
            if not self.over:
                self.controller.start()

    def end(self):
        self.over = True
        self.thread.join()
        self.controller.kill()
        assert "Sanitizer" not in self.controller.log()


# Quick cut: each seventh write of the longer life.
@pytest.mark.parametrize("a_life, an_end, step", [(live, check, 1), (live_with_claims, check_with_claims, 1 if ALL else 7)], ids=["sandboxes", "claims"])
@pytest.mark.parametrize("before", [True, False])
def test_killed_between_any_two_writes(tmp_path, before, a_life, an_end, step):
    for n in range(1, 200, step):
        with apiserver.Server() as s:
            c = Immortal(s, tmp_path, n, before)
            try:
                a_life(s)
                an_end(s)
            finally:
                c.end()
        if not c.killed:
            break
    assert 10 < n < 150     # it was killed at each of its writes


@pytest.mark.parametrize("resource", ["pods", "sandboxes"])
def test_what_goes_at_the_moment_of_its_adoption_is_replaced(server, start, resource):
    start()
    server.apply("sandboxtemplates", template())
    server.apply("sandboxwarmpools", pool())
    wait_for(lambda: server.get("sandboxwarmpools", "pool").get("status", {}).get("readyReplicas") == 2, "the pool is full")
    gone = []

    def fault(_, method, path, query):
        if method == "PATCH" and "/sandboxes/" in path and not path.endswith("/status") and not gone:
            gone.append(path.rsplit("/", 1)[1])
            server.store.delete(resource, "default", gone[0], None)

    server.fault = fault
    server.apply("sandboxclaims", claim("taker"))
    wait_for(lambda: claimed(server, "taker"), "it is Ready")
    assert gone and (claimed(server, "taker") == gone[0]) == (resource == "pods")
    wait_for(lambda: len(server.all("sandboxes")) == 3 and len(server.all("pods")) == 3, "two wait in the pool again")
    assert server.call(lambda: server.store.two_pods + server.store.two_claims) == []


def test_two_controllers_at_once_without_a_lease(server, start):
    """No user should do this, but nothing must break: names are fixed, deletes name a uid."""
    start("--leader-elect=false")
    start("--leader-elect=false")
    for i in range(15):
        server.apply("sandboxes", sandbox("s%d" % i, service=True, volumeClaimTemplates=CLAIM))
    wait_for(lambda: all(is_ready(server, "s%d" % i) for i in range(15)), "all Ready")
    for i in range(15):
        server.patch("sandboxes", "s%d" % i, {"spec": {"operatingMode": "Suspended"}})
    wait_for(lambda: not server.all("pods"), "no Pods")
    for i in range(15):
        server.patch("sandboxes", "s%d" % i, {"spec": {"operatingMode": "Running"}})
    wait_for(lambda: all(is_ready(server, "s%d" % i) for i in range(15)), "all Ready")
    assert len(server.all("pods")) == 15

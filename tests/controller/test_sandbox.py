"""The life of a Sandbox, seen from outside."""
import time

from conftest import conditions, is_ready, ready_reason, sandbox
from support.waiting import wait_for

HASH = "agents.x-k8s.io/sandbox-name-hash"


def test_a_sandbox_becomes_a_ready_pod(server, start):
    start()
    server.apply("sandboxes", sandbox(meta={"labels": {"app": "x", "agents.x-k8s.io/mine": "1"}, "annotations": {"a": "b"}},
                                      service=True, pod={"containers": [{"name": "c", "image": "i", "ports": [
                                          {"containerPort": 80}, {"containerPort": 53, "protocol": "UDP", "name": "dns"}]}]}))
    wait_for(lambda: is_ready(server), "Ready")
    box, pod, service = (server.get(r, "box") for r in ("sandboxes", "pods", "services"))
    label = pod["metadata"]["labels"].pop(HASH)
    assert pod["metadata"]["labels"] == {"app": "x"}
    assert len(pod["metadata"]["annotations"].pop("carrel.dev/template-hash")) == 16
    assert pod["metadata"]["annotations"] == {"a": "b", "agents.x-k8s.io/propagated-labels": "app",
                                              "agents.x-k8s.io/propagated-annotations": "a"}
    owner = {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "name": "box", "uid": box["metadata"]["uid"],
             "controller": True, "blockOwnerDeletion": True}
    assert pod["metadata"]["ownerReferences"] == service["metadata"]["ownerReferences"] == [owner]
    assert service["spec"] == {"clusterIP": "None", "selector": {HASH: label}, "ports": [
        {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
        {"name": "p-80-tcp", "port": 80, "protocol": "TCP", "targetPort": 80}]}
    status = box["status"]
    for c in status["conditions"]:
        assert c.pop("lastTransitionTime").endswith("Z") and c.pop("observedGeneration") == 1
    assert sorted(status.pop("conditions"), key=lambda c: c["type"]) == [
        {"type": "PodScheduled", "status": "True", "reason": "PodScheduled", "message": ""},
        {"type": "Ready", "status": "True", "reason": "DependenciesReady", "message": "Pod is Ready; Service Exists"},
        {"type": "Suspended", "status": "False", "reason": "NotSuspended", "message": "Sandbox is not suspended"}]
    assert status == {"selector": HASH + "=" + label, "service": "box", "serviceFQDN": "box.default.svc.cluster.local",
                      "podIPs": ["10.0.0.7", "fd00::7"], "nodeName": "node"}


def test_a_quick_sandbox_costs_two_writes(server, start):
    start()
    wait_for(lambda: server.call(lambda: server.open_watches) >= 4, "watches")
    server.apply("sandboxes", sandbox())
    wait_for(lambda: is_ready(server), "Ready")
    writes = server.call(lambda: [w[:2] for w in server.store.writes])
    assert writes == [("create", "pods"), ("patch", "sandboxes/status")]


def test_claims_come_before_the_pod_and_the_template_s_volume_wins(server, start):
    start()
    claim = {"metadata": {"name": "data", "labels": {"l": "1"}}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    server.apply("sandboxes", sandbox(volumeClaimTemplates=[claim], pod={
        "containers": [{"name": "c", "image": "i"}], "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]}))
    wait_for(lambda: is_ready(server), "Ready")
    pvc = server.get("persistentvolumeclaims", "data-box")
    assert pvc["spec"] == claim["spec"] and pvc["metadata"]["labels"]["l"] == "1"
    assert server.get("pods", "box")["spec"]["volumes"] == [
        {"name": "tmp", "emptyDir": {}}, {"name": "data", "persistentVolumeClaim": {"claimName": "data-box"}}]
    order = server.call(lambda: [w[1] for w in server.store.writes if w[0] == "create"])
    assert order.index("persistentvolumeclaims") < order.index("pods")


def test_suspend_and_resume(server, start):
    start()
    server.store.pod_grace = 0.2
    server.apply("sandboxes", sandbox(service=True))
    wait_for(lambda: is_ready(server), "Ready")
    first = server.get("pods", "box")["metadata"]["uid"]
    server.patch("sandboxes", "box", {"spec": {"operatingMode": "Suspended"}})
    terminating = wait_for(lambda: next(
        (c for c in [conditions(server.get("sandboxes", "box"))["Suspended"]] if c["reason"] == "PodTerminating"), None), "terminating")
    assert terminating["message"] == "Pod is terminating. Sandbox is suspending"
    wait_for(lambda: conditions(server.get("sandboxes", "box"))["Suspended"]["status"] == "True", "suspended")
    now = conditions(server.get("sandboxes", "box"))
    assert server.get("pods", "box") is None and server.get("services", "box")
    assert now["Suspended"]["reason"] == "PodTerminated" and now["Ready"]["message"] == "Sandbox is suspended"
    assert "PodScheduled" not in now and now["Ready"]["observedGeneration"] == 2
    assert "podIPs" not in server.get("sandboxes", "box")["status"]
    server.patch("sandboxes", "box", {"spec": {"operatingMode": "Running"}})
    wait_for(lambda: is_ready(server), "Ready again")
    assert server.get("pods", "box")["metadata"]["uid"] != first


def test_replicas_0_is_suspended_and_says_so_for_other_controllers(server, start):
    start()
    server.apply("sandboxes", sandbox(replicas=1))
    wait_for(lambda: is_ready(server), "Ready")
    assert server.get("sandboxes", "box")["status"]["replicas"] == 1
    server.patch("sandboxes", "box", {"spec": {"replicas": 0}})
    wait_for(lambda: conditions(server.get("sandboxes", "box"))["Suspended"]["status"] == "True", "suspended")
    box = server.get("sandboxes", "box")
    assert box["spec"]["operatingMode"] == "Suspended" and box["status"]["replicas"] == 0
    server.patch("sandboxes", "box", {"spec": {"replicas": 1}})
    wait_for(lambda: is_ready(server), "Ready again")
    assert server.get("sandboxes", "box")["spec"]["operatingMode"] == "Running"


def events(server, reason):
    return [e["message"] for e in server.call(lambda: list(server.store.objects.values())) if e["kind"] == "Event" and e["reason"] == reason]


def test_running_beside_replicas_0_is_put_back_with_a_word(server, start):
    start()
    server.apply("sandboxes", sandbox(replicas=0))
    wait_for(lambda: server.get("sandboxes", "box")["spec"]["operatingMode"] == "Suspended", "suspended")
    server.patch("sandboxes", "box", {"spec": {"operatingMode": "Running"}})
    wait_for(lambda: len(events(server, "SuspendedByReplicas")) == 2, "told twice")
    assert events(server, "SuspendedByReplicas")[0] == \
        "operatingMode is set to Suspended because replicas is 0; set replicas to 1, or remove it, to run the Sandbox"


def test_a_changed_pod_spec_waits_and_says_so(server, start):
    start()
    server.apply("sandboxes", sandbox())
    wait_for(lambda: is_ready(server), "Ready")
    server.patch("sandboxes", "box", {"spec": {"podTemplate": {"spec": {"containers": [{"name": "c", "image": "other"}]}}}})

    def note():
        return server.get("sandboxes", "box")["metadata"].get("annotations", {}).get("carrel.dev/waiting")
    assert wait_for(note, "the annotation").startswith("podTemplate.spec has changed")
    wait_for(lambda: events(server, "PodWaiting") == [note()], "the event")
    server.delete("pods", "box")
    wait_for(lambda: not note() and is_ready(server), "nothing waits")
    assert server.get("pods", "box")["spec"]["containers"][0]["image"] == "other"


def test_a_pod_that_vanishes_is_made_anew_and_one_that_ends_is_left(server, start):
    start()
    server.apply("sandboxes", sandbox())
    wait_for(lambda: is_ready(server), "Ready")
    first = server.get("pods", "box")["metadata"]["uid"]
    server.delete("pods", "box")
    wait_for(lambda: server.get("pods", "box") and server.get("pods", "box")["metadata"]["uid"] != first, "a new Pod")
    wait_for(lambda: is_ready(server), "Ready again")
    server.apply("sandboxes", sandbox("done", pod={"containers": [{"name": "c", "image": "i", "command": ["sh", "-c", "exit 0"]}]}))
    wait_for(lambda: conditions(server.get("sandboxes", "done")).get("Finished", {}).get("reason") == "PodSucceeded", "Finished")
    assert ready_reason(server, "done") == "PodSucceeded"


def stamp(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def test_shutdown_time_keeps_or_deletes_the_sandbox(server, start):
    start()
    server.apply("sandboxes", sandbox("kept", service=True, shutdownTime=stamp(2)))
    server.apply("sandboxes", sandbox("gone", shutdownTime=stamp(2), shutdownPolicy="Delete"))
    wait_for(lambda: is_ready(server, "kept") and is_ready(server, "gone"), "Ready")
    wait_for(lambda: server.get("sandboxes", "gone") is None, "gone")
    wait_for(lambda: set(server.get("sandboxes", "kept")["status"]) == {"conditions"}, "emptied")
    kept = conditions(server.get("sandboxes", "kept"))
    assert kept["Ready"]["reason"] == "SandboxExpired" and kept["Ready"]["message"] == "Sandbox has expired"
    assert server.get("pods", "kept") is None and server.get("services", "kept") is None
    server.patch("sandboxes", "kept", {"spec": {"shutdownTime": stamp(3600)}})
    wait_for(lambda: is_ready(server, "kept"), "awake again")


def test_two_pods_for_one_sandbox_are_an_error_and_nothing_is_chosen(server, start):
    start()
    server.apply("sandboxes", sandbox())
    wait_for(lambda: is_ready(server), "Ready")
    twin = server.get("pods", "box")
    twin["metadata"] = {"name": "twin", "labels": twin["metadata"]["labels"], "ownerReferences": twin["metadata"]["ownerReferences"]}
    server.apply("pods", twin)
    wait_for(lambda: ready_reason(server) == "MultiplePods", "MultiplePods")
    events = wait_for(lambda: server.all("events"), "an event")
    assert events[0]["reason"] == "MultiplePods" and events[0]["type"] == "Warning"
    assert len(server.all("pods")) == 2
    server.delete("pods", "twin")
    wait_for(lambda: is_ready(server), "Ready again")
    server.call(lambda: server.store.two_pods.clear())


def test_the_old_pod_of_the_same_name_is_waited_for(server, start):
    start()
    server.store.pod_grace = 0.5
    server.apply("sandboxes", sandbox())
    wait_for(lambda: is_ready(server), "Ready")
    old = server.get("pods", "box")["metadata"]["uid"]
    server.delete("sandboxes", "box")
    server.apply("sandboxes", sandbox())
    wait_for(lambda: ready_reason(server) == "ReconcilerError", "an error")
    text = conditions(server.get("sandboxes", "box"))["Ready"]["message"]
    assert text.startswith('Error seen: pod "box" is owned by Sandbox/box (UID: ') and text.endswith('not by sandbox "box"')
    wait_for(lambda: is_ready(server), "Ready", deadline_s=5)
    assert server.get("pods", "box")["metadata"]["uid"] != old


def test_what_is_labelled_is_adopted_and_what_is_not_is_refused(server, start):
    start()
    server.apply("pods", {"kind": "Pod", "metadata": {"name": "box", "labels": {"agents.x-k8s.io/adoptable": "true"}},
                          "spec": {"containers": [{"name": "c"}]}})
    server.apply("pods", {"kind": "Pod", "metadata": {"name": "other"}, "spec": {"containers": [{"name": "c"}]}})
    server.apply("sandboxes", sandbox())
    server.apply("sandboxes", sandbox("other"))
    server.apply("sandboxes", sandbox("still", operatingMode="Suspended"))
    wait_for(lambda: is_ready(server), "adopted")
    assert server.get("pods", "box")["metadata"]["ownerReferences"][0]["name"] == "box"
    wait_for(lambda: ready_reason(server, "other") == "ReconcilerError", "refused")
    assert conditions(server.get("sandboxes", "other"))["Ready"]["message"] == (
        'Error seen: cannot adopt unowned pod "other": missing required pool authorization label '
        '("agents.x-k8s.io/adoptable") or sandbox tracking label ("agents.x-k8s.io/sandbox-name-hash")')
    server.delete("pods", "other")
    wait_for(lambda: is_ready(server, "other"), "free", deadline_s=5)


def test_somebody_else_s_claim_is_never_mounted(server, start):
    start()
    server.apply("persistentvolumeclaims", {"kind": "PersistentVolumeClaim", "metadata": {"name": "data-box"}, "spec": {}})
    server.apply("sandboxes", sandbox(volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": {}}]))
    wait_for(lambda: ready_reason(server) == "ReconcilerError", "refused")
    assert 'cannot adopt unowned PVC "data-box"' in conditions(server.get("sandboxes", "box"))["Ready"]["message"]
    assert server.get("pods", "box") is None


def test_labels_that_leave_the_template_leave_the_pod(server, start):
    start()
    server.apply("sandboxes", sandbox(meta={"labels": {"a": "1", "b": "2"}}))
    wait_for(lambda: is_ready(server), "Ready")
    server.patch("pods", "box", {"metadata": {"labels": {"others": "x"}}})
    server.patch("sandboxes", "box", {"spec": {"podTemplate": {"metadata": {"labels": {"a": None, "c": "3"}}}}})
    wait_for(lambda: set(server.get("pods", "box")["metadata"]["labels"]) == {"b", "c", "others", HASH}, "the labels")


def test_a_full_quota_is_told_and_tried_again_not_hot(server, start):
    start()
    server.store.quota = "exceeded quota: few, requested: pods=1, used: pods=5, limited: pods=5"
    server.apply("sandboxes", sandbox())
    wait_for(lambda: ready_reason(server) == "ReconcilerError", "told")
    assert "exceeded quota" in conditions(server.get("sandboxes", "box"))["Ready"]["message"]
    assert any("exceeded quota" in e["message"] for e in wait_for(lambda: server.all("events"), "an event"))
    tries = server.call(lambda: len([w for w in server.store.writes if w[:2] == ("create", "pods")]))
    assert tries <= 4
    server.call(lambda: setattr(server.store, "quota", None))
    wait_for(lambda: is_ready(server), "Ready")


def test_a_pod_that_the_server_refuses_is_told(server, start):
    start()
    server.apply("sandboxes", sandbox(pod={"containers": []}))
    wait_for(lambda: ready_reason(server) == "ReconcilerError", "told")
    assert "spec.containers: Required value" in conditions(server.get("sandboxes", "box"))["Ready"]["message"]


def test_retained_volumes_stay_and_are_found_again(server, start):
    start()
    box = sandbox(volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": {}}])
    box["metadata"]["annotations"] = {"carrel.dev/retain-volumes": "true"}
    server.apply("sandboxes", box)
    wait_for(lambda: is_ready(server), "Ready")
    uid = server.get("persistentvolumeclaims", "data-box")["metadata"]["uid"]
    server.delete("sandboxes", "box")
    wait_for(lambda: server.get("pods", "box") is None, "no Pod")
    server.apply("sandboxes", box)
    wait_for(lambda: is_ready(server), "Ready again")
    assert server.get("persistentvolumeclaims", "data-box")["metadata"]["uid"] == uid
    server.patch("sandboxes", "box", {"metadata": {"annotations": {"carrel.dev/retain-volumes": "false"}}})
    wait_for(lambda: server.get("persistentvolumeclaims", "data-box")["metadata"].get("ownerReferences"), "owned")
    server.patch("sandboxes", "box", {"metadata": {"annotations": {"carrel.dev/retain-volumes": "true"}}})
    wait_for(lambda: not server.get("persistentvolumeclaims", "data-box")["metadata"].get("ownerReferences"), "let go")


def test_a_changed_template_replaces_the_pod_if_asked_for(server, start):
    start()
    box = sandbox()
    box["metadata"]["annotations"] = {"carrel.dev/recreate-on-change": "true"}
    server.apply("sandboxes", box)
    server.apply("sandboxes", sandbox("plain"))
    wait_for(lambda: is_ready(server) and is_ready(server, "plain"), "Ready")
    first, plain = (server.get("pods", n)["metadata"]["uid"] for n in ("box", "plain"))
    change = {"spec": {"podTemplate": {"spec": {"containers": [{"name": "c", "image": "j"}]}}}}
    server.patch("sandboxes", "box", change)
    server.patch("sandboxes", "plain", change)
    wait_for(lambda: (server.get("pods", "box") or {"metadata": {"uid": first}})["metadata"]["uid"] != first, "replaced")
    assert server.get("pods", "box")["spec"]["containers"][0]["image"] == "j"
    wait_for(lambda: is_ready(server) and conditions(server.get("sandboxes", "plain"))["Ready"]["observedGeneration"] == 2, "Ready")
    assert server.get("pods", "plain")["metadata"]["uid"] == plain


def test_a_volume_is_let_go_when_somebody_deletes_it(server, start):
    start()
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "models"}, "spec": {}}
    server.apply("persistentvolumeclaims", claim)
    box = sandbox(pod={"containers": [{"name": "c", "image": "i"}],
                       "volumes": [{"name": "m", "persistentVolumeClaim": {"claimName": "models"}}]})
    box["metadata"]["annotations"] = {"carrel.dev/release-volumes": "true"}
    server.apply("sandboxes", box)
    wait_for(lambda: is_ready(server), "Ready")
    server.delete("persistentvolumeclaims", "models")
    wait_for(lambda: server.get("persistentvolumeclaims", "models") is None, "the claim is gone")
    wait_for(lambda: conditions(server.get("sandboxes", "box"))["Ready"]["message"] ==
             'Pod does not exist; PersistentVolumeClaim "models" does not exist', "it waits")
    assert server.get("pods", "box") is None
    server.apply("persistentvolumeclaims", claim)
    wait_for(lambda: is_ready(server), "Ready again")


def test_secure_defaults_take_the_token_away_unless_it_is_asked_for(server, start):
    start("--leader-elect=false", "--secure-defaults")
    server.apply("sandboxes", sandbox())
    server.apply("sandboxes", sandbox("asks", pod={"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": True}))
    server.apply("sandboxes", sandbox("names", pod={"containers": [{"name": "c", "image": "i"}], "serviceAccountName": "robot"}))
    wait_for(lambda: all(is_ready(server, n) for n in ("box", "asks", "names")), "Ready")
    assert server.get("pods", "box")["spec"]["automountServiceAccountToken"] is False
    assert server.get("pods", "asks")["spec"]["automountServiceAccountToken"] is True
    assert "automountServiceAccountToken" not in server.get("pods", "names")["spec"]


def test_a_service_that_is_no_longer_wanted_goes(server, start):
    start()
    server.apply("sandboxes", sandbox(service=True))
    wait_for(lambda: is_ready(server), "Ready")
    server.patch("sandboxes", "box", {"spec": {"service": False}})
    wait_for(lambda: server.get("services", "box") is None, "gone")
    wait_for(lambda: "service" not in server.get("sandboxes", "box")["status"], "told")
    assert conditions(server.get("sandboxes", "box"))["Ready"]["message"] == "Pod is Ready"

"""The description is complete, and what the server says fits it."""
import pathlib
import re
import time

from prometheus_client.parser import text_string_to_metric_families

from support.openapi import check
from support.waiting import wait_for

SOURCE = pathlib.Path(__file__).parents[2] / "src/doors/native/native.c"


def routes():
    short = dict(re.findall(r'#define (\w+)\s+"([^"]+)"', SOURCE.read_text()))
    for method, pattern in re.findall(r'ROW\("(\w+)", ([^,]+), ask_', SOURCE.read_text()):
        path = "".join(p.strip('"') if p[0] == '"' else short[p] for p in re.findall(r'"[^"]*"|\w+', pattern))
        yield method.lower(), path.replace("...}", "}")


def test_every_route_is_described_and_nothing_else(openapi):
    described = {(m, path) for path, item in openapi["paths"].items() for m in item if m != "parameters"}
    assert described == set(routes()) and len(described) > 40


def test_every_reference_leads_somewhere(openapi):
    def walk(node):
        if isinstance(node, dict):
            if "$ref" in node:
                target = openapi
                for part in node["$ref"].lstrip("#/").split("/"):
                    target = target[part]
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)
    walk(openapi)
    ids = [op["operationId"] for item in openapi["paths"].values() for m, op in item.items() if m != "parameters"]
    assert len(ids) == len(set(ids))


def test_answers_fit_their_description(openapi, alice, admin, box):
    x = alice.post(box + "/exec", {"shell": "echo hi; exit 2", "background": True}).json["id"]
    wait_for(lambda: alice.get(f"{box}/exec/{x}").json["state"] == "ended")
    alice.put(box + "/files/tmp/f", b"x")
    failed = alice.post(box + "/exec", {"argv": ["/nope"]}).json["id"]
    asks = [
        (alice, "get", "/v1/boxes", "/v1/boxes"), (alice, "get", "/v1/boxes/{id}", box), (alice, "get", "/v1/boxes/{id}/usage", box + "/usage"),
        (alice, "get", "/v1/boxes/{id}/events", box + "/events"), (alice, "get", "/v1/boxes/{id}/exec", box + "/exec"),
        (alice, "get", "/v1/boxes/{id}/exec/{xid}", f"{box}/exec/{x}"), (alice, "get", "/v1/boxes/{id}/exec/{xid}", f"{box}/exec/{failed}"),
        (alice, "post", "/v1/boxes/{id}/exec", box + "/exec"), (alice, "get", "/v1/me", "/v1/me"), (alice, "get", "/v1/info", "/v1/info"),
        (admin, "get", "/v1/tokens", "/v1/tokens"), (alice, "get", "/healthz", "/healthz"), (alice, "get", "/readyz", "/readyz"), (alice, "get", "/v1/boxes/{id}", "/v1/boxes/none"),
    ]
    for client, method, path, where in asks:
        body = {"argv": ["true"]} if method == "post" else None
        answer = client.ask(method.upper(), where, body)
        responses = openapi["paths"][path][method]["responses"]
        assert str(answer.status) in responses, (where, answer.status)
        response = responses[str(answer.status)]
        response = openapi["components"]["responses"]["Error"] if "$ref" in response else response
        check(answer.json, response["content"]["application/json"]["schema"], openapi, where)
    check(alice.get(box + "/files/tmp").json, {"$ref": "#/components/schemas/FileList"}, openapi)
    check(alice.get(box + "/files/tmp/f?stat=true").json, {"$ref": "#/components/schemas/FileEntry"}, openapi)


def histograms(admin):
    """The families of /metrics as Prometheus' own parser reads them; of each histogram its buckets, its count and its sum."""
    found = {}
    for family in text_string_to_metric_families(admin.get("/metrics").body.decode()):
        if family.type == "histogram":
            buckets = [(float(s.labels["le"]), s.value) for s in family.samples if s.name.endswith("_bucket")]
            rest = {s.name[len(family.name):]: s.value for s in family.samples if not s.labels}
            found[family.name] = (buckets, rest["_count"], rest["_sum"])
    return found


def test_metrics_are_prometheus_text(admin, alice, box):
    text = admin.get("/metrics").body.decode()
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) carrel_\w+ .+|carrel_\w+(\{\w+="[\w.+-]+"\})? [0-9.]+', line), line
    families = {f.name: f for f in text_string_to_metric_families(text)}
    running = [s.value for s in families["carrel_boxes"].samples if s.labels == {"phase": "running"}]
    assert running[0] >= 1 and families["carrel_resident_bytes"].samples[0].value > 1 << 20
    assert families["carrel_requests"].samples[0].value > 0
    assert all(f.type in ("counter", "gauge", "histogram") and f.documentation for f in families.values())


def test_latencies_are_histograms(admin, alice, make_box):
    before = histograms(admin)
    path = "/v1/boxes/" + make_box()["id"]
    # Its time is the front's, from the word that it has started: 0.3 s after that was seen, whenever that is.
    it = alice.post(path + "/exec", {"shell": "until test -e /tmp/enough; do sleep 0.02; done", "background": True}).json["id"]
    wait_for(lambda: alice.get(f"{path}/exec/{it}").json["state"] == "running")
    time.sleep(0.3)
    alice.put(path + "/files/tmp/enough", b"")
    wait_for(lambda: alice.get(f"{path}/exec/{it}").json["outcome"] == "ok")
    after = histograms(admin)
    assert set(after) == {"carrel_request_seconds", "carrel_create_seconds", "carrel_exec_start_seconds", "carrel_exec_seconds", "carrel_first_result_seconds"}
    for name, (buckets, count, total) in after.items():
        bounds, values = [b for b, _ in buckets], [v for _, v in buckets]
        assert bounds == sorted(set(bounds)) and bounds[-1] == float("inf"), name
        assert values == sorted(values) and values[-1] == count, name
        assert total >= before[name][2] and count > before[name][1] - (name == "carrel_first_result_seconds"), name      # no kernel here
    slow = {name: [a - b for (_, a), (_, b) in zip(after[name][0], before[name][0])] for name in after}
    assert after["carrel_exec_seconds"][2] - before["carrel_exec_seconds"][2] >= 0.3
    bounds = [b for b, _ in after["carrel_exec_seconds"][0]]
    assert slow["carrel_exec_seconds"][bounds.index(0.25)] == 0 and slow["carrel_exec_seconds"][-1] == 1
    assert slow["carrel_create_seconds"][-1] == 1 and slow["carrel_exec_start_seconds"][-1] == 1

"""The description is complete, and the server's answers fit it."""
import contextlib
import json
import pathlib
import re
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.openapi import check_answer, unanswered
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


# Those of the other suites: their test_every_route_... ask them.
ELSEWHERE = ("/v1/run", "/v1/boxes/{id}/run", "/v1/boxes/{id}/kernels", "/v1/services", "/v1/grant", "/v1/volumes", "/v1/layers")
SERVER = """from http.server import *
class Handler(BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0))); self.send_response(204); self.end_headers()
    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer
HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()"""


@pytest.mark.cgroups
def test_every_route_of_the_machine_answers_what_is_described(alice, admin, make_box):
    """Client checks each answer."""
    def ask(method, path, body=None, status=200, client=alice, **headers):
        answer = client.ask(method, path, body, headers)
        assert answer.status == status, (method, path, answer.status, answer.body)
        return answer

    box = "/v1/boxes/" + make_box(limits={"memory": "256M", "pids": 64, "disk": "128M"})["id"]
    for path in ("/v1/boxes", box, box + "/usage", box + "/net", box + "/enforced", box + "/events", box + "/exec", "/v1/me", "/v1/info"):
        ask("GET", path)
    for path in ("/metrics", "/healthz", "/readyz", "/openapi.json", "/v1/tokens"):
        ask("GET", path, client=admin)
    ask("PATCH", box, {"labels": {"a": "b"}})
    ask("POST", box + "/pause"), ask("POST", box + "/resume")
    for path in ("/v1/events", box + "/events"):
        response = alice.open("GET", path, headers={"Accept": "text/event-stream"})
        check_answer("GET", path, response.status, response.headers["Content-Type"], b"a stream without end")
        response.connection.close()

    x = f"{box}/exec/" + ask("POST", box + "/exec", {"argv": ["cat"], "stdin": True, "background": True}, 202).json["id"]
    with contextlib.closing(alice.websocket(x + "/attach")) as attached:
        assert attached.status == 101
    ask("POST", x + "/stdin", b"hi\n"), ask("POST", x + "/signal", {"signal": "CONT"}), ask("GET", x), ask("DELETE", x), ask("GET", x + "/output")
    t = f"{box}/exec/" + ask("POST", box + "/exec", {"argv": ["cat"], "tty": True, "background": True}, 202).json["id"]
    ask("POST", t + "/resize", {"rows": 10, "cols": 20}), ask("DELETE", t)
    assert [json.loads(line)["type"] for line in ask("POST", box + "/exec", {"shell": "echo hi"}, Accept="application/x-ndjson").body.splitlines()]
    with contextlib.closing(alice.websocket(box + "/exec/ws?argv=true")) as bare:
        assert bare.status == 101

    f = box + "/files/tmp/f"
    ask("POST", box + "/files/tmp/folder", {"action": "mkdir"}, 204)
    ask("PUT", f, b"content"), ask("GET", f), ask("GET", f + "?stat=true"), ask("GET", box + "/files/tmp"), ask("GET", f, status=206, Range="bytes=0-1")
    ask("DELETE", f, status=204)
    ask("PUT", box + "/archive?path=/home/box", ask("GET", box + "/archive?path=/home/box").body)

    ask("POST", box + "/exec", {"argv": ["python3", "-c", SERVER], "background": True}, 202)
    wait_for(lambda: alice.get(box + "/ports/8000/").status == 204)
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        ask(method, box + "/ports/8000/x", status=204)
    with contextlib.closing(alice.raw_socket()) as tunnel:
        tunnel.sendall(f"POST {box}/tunnel/8000 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {alice.token}\r\n"
                       "Connection: Upgrade\r\nUpgrade: carrel-tunnel\r\n\r\n".encode())
        check_answer("POST", box + "/tunnel/8000", int(tunnel.recv(99).split()[1]), None, b"")

    disk = "/v1/boxes/" + make_box(store="disk", limits={"memory": "64M", "disk": "64M"})["id"]
    ask("POST", disk + "/stop"), ask("POST", disk + "/start"), ask("DELETE", disk, status=204)
    token = ask("POST", "/v1/tokens", {"identity": "carol"}, 201, admin).json["id"]
    ask("DELETE", "/v1/tokens/" + token, status=204, client=admin)
    ask("PUT", "/v1/secrets/hf", b"value"), ask("GET", "/v1/secrets"), ask("DELETE", "/v1/secrets/hf", status=204)
    ask("GET", "/v1/disk"), ask("GET", "/v1/layers"), ask("DELETE", "/v1/layers/none", status=404)
    ask("GET", "/v1/boxes/none", status=404)
    assert [r for r in unanswered("/") if not r[1].startswith(ELSEWHERE)] == []


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

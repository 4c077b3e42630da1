"""Calls of an echo function, beside what they are measured against in the same run: a warm cell, an http.server with JSON, tools of MCP.

run.py BUILD [--python PYTHON] [--rounds N] [--json FILE]. PYTHON is an interpreter with ipykernel, for the cell."""
import argparse
import concurrent.futures
import http.client
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import beside

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "sdk/python"))
from carrel.environment.stub import make_stub  # noqa: E402

ECHO = """
@expose
def echo(value): return value
@expose
async def echo_async(value): return value
@expose
async def later(seconds):
    import asyncio
    await asyncio.sleep(seconds)
"""

# What the peers of this do: one thread, HTTP/1.0, no checks.
PEER = """
import http.server, json, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        q = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        out = json.dumps({"ok": True, "result": {"echo": lambda value: value}[q["fn"]](*q["args"], **q["kwargs"])}).encode()
        self.send_response(200); self.send_header("Content-Type", "application/json"); self.send_header("Content-Length", str(len(out))); self.end_headers()
        self.wfile.write(out)
    def log_message(self, *a): pass
s = http.server.HTTPServer(("127.0.0.1", 0), H)
print(s.server_address[1], flush=True)
s.serve_forever()
"""

# In a box, with http.client.
STUB = """
import http.client, json, sys, time
rounds = int(sys.argv[1])
c = http.client.HTTPConnection("127.0.0.1", 807)
def call(v):
    c.request("POST", "/v1/grant/call", json.dumps({"service": "echo", "function": "echo", "args": [v]}), {"Content-Type": "application/json"})
    r = json.loads(c.getresponse().read())
    assert r["result"] == v
for i in range(50): call(i)
times = []
for i in range(rounds):
    t = time.perf_counter(); call(i); times.append(time.perf_counter() - t)
print(json.dumps(times))
"""

# In a box, with the stub that a session has.
LEAN = """
import json, sys, time
sys.path.insert(0, "/home/box")
from echo_stub import echo
rounds = int(sys.argv[1])
def call(v):
    assert echo(v) == v
for i in range(50): call(i)
times = []
for i in range(rounds):
    t = time.perf_counter(); call(i); times.append(time.perf_counter() - t)
print(json.dumps(times))
"""

# The same for the peer, as its stubs do it: requests.post; and the least that can be done, http.client.
PEER_CLIENT = """
import http.client, json, sys, time
rounds, port = int(sys.argv[1]), int(sys.argv[2])
if len(sys.argv) > 3:
    import requests
    def call(v):
        r = requests.post("http://127.0.0.1:%d" % port, json={"fn": "echo", "args": [v], "kwargs": {}}, timeout=600)
        r.raise_for_status()
        assert r.json()["result"] == v
else:
  def call(v):
    c = http.client.HTTPConnection("127.0.0.1", port)
    c.request("POST", "/", json.dumps({"fn": "echo", "args": [v], "kwargs": {}}), {"Content-Type": "application/json"})
    r = json.loads(c.getresponse().read())
    c.close()
    assert r["result"] == v
for i in range(50): call(i)
times = []
for i in range(rounds):
    t = time.perf_counter(); call(i); times.append(time.perf_counter() - t)
print(json.dumps(times))
"""


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=120)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(c, method, path, body=None):
    c.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
    r = c.getresponse()
    data = r.read()
    assert r.status < 300, (r.status, data)
    return json.loads(data) if data else None


def measure(rounds, call):
    for i in range(50):
        call(i)
    times = []
    for i in range(rounds):
        begin = time.perf_counter()
        call(i)
        times.append(time.perf_counter() - begin)
    return times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--requests", default="/usr/bin/python3", help="an interpreter that has requests, for the peer's own stub")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--mcp", default="/usr/bin/python3", help="an interpreter that has mcp, for its own server")
    parser.add_argument("--model-python", help="an interpreter that has torch and transformers")
    parser.add_argument("--model", help="a folder with a model; without it the start with one is not measured")
    parser.add_argument("--json")
    o = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-bench-"))
    folder.chmod(0o755)
    tcp_port = beside.free_port()
    server = subprocess.Popen([o.build / "carrel-server", "serve", "--listen", f"127.0.0.1:{tcp_port}", "--set", "allow_anonymous=true", "--socket", folder / "s", "--state", folder / "state", "--run", folder / "run",
                               "--set", f"templates.python.python={o.python}", "--set", "templates.python.pool=off"],
                              stdout=open(folder / "log", "wb"), stderr=subprocess.STDOUT)
    peer = subprocess.Popen(["/usr/bin/python3", "-c", PEER], stdout=subprocess.PIPE, text=True)
    mcp_peer = None
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                c = Unix(str(folder / "s"))
                ask(c, "GET", "/readyz")
                break
            except (OSError, AssertionError):
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.05)
        figures = {}
        made = ask(c, "POST", "/v1/services", {"name": "echo", "code": ECHO})
        path = "/v1/services/echo/call"
        figures["call, HTTP"] = measure(o.rounds, lambda i: ask(c, "POST", path, {"function": "echo", "args": [i]}))
        figures["call of an async function, HTTP"] = measure(o.rounds, lambda i: ask(c, "POST", path, {"function": "echo_async", "args": [i]}))
        box = ask(c, "POST", "/v1/boxes", {"template": "python"})["id"]
        ask(c, "POST", "/v1/grants", {"service": "echo", "box": box})
        run = lambda code, *words: json.loads(ask(c, "POST", f"/v1/boxes/{box}/exec", {"argv": ["/usr/bin/python3", "-c", code, *words]})["stdout"])  # noqa: E731
        figures["call, from a box through its inlet"] = run(STUB, str(o.rounds))
        stub = make_stub("echo_stub", "echo", [f for f in made["functions"] if f["name"] == "echo"], "/nowhere", {})
        c.request("PUT", f"/v1/boxes/{box}/files/home/box/echo_stub.py", stub)
        assert c.getresponse().read() is not None
        figures["call, the stub in a box"] = run(LEAN, str(o.rounds))
        tcp = beside.Tcp(tcp_port)
        tcp.post("/v1/services", {"name": "echo", "code": ECHO})        # another identity's
        figures["call, TCP"] = measure(o.rounds, lambda i: tcp.post(path, {"function": "echo", "kwargs": {"value": i}}))
        figures["tools/call, TCP"] = measure(o.rounds, lambda i: tcp.tool("/mcp/services/echo", i))
        mcp_peer = beside.start_mcp_peer(o.mcp)
        if mcp_peer:
            figures["FastMCP, tools/call"] = measure(o.rounds, lambda i: mcp_peer[1].tool("/mcp", i))
        port = peer.stdout.readline().strip()
        for name, words in (("http.server, http.client", []), ("http.server, requests", ["requests"])):
            done = subprocess.run([o.requests, "-c", PEER_CLIENT, str(o.rounds), port, *words], capture_output=True, text=True)
            if done.returncode == 0:
                figures[name] = json.loads(done.stdout)
            else:
                print(f"no {name}: {done.stderr.splitlines()[-1]}", file=sys.stderr)
        try:
            figures["warm cell 1+1, HTTP"] = measure(o.rounds // 4, lambda i: ask(c, "POST", f"/v1/boxes/{box}/run", {"code": "1+1"}))
        except AssertionError as e:
            print("no warm cell:", str(e)[:200], file=sys.stderr)

        def many(n):
            own = Unix(str(folder / "s"))
            for i in range(n):
                ask(own, "POST", path, {"function": "echo", "args": [i]})

        begin = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            list(threads.map(many, [o.rounds // 4] * 8))
        rate = 8 * (o.rounds // 4) / (time.perf_counter() - begin)
        in_flight = beside.at_once(str(folder / "s"), 1000, 0.5)
        if o.model and o.model_python and pathlib.Path(o.model_python).exists():
            figures.update(beside.model_starts(o.build, o.model_python, o.model))
        shown = {name: {f"p{n}_us": sorted(t)[int(len(t) * n / 100)] * 1e6 for n in (5, 50, 95)} for name, t in figures.items()}
        print("(of a busy machine p5 says most)")
        for name, f in shown.items():
            print(f"{name:38} p5 {f['p5_us']:7.0f} µs  p50 {f['p50_us']:7.0f} µs  p95 {f['p95_us']:7.0f} µs")

        def ratio(one, other):
            return f"{one} ÷ {other} = {shown[one]['p50_us'] / shown[other]['p50_us']:.2f} (p5: {shown[one]['p5_us'] / shown[other]['p5_us']:.2f})"
        for name in [n for n in shown if n.startswith("call")]:
            for peer_name in [n for n in shown if n.startswith(("http.server", "warm"))]:
                print(ratio(peer_name, name))
        for one, other in (("tools/call, TCP", "call, TCP"), ("FastMCP, tools/call", "tools/call, TCP"),
                           ("a cached model, scoped sandbox", "a cached model, plain Python")):
            if one in shown:
                print(ratio(one, other))
        print(f"1,000 calls of a function that takes 0.5 s, all under way at once: {in_flight:.2f} s")
        print(f"8 callers at once: {rate:.0f} calls per second")
        if o.json:
            pathlib.Path(o.json).write_text(json.dumps({"figures": shown, "rate": rate}, indent=1))
    finally:
        peer.kill()
        if mcp_peer:
            mcp_peer[0].kill()
        server.terminate()
        server.wait(30)
        subprocess.run(["rm", "-rf", str(folder)], check=False)


if __name__ == "__main__":
    main()

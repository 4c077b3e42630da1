"""Calls of an echo function, beside what they are measured against in the same run: a warm cell, and an http.server with JSON.

run.py BUILD [--python PYTHON] [--rounds N] [--json FILE]. PYTHON is an interpreter with ipykernel, for the cell."""
import argparse
import concurrent.futures
import http.client
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ECHO = """
@expose
def echo(value): return value
@expose
async def echo_async(value): return value
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

# In a box: the stub's way.
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

# A stub without http.client, which takes longer than all the rest: one connection, one send, one receive.
LEAN = """
import json, socket, sys, time
rounds = int(sys.argv[1])
s = socket.create_connection(("127.0.0.1", 807)); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
def call(v):
    body = json.dumps({"service": "echo", "function": "echo", "args": [v]}).encode()
    s.sendall(b"POST /v1/grant/call HTTP/1.1\\r\\nHost: carrel\\r\\nContent-Length: %d\\r\\n\\r\\n%s" % (len(body), body))
    data = s.recv(65536)
    head, _, rest = data.partition(b"\\r\\n\\r\\n")
    size = int(head.lower().split(b"content-length:")[1].split(b"\\r\\n")[0])
    while len(rest) < size: rest += s.recv(65536)
    assert json.loads(rest)["result"] == v
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
    parser.add_argument("--json")
    o = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-bench-"))
    folder.chmod(0o755)
    server = subprocess.Popen([o.build / "carrel-server", "serve", "--socket", folder / "s", "--state", folder / "state", "--run", folder / "run",
                               "--set", f"templates.python.python={o.python}", "--set", "templates.python.pool=off"],
                              stdout=open(folder / "log", "wb"), stderr=subprocess.STDOUT)
    peer = subprocess.Popen(["/usr/bin/python3", "-c", PEER], stdout=subprocess.PIPE, text=True)
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
        ask(c, "POST", "/v1/services", {"name": "echo", "code": ECHO})
        path = "/v1/services/echo/call"
        figures["call, HTTP"] = measure(o.rounds, lambda i: ask(c, "POST", path, {"function": "echo", "args": [i]}))
        figures["call of an async function, HTTP"] = measure(o.rounds, lambda i: ask(c, "POST", path, {"function": "echo_async", "args": [i]}))
        box = ask(c, "POST", "/v1/boxes", {"template": "python"})["id"]
        ask(c, "POST", "/v1/grants", {"service": "echo", "box": box})
        run = lambda code, *words: json.loads(ask(c, "POST", f"/v1/boxes/{box}/exec", {"argv": ["/usr/bin/python3", "-c", code, *words]})["stdout"])  # noqa: E731
        figures["call, from a box through its inlet"] = run(STUB, str(o.rounds))
        figures["the same, a stub without http.client"] = run(LEAN, str(o.rounds))
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
        shown = {name: {"p50_us": statistics.median(t) * 1e6, "p95_us": sorted(t)[int(len(t) * 0.95)] * 1e6} for name, t in figures.items()}
        for name, f in shown.items():
            print(f"{name:38} p50 {f['p50_us']:7.0f} µs  p95 {f['p95_us']:7.0f} µs")
        for name in [n for n in shown if n.startswith(("call", "the same"))]:
            for peer_name in [n for n in shown if n.startswith(("http.server", "warm"))]:
                print(f"{peer_name} ÷ {name} = {shown[peer_name]['p50_us'] / shown[name]['p50_us']:.1f}")
        print(f"8 callers at once: {rate:.0f} calls per second")
        if o.json:
            pathlib.Path(o.json).write_text(json.dumps({"figures": shown, "rate": rate}, indent=1))
    finally:
        peer.kill()
        server.terminate()
        server.wait(30)
        subprocess.run(["rm", "-rf", str(folder)], check=False)


if __name__ == "__main__":
    main()

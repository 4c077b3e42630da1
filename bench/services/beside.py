"""What run.py measures beside its calls: tools of MCP and the server of MCP's own package, a thousand calls at once, the start with a model."""
import http.client
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

# The server that MCP's own package makes of a function, without sessions and streams.
MCP_PEER = """
import sys
from mcp.server import MCPServer
m = MCPServer("peer", log_level="ERROR")
@m.tool()
def echo(value: int) -> int: return value
m.run(transport="streamable-http", host="127.0.0.1", port=int(sys.argv[1]), json_response=True, stateless_http=True)
"""

# A model in a fresh program, as plain Python loads it and in a scoped sandbox: prints the seconds until it is there.
LOAD = "from transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained(%s)\n"
PLAIN_MODEL = "import sys, time\nbegin = time.perf_counter()\n" + LOAD % "sys.argv[1]" + "print(time.perf_counter() - begin)\n"
INTERFACE = LOAD % "get_model_path('a/model')" + "@expose\ndef layers():\n    return model.config.num_hidden_layers\n"
SCOPED_MODEL = """
import os, pathlib, sys, tempfile, time
begin = time.perf_counter()
os.environ["CARREL_MODELS"] = "a/model=" + sys.argv[1]
from carrel.environment import ModelConfig, SandboxConfig, ScopedSandbox
with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, ScopedSandbox(SandboxConfig(models=[ModelConfig(name="a/model")])) as scoped:
    path = pathlib.Path(folder) / "interface.py"
    path.write_text(sys.argv[2])
    scoped.serve(path, expose_as="library", name="tools")
    print(time.perf_counter() - begin)
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Tcp:
    """A connection as the peers have it."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def post(self, path, body):
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"})
        answer = self.connection.getresponse()
        data = answer.read()
        assert answer.status in (200, 201), (answer.status, data)
        return json.loads(data)

    def tool(self, path, value):
        answer = self.post(path, {"jsonrpc": "2.0", "id": value, "method": "tools/call", "params": {"name": "echo", "arguments": {"value": value}}})
        assert answer["result"]["content"][0]["text"] == str(value), answer


def start_mcp_peer(python):
    """(process, connection); None if the interpreter has no such package."""
    port = free_port()
    process = subprocess.Popen([python, "-c", MCP_PEER, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        try:
            Tcp(port).tool("/mcp", 1)
            return process, Tcp(port)
        except OSError:
            time.sleep(0.1)
    process.kill()
    print("no FastMCP:", process.communicate()[1].splitlines()[-1:], file=sys.stderr)
    return None


def at_once(path, n, seconds):
    """How long n calls of a function that takes so many seconds take, all under way at the same time."""
    body = json.dumps({"function": "later", "args": [seconds]}).encode()
    request = b"POST /v1/services/echo/call HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    socks = []
    try:
        for _ in range(n):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(60)
            s.connect(path)
            socks.append(s)
        begin = time.perf_counter()
        for s in socks:
            s.sendall(request)
        for s in socks:
            assert b" 200 " in s.recv(65536).split(b"\r\n")[0]
        return time.perf_counter() - begin
    finally:
        for s in socks:
            s.close()


def model_starts(build, python, model):
    """Seconds of three starts each, in turns, after one each for the caches."""
    environment = {**os.environ, "CARREL_BIN": str(build.resolve() / "carrel"), "CARREL_GUEST": str(build.resolve() / "guest"),
                   "PYTHONPATH": str(pathlib.Path(__file__).resolve().parents[2] / "sdk/python")}
    took = {"a cached model, plain Python": [], "a cached model, scoped sandbox": []}
    for i in range(4):
        for name, code in zip(took, (PLAIN_MODEL, SCOPED_MODEL)):
            done = subprocess.run([python, "-c", code, model, INTERFACE], env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            took[name] += [float(done.stdout.split()[-1])] * (i > 0)
    return took

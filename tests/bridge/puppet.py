"""The beginning of a program that stands where a kernel would and says what a test wants."""
PUPPET = """
import hashlib, hmac, json, sys, time, zmq
c = json.load(open(sys.argv[1]))
ctx = zmq.Context()
def bind(kind, port):
    s = ctx.socket(kind); s.bind(f"ipc://{c['ip']}-{c[port]}"); return s
shell, control, stdin = (bind(zmq.ROUTER, p) for p in ("shell_port", "control_port", "stdin_port"))
iopub = bind(zmq.PUB, "iopub_port")
n = 0
def send(socket, first, kind, parent, content, key=c["key"]):
    global n
    n += 1
    parts = [json.dumps(p).encode() for p in ({"msg_type": kind, "msg_id": str(n), "session": "s"}, parent, {}, content)]
    socket.send_multipart([first, b"<IDS|MSG>", hmac.new(key.encode(), b"".join(parts), hashlib.sha256).hexdigest().encode(), *parts])
"""

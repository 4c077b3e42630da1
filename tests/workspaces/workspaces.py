"""A person with a workspace: runs examples/workspaces/workspace as its README says, and talks to its JupyterLab through the forwarded port."""
import datetime
import json
import re
import subprocess
import urllib.error
import urllib.request
import uuid

import websocket

from support import BUILD, REPOSITORY
from support.ports import free_port
from support.users import user_command

SCRIPT = REPOSITORY / "examples/workspaces/workspace"
WAIT_S = 600        # the first time, packages are installed


class Cell(list):
    """The texts that a cell gave, in their order; `error` is the name of its exception."""
    error = None

    @property
    def text(self):
        return "".join(self)


class Person:
    def __init__(self, server, name, client=None, user=None, size="256M"):
        """With a client: over TCP with its token. Else on the socket, as that user."""
        self.server, self.name, self.client, self.user, self.forwarding = server, name, client, user, None
        url = f"http://127.0.0.1:{server.port}" if client else server.url
        self.settings = {"CARREL": BUILD / "carrel", "CARREL_URL": url, "WORKSPACE_SIZE": size, **({"CARREL_TOKEN": client.token} if client else {})}

    def command(self, *words):
        return [*user_command(self.user), "env", *(f"{k}={v}" for k, v in self.settings.items()), *map(str, words)]

    @staticmethod
    def script(*words):
        return ["sh", SCRIPT, *words]

    def run(self, *words):
        return subprocess.run(self.command(*words), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WAIT_S, cwd="/")

    def do(self, *words):
        done = self.run(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def carrel(self, *words):
        return self.do(BUILD / "carrel", *words)

    def up(self, *options):
        return self.do(*self.script("up", self.name, *options))

    def down(self):
        self.close()
        return self.do(*self.script("down", self.name))

    def open(self):
        """`workspace open`; the address that it prints."""
        self.close()
        self.port = free_port()
        self.forwarding = subprocess.Popen(self.command(*self.script("open", self.name, self.port)), stdout=subprocess.PIPE, text=True, cwd="/")
        self.address = self.forwarding.stdout.readline().strip()
        self.token = re.fullmatch(rf"http://{self.name}\.localhost:{self.port}/lab\?token=([\w-]+)", self.address)[1]
        assert self.forwarding.stdout.readline() == f"127.0.0.1:{self.port} -> {self.name}:8888\n"
        return self.address

    def close(self):
        if self.forwarding:
            self.forwarding.terminate()
            self.forwarding.wait(60)
            self.forwarding.stdout.close()
            self.forwarding = None

    def ask(self, method, path, body=None, token=None):
        """The status and the JSON of JupyterLab's own API."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method, data=json.dumps(body).encode() if body is not None else None,
                                         headers={"Authorization": "token " + (token or self.token)})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text[:1] in (b"{", b"[") else text
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def kernel(self):
        status, kernel = self.ask("POST", "/api/kernels", {"name": "python3"})
        assert status == 201, kernel
        return kernel["id"]

    def execute(self, code, kernel=None, timeout_s=300):
        """Runs a cell through JupyterLab's WebSocket, as its page does."""
        kernel, message = kernel or self.kernel(), uuid.uuid4().hex
        head = {"msg_id": message, "msg_type": "execute_request", "username": "", "session": uuid.uuid4().hex, "version": "5.3",
                "date": datetime.datetime.now(datetime.timezone.utc).isoformat()}
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False, "stop_on_error": True}
        ws = websocket.create_connection(f"ws://127.0.0.1:{self.port}/api/kernels/{kernel}/channels?token={self.token}", timeout=timeout_s)
        try:
            ws.send(json.dumps({"header": head, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell", "buffers": []}))
            cell = Cell()
            while True:
                answer = json.loads(ws.recv())
                if answer["parent_header"].get("msg_id") != message:
                    continue
                kind, content = answer["msg_type"], answer["content"]
                if kind == "execute_result":
                    cell.append(content["data"]["text/plain"])
                elif kind == "stream":
                    cell.append(content["text"])
                elif kind == "error":
                    cell.error = content["ename"]
                    cell.append(f"{content['ename']}: {content['evalue']}")
                elif kind == "status" and content["execution_state"] == "idle":
                    return cell
        finally:
            ws.close()

    def processor_ms(self):
        """What the box has used, by the counter of its cgroup."""
        (box,) = json.loads(self.carrel("stats", self.name, "--json"))
        return box["cpu_ms"]

"""Many connections, programs that do not read, upstreams that send anything: the broker stays small and serves the next request."""

import pathlib
import subprocess

from keys import HOST, command, variables

from support.processes import children, descriptors, resident_bytes
from support.waiting import wait_for


def broker_of(pid):
    for child in children(pid):
        if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == "carrel-broker":
            return child
        if found := broker_of(child):
            return found
    return None


class Box:
    """A Python in a box that runs a line at a time."""

    def __init__(self, upstream, carrel=None):
        code = "import sys\nfor line in sys.stdin: exec(line.encode().decode('unicode_escape'), globals()); print('done', flush=True)"
        self.process = upstream.world.host.start(*command(None, ["-i", "--pids", "2000", "--nofile", "4000"], "python3", "-c", code, carrel=carrel), env=variables(),
                                                 cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
        self.run("import os, socket, ssl, threading\ncontext = ssl.create_default_context()\n"
                 f"def connect():\n    s = socket.create_connection(('{HOST}', 443), timeout=60); s = context.wrap_socket(s, server_hostname='{HOST}'); return s\n"
                 f"def send(s, path): s.sendall(b'GET %s HTTP/1.1\\r\\nHost: {HOST}\\r\\nAuthorization: Bearer %s\\r\\n\\r\\n' % (path.encode(), os.environ['API_KEY'].encode()))\n"
                 "def hears(s):\n    got = b''\n    while not got.endswith(b'hello\\n'):\n        more = s.recv(4000)\n        if not more: return False\n        got += more\n"
                 "    return True\n")  # fmt: skip
        self.broker = broker_of(self.process.pid)

    def run(self, code):
        self.process.stdin.write(code.encode("unicode_escape").decode() + "\n")
        self.process.stdin.flush()
        said = []
        while (line := self.process.stdout.readline()) != "done\n":
            assert line, self.process.stderr.read()
            said.append(line.strip())
        return said

    def works(self):
        return self.run("s = connect(); send(s, '/hello'); print(hears(s)); s.close()") == ["True"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)
        return self.process.stderr.read()


def test_two_hundred_programs_at_once(upstream):
    box = Box(upstream)
    said = box.run("""
good = []
def one():
    s = connect(); send(s, '/hello'); good.append(hears(s)); s.close()
threads = [threading.Thread(target=one) for _ in range(200)]
for t in threads: t.start()
for t in threads: t.join()
print(sum(good))
""")
    assert said == ["200"]
    box.close()


def test_more_connections_than_a_box_can_have_end_and_leave_nothing(upstream):
    box = Box(upstream)
    before = len(descriptors(box.broker))
    said = box.run("""
kept = []
for _ in range(300):
    try: kept.append(connect())
    except OSError: pass
print(len(kept))
""")
    assert said == ["256"]
    used = resident_bytes(box.broker)
    assert used < 64 << 20, used
    assert box.run("for s in kept: s.close()\nkept = []") == []
    wait_for(lambda: len(descriptors(box.broker)) == before, "all descriptors are closed")
    assert box.works()
    box.close()


def test_programs_that_do_not_read_cost_a_bounded_amount(upstream):
    box = Box(upstream)
    box.run("slow = [connect() for _ in range(40)]\nfor s in slow: send(s, '/bytes?100000000')")
    wait_for(lambda: box.works(), "others are served")
    used = resident_bytes(box.broker)
    assert used < 64 << 20, used
    box.close()


def test_an_upstream_that_sends_anything(upstream, checked):
    box = Box(upstream, carrel=checked)
    code = """
for i in range(%d, %d):
    s = connect(); send(s, '/anything?%%d' %% i)
    try:
        while s.recv(65536): pass
    except OSError: pass
    s.close()
"""
    box.run(code % (0, 300))
    assert box.works()
    words = box.close()
    assert "ERROR" not in words and "runtime error" not in words, words

import http.cookiejar
import json
import socket
import urllib.parse
import urllib.request

import pytest

from support.waiting import wait_for

ECHO = r"""
import socket, threading
s = socket.create_server(("127.0.0.1", 9000))
def serve(c):
    while data := c.recv(65536):
        c.sendall(data)
    c.sendall(b"<end>"); c.close()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""

FLOOD = r"""
import socket, threading
s = socket.create_server(("127.0.0.1", 9002))
def serve(c):
    while c.recv(65536):
        pass
    c.sendall(bytes(16 << 20)); c.close()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""

WEB = r"""
import base64, hashlib, http.server, json, urllib.parse
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade") == "websocket":
            key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.send_response(101)
            for k, v in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())):
                self.send_header(k, v)
            self.end_headers()
            self.wfile.write(b"\x82\x05hello")
            return
        n = int(self.headers.get("Content-Length", 0))
        body = json.dumps({"method": self.command, "path": self.path, "headers": dict(self.headers), "body": self.rfile.read(n).decode()}).encode()
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        for k in ("Service-Worker-Allowed", "clear-site-data", "Strict-Transport-Security", "Alt-Svc", "NEL", "Report-To", "X-Kept"):
            self.send_header(k, "/")
        for cookie in urllib.parse.parse_qs(self.path.partition("?")[2]).get("cookie", []):
            self.send_header("Set-Cookie", cookie)
        self.end_headers()
        if self.command != "HEAD": self.wfile.write(body)
    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_HEAD = do_GET
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), H).serve_forever()
"""


def serve(client, box, program, port):
    assert client.put(box + "/files/tmp/server.py", program.encode()).status == 200
    assert client.post(box + "/exec", {"argv": ["python3", "/tmp/server.py"], "background": True}).status == 202
    up = {"argv": ["python3", "-c", f"import socket; socket.create_connection(('127.0.0.1', {port}))"]}
    wait_for(lambda: client.post(box + "/exec", up).json["exit_code"] == 0)


@pytest.fixture
def web(alice, box):
    serve(alice, box, WEB, 8000)
    return box + "/ports/8000"


def test_a_port_may_keep_its_prefix(alice, make_box):
    box = "/v1/boxes/" + make_box(labels={"carrel/keep-prefix": "80, 8000"})["id"]
    serve(alice, box, WEB, 8000)
    assert alice.get(box + "/ports/8000/a%20b?x=1").json["path"] == box + "/ports/8000/a%20b?x=1"
    assert alice.patch(box, {"labels": {"carrel/keep-prefix": "800"}}).status == 200
    assert alice.get(box + "/ports/8000/a%20b?x=1").json["path"] == "/a%20b?x=1"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_requests_reach_the_server_in_the_box(alice, web, method):
    got = alice.ask(method, web + "/a%20b/c?x=1&y=%26", "body" if method in ("POST", "PUT", "PATCH") else None)
    assert got.status == 201
    assert (got.json["method"], got.json["path"]) == (method, "/a%20b/c?x=1&y=%26")
    assert got.json["body"] == ("body" if method in ("POST", "PUT", "PATCH") else "")


def test_secrets_stay_outside(alice, web):
    got = alice.get(web + f"/?token={alice.token}&token=theirs&z=1").json
    assert alice.token not in json.dumps(got) and got["path"] == "/?token=theirs&z=1"
    other = alice.get(web, headers={"Authorization": "Bearer " + alice.token, "Cookie": "a=b", "X-Mine": "1"}).json
    assert other["path"] == "/" and "Authorization" not in other["headers"]
    assert other["headers"]["X-Mine"] == "1" and other["headers"]["X-Forwarded-Prefix"].endswith("/ports/8000")


def test_a_box_does_not_speak_for_the_whole_origin(alice, web):
    got = alice.get(web + "/").headers
    assert got["X-Kept"] == "/"
    for name in ("Service-Worker-Allowed", "Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc", "NEL", "Report-To"):
        assert name not in got


def cookies_of(client, path, *cookies):
    return client.get(path + "?" + urllib.parse.urlencode([("cookie", c) for c in cookies])).headers.get_all("Set-Cookie", [])


def test_cookies_of_a_box_hold_at_its_port_only(alice, make_box):
    made = make_box(name="baker")
    by_id, by_name = [f"/v1/boxes/{name}/ports/8000" for name in (made["id"], "baker")]
    serve(alice, "/v1/boxes/baker", WEB, 8000)
    all = "a=1; Path=/; HttpOnly", "b=2; Domain=localhost; Path=/app", "__Host-c=3; Secure; Path=/", "d=4"
    for at in by_id, by_name:
        assert cookies_of(alice, at + "/x/y", *all) == [f"a=1; HttpOnly; Path={at}", f"b=2; Path={at}/app", "d=4"]
        assert cookies_of(alice, at, "d=4") == [f"d=4; Path={at}"]      # else it would be of all ports of the box
    # A program that was told where it is says so itself; X-Forwarded-Prefix has the id.
    assert cookies_of(alice, by_name + "/", f"a=1; Path={by_id}/") == [f"a=1; Path={by_id}/"]
    assert cookies_of(alice, by_id + "/", f"a=1; Path={by_id}0/") == [f"a=1; Path={by_id}{by_id}0/"]


def test_a_page_gets_its_own_cookies_back(alice, web):
    """As a browser does it, with one jar for the whole origin."""
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    opener.addheaders = [("Authorization", f"Bearer {alice.token}")]

    def sent(path):
        with opener.open(f"http://127.0.0.1:{alice.where[1]}{path}", timeout=60) as answer:
            return json.load(answer)["headers"].get("Cookie")

    assert sent(web + "/login?" + urllib.parse.urlencode({"cookie": "session=s; Path=/; HttpOnly"})) is None
    assert sent(web + "/") == sent(web + "/a/b") == sent(web) == "session=s"
    for other in "/v1/boxes", "/", "/v1/boxes/other/ports/8000/", web.removesuffix("8000") + "9000/":
        request = urllib.request.Request(f"http://127.0.0.1:{alice.where[1]}{other}")
        jar.add_cookie_header(request)
        assert not request.has_header("Cookie"), other


def test_head_and_websocket_pass(alice, web):
    assert alice.ask("HEAD", web + "/").status == 201
    ws = alice.websocket(web + "/socket")
    assert ws.status == 101 and ws.receive() == b"hello"


def test_where_nothing_listens_the_error_says_so(alice, box):
    got = alice.get(box + "/ports/4444/")
    assert (got.status, got.code) == (502, "connection_refused") and "4444" in got.json["error"]["message"]


@pytest.mark.parametrize("port", ["0", "65536", "x", "080", "-1", "1e3"])
def test_ports_are_numbers(alice, box, port):
    assert alice.get(f"{box}/ports/{port}/").status == 400


def open_tunnel(client, box, port):
    s = client.raw_socket()
    s.sendall(f"POST {box}/tunnel/{port} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {client.token}\r\n"
              "Connection: Upgrade\r\nUpgrade: carrel-tunnel\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = s.recv(1)
        assert byte, head
        head += byte
    return s, int(head.split()[1])


def test_what_a_box_sent_before_it_closed_arrives_through_a_tunnel(alice, box):
    """Both have closed their sides, and the client reads only then: far more than is held for him."""
    serve(alice, box, FLOOD, 9002)
    s, status = open_tunnel(alice, box, 9002)
    assert status == 101
    s.settimeout(60)
    s.shutdown(socket.SHUT_WR)
    size = 0
    while data := s.recv(4096 if size < 1 << 20 else 1 << 20):
        size += len(data)
    assert size == 16 << 20
    s.close()


def test_a_tunnel_carries_bytes_both_ways(alice, box):
    serve(alice, box, ECHO, 9000)
    s, status = open_tunnel(alice, box, 9000)
    assert status == 101
    sent = bytes(range(256)) * 4000
    got = b""
    s.settimeout(60)
    for at in range(0, len(sent), 32768):
        piece = sent[at:at + 32768]
        s.sendall(piece)
        want = len(got) + len(piece)
        while len(got) < want:
            data = s.recv(65536)
            assert data, "the tunnel ended"
            got += data
    assert got == sent
    s.close()
    refused, status = open_tunnel(alice, box, 9001)
    assert status == 502
    assert alice.post(box + "/tunnel/9000").status == 426

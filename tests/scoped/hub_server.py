"""A hub on loopback that serves models of a folder under any names, as far as huggingface_hub asks it: listing, trees, files with ranges. It can break off
in the middle of a file, be gated, be short of space, keep large files under another name (a redirect), lie in its listing, and speak TLS."""
import argparse
import hashlib
import http.server
import json
import pathlib
import re
import ssl
import sys
import threading
from urllib.parse import unquote

COMMIT = "c0ffee" + "0" * 34


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def answer(self, status, body=b"", **headers):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub = self.server
        path = unquote(self.path.split("?")[0])
        hub.asked.append((self.command, path, self.headers.get("Authorization")))
        hub.tokens.append((self.headers.get("Host", "").split(":")[0], self.headers.get("Authorization")))
        stored = re.fullmatch(r"/stored/([^/]+/[^/]+)/(.+)", path)
        if stored:
            return self.file(hub.models[stored[1]] / stored[2])
        if re.fullmatch(r"/api/models/[^/]+/[^/]+/tree/[^/]+/.+", path):       # transformers looks for a folder of templates
            return self.answer(404, {"error": "no such folder"}, X_Error_Code="EntryNotFound")
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/[^/]+)?", path)
        if match:
            folder = hub.models.get(match[1])
            if folder is None:
                return self.answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
            if match[2] == "tree":
                return self.answer(200, [{"type": "file", "path": f.name, "size": f.stat().st_size, "oid": etag(f)} for f in files(folder)])
            return self.answer(200, {"id": match[1], "modelId": match[1], "sha": hub.commit, "private": False,
                                     "siblings": hub.change([self.sibling(f) for f in files(folder)])})
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path)
        if not match or match[1] not in hub.models:
            return self.answer(404, {"error": "not found"}, X_Error_Code="RepoNotFound")
        if hub.gated and self.headers.get("Authorization") != f"Bearer {hub.gated}":
            words = f"Access to model {match[1]} is restricted. You must have access to it and be authenticated to access it. Please log in."
            return self.answer(401, {"error": words}, X_Error_Code="GatedRepo", X_Error_Message=words)
        path = hub.models[match[1]] / match[2]
        if hub.store and path.is_file() and is_large(path):
            where = f"{'https' if hub.certificate else 'http'}://{hub.store}:{hub.store_port}/stored/{match[1]}/{match[2]}"
            return self.answer(302, b"", Location=where, ETag=f'"{etag(path)}"', X_Repo_Commit=COMMIT, X_Linked_Size=str(path.stat().st_size),
                               X_Linked_ETag=f'"{etag(path)}"')
        self.file(path)

    def sibling(self, path):
        size = self.server.sizes.get(path.name, path.stat().st_size)
        lfs = {"lfs": {"sha256": etag(path), "size": size, "pointerSize": 130}} if is_large(path) else {}
        return {"rfilename": path.name, "size": size, "blobId": git_id(path), **lfs}

    def file(self, path):
        hub = self.server
        if not path.is_file():
            return self.answer(404, {"error": "no such file"}, X_Error_Code="EntryNotFound")
        size = path.stat().st_size
        begin, end, status = 0, size, 200
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked:
            begin, status = int(asked[1]), 206
            end = int(asked[2]) + 1 if asked[2] else size
        self.send_response(status)
        for name, value in {"Content-Length": str(end - begin), "Accept-Ranges": "bytes", "ETag": f'"{etag(path)}"', "X-Repo-Commit": COMMIT,
                            "X-Linked-Size": str(size), "X-Linked-ETag": f'"{etag(path)}"'}.items():
            self.send_header(name, value)
        if status == 206:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
        self.end_headers()
        if self.command == "HEAD":
            return
        hub.served.append((path.name, begin))
        if hub.log:
            with open(hub.log, "a") as log:
                print(path.name, file=log)
        if path.name in hub.breaks:
            end = begin + min(hub.breaks.pop(path.name), end - begin)
            self.close_connection = True
        with open(path, "rb") as data:
            data.seek(begin)
            while begin < end:
                if begin >= hub.pauses.get(path.name, end):
                    hub.resume.wait(60)
                    hub.pauses.pop(path.name, None)
                piece = data.read(min(1 << 20, end - begin))
                self.wfile.write(piece)
                begin += len(piece)
        if self.close_connection:
            self.wfile.flush()
            self.connection.shutdown(2)


def files(folder):
    return sorted(f for f in folder.iterdir() if f.is_file())


def is_large(path):
    return path.stat().st_size > 1 << 20


def once(digest, known={}):
    def of(path):
        key = digest.__name__, path, path.stat().st_mtime_ns, path.stat().st_size
        if key not in known:
            known[key] = digest(path)
        return known[key]
    return of


@once
def git_id(path):
    """What git calls a file; of a large one it is that of a pointer, of which nobody knows anything here."""
    data = b"pointer" if is_large(path) else path.read_bytes()
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()


@once
def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def etag(path):
    return sha256(path) if is_large(path) else git_id(path)


class Hub(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, models, address=("127.0.0.1", 0), log=None, certificate=None):
        super().__init__(address, Handler)
        self.certificate = certificate
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.log = log
        self.models = {name: pathlib.Path(folder) for name, folder in models.items()}
        self.asked, self.served, self.breaks, self.sizes, self.gated = [], [], {}, {}, None
        self.tokens, self.store, self.commit, self.change = [], None, COMMIT, lambda listed: listed
        self.store_port = self.server_address[1]
        self.pauses, self.resume = {}, threading.Event()       # a file stops there until it may go on
        self.thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://{self.server_address[0]}:{self.server_address[1]}"

    def end(self):
        self.shutdown()
        self.server_close()
        self.thread.join()


if __name__ == "__main__":      # hub_server.py [--bind ADDRESS:PORT] [--log FILE] NAME=FOLDER...: prints its address, answers until its input ends
    parser = argparse.ArgumentParser()
    parser.add_argument("--bind", default="127.0.0.1:0")
    parser.add_argument("--log", help="a line with the name of each file that is served")
    parser.add_argument("models", nargs="*")
    given = parser.parse_args()
    host, port = given.bind.rsplit(":", 1)
    hub = Hub(dict(word.split("=", 1) for word in given.models), (host, int(port)), given.log)
    print(hub.url, flush=True)
    sys.stdin.read()

"""usage: python3 -m rig.registry PORT   A registry with the images that were loaded into containerd, so that `imagePullPolicy: Always` finds them.

It answers for every registry's name (`?ns=`): containerd is told to ask here alone (config.py). Names come from `ctr`, content from containerd's
own store. What was not loaded is not found, at once, instead of after the time-outs of a network that is not there."""
import http.server
import json
import re
import shutil
import subprocess
import sys
import urllib.parse

from .layout import INSIDE

CONTENT = INSIDE / "containerd/io.containerd.content.v1.content/blobs/sha256"
PATH = re.compile(r"/v2/(.+)/(manifests|blobs)/(.+)")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def digest_of(image):
    """Of a loaded image, by its whole name; None: there is none."""
    listed = subprocess.run(["ctr", "-a", INSIDE / "containerd.sock", "-n", "k8s.io", "images", "ls", f"name=={image}"],
                            capture_output=True, text=True, timeout=30, check=False).stdout
    found = [line for line in listed.splitlines() if line.split()[:1] == [image]]
    return DIGEST.search(found[0])[0] if found else None


def media_type(data):
    """Of a manifest, or of an index of them."""
    manifest = json.loads(data)
    return manifest.get("mediaType") or f"application/vnd.oci.image.{'index' if 'manifests' in manifest else 'manifest'}.v1+json"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        wanted = PATH.fullmatch(url.path)
        if not wanted:
            self.answer(200 if url.path == "/v2/" else 404, b"{}")
            return
        name, what, reference = wanted.groups()
        if not DIGEST.fullmatch(reference):
            host = urllib.parse.parse_qs(url.query).get("ns", ["docker.io"])[0]
            reference = digest_of(f"{host}/{name}:{reference}")
        path = CONTENT / reference.split(":")[1] if reference else None
        if not path or not path.exists():
            told = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "this image was not loaded into the cluster (kind load, cluster load)"}]}
            self.answer(404, json.dumps(told).encode())
        elif what == "manifests":
            data = path.read_bytes()
            self.answer(200, data, media_type(data), reference)
        else:
            with path.open("rb") as blob:
                self.answer(200, None, "application/octet-stream", reference, path.stat().st_size)
                if self.command == "GET":
                    shutil.copyfileobj(blob, self.wfile)

    do_HEAD = do_GET

    def answer(self, status, data, kind="application/json", digest=None, size=None):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data) if data is not None else size))
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
        if data is not None and self.command == "GET":
            self.wfile.write(data)


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

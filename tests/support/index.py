"""An index of packages on loopback: wheels of a folder, and small packages that the tests make."""
import hashlib
import http.server
import io
import os
import subprocess
import sys
import tarfile
import threading
import zipfile

from support import BUILD

FETCH_S = 300
# Where tests put layers: in memory, because removing a hundred thousand small files takes minutes on disks that discard at once.
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def wheel(name, version, files=None, requires=(), tag="py3-none-any"):
    data = io.BytesIO()
    info = f"{name}-{version}.dist-info"
    files = {f"{name}.py": f"version = {version!r}\n",
             f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(f"Requires-Dist: {r}\n" for r in requires),
             f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n", **(files or {})}
    with zipfile.ZipFile(data, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)       # its date is fixed: the same package has the same hash
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD"), "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"]))
    return f"{name}-{version}-{tag}.whl", data.getvalue()


def sdist(name, version, setup):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path, text in {"setup.py": setup, "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"}.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return f"{name}-{version}.tar.gz", data.getvalue()


class Index:
    """PEP 503, over HTTP."""

    def __init__(self, wheelhouse=None):
        self.files = {path.name: path.read_bytes() for path in wheelhouse.glob("*.whl")} if wheelhouse else {}
        self.asked = []
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                index.asked.append(self.path)
                index.answer(self)

            do_HEAD = do_GET

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://index.localhost:{self.server.server_port}/simple"

    def add(self, made):
        """Returns its hash, as a requirements file has it."""
        self.files[made[0]] = made[1]
        return "--hash=sha256:" + hashlib.sha256(made[1]).hexdigest()

    def add_wheels(self, version):
        """Those of a layer for another version of Python; the wheelhouse has our own's. Kept: fetching takes a while."""
        place = BUILD / f"wheelhouse-{version}"
        if not (place / ".done").exists():
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", place, "--only-binary", ":all:",
                            "--python-version", version, "ipykernel"], check=True, timeout=FETCH_S)
            (place / ".done").touch()
        self.files.update((path.name, path.read_bytes()) for path in place.glob("*.whl"))

    def answer(self, request):
        words = [w for w in request.path.split("/") if w]
        if len(words) == 2 and words[0] == "simple":
            names = [f for f in self.files if f.split("-")[0].replace("_", "-").lower() == words[1]]
            page = "".join(f'<a href="/files/{f}#sha256={hashlib.sha256(self.files[f]).hexdigest()}">{f}</a>\n' for f in sorted(names)).encode()
            self.send(request, page, "text/html") if names else request.send_error(404)
        elif len(words) == 2 and words[0] == "files" and words[1] in self.files:
            self.send(request, self.files[words[1]], "application/octet-stream")
        else:
            request.send_error(404)

    @staticmethod
    def send(request, data, kind):
        request.send_response(200)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(data)

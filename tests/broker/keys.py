"""What the tests of the broker share: an upstream in the world of egress's tests, and boxes with keys for it."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

from outside import CARREL
from support.users import user_command

HERE = pathlib.Path(__file__).parent
VALUE = "sk-real-0123456789-abcdefghijklmnop"
HOST = "api.keys.test"
CERTIFICATES = "/etc/ssl/certs"


def openssl(*words, **options):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, **options)


class Upstream:
    def __init__(self, world):
        self.world, self.folder = world, world.folder / "upstream"
        self.folder.mkdir(mode=0o755)
        for name in ("root", "stranger"):
            self.authority(name)
        for name, issuer, alternative in (("api", "root", "api.keys.test"), ("other", "root", "other.keys.test"),
                                          ("untrusted", "stranger", "untrusted.keys.test"), ("misnamed", "root", "elsewhere.keys.test")):  # fmt: skip
            self.certificate(name, issuer, alternative)
        # The folder as a whole: an ordinary user's box could not have one in which others are mounted.
        certificates = self.folder / "certs"
        shutil.copytree(CERTIFICATES, certificates, symlinks=True)
        with open(certificates / "ca-certificates.crt", "a") as bundle:
            bundle.write((self.folder / "root.crt").read_text())
        world.host.run("mount", "--bind", certificates, CERTIFICATES)
        world.world.ip("".join(f"addr add 203.0.113.{n}/24 dev inside\n" for n in (20, 21, 22)))
        self.notes = self.folder / "notes"
        self.process = world.world.start(sys.executable, "-B", HERE / "upstream.py", self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"ready\n"

    def authority(self, name):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                "-keyout", self.folder / f"{name}.key", "-out", self.folder / f"{name}.crt")  # fmt: skip

    def certificate(self, name, issuer, alternative):
        at = self.folder / name
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{at}.key",
                "-addext", f"subjectAltName=DNS:{alternative}", "-out", f"{at}.csr")  # fmt: skip
        openssl("x509", "-req", "-in", f"{at}.csr", "-CA", self.folder / f"{issuer}.crt", "-CAkey", self.folder / f"{issuer}.key", "-days", "2",
                "-CAcreateserial", "-copy_extensions", "copy", "-out", f"{at}.crt")  # fmt: skip
        pathlib.Path(f"{at}.pem").write_text(pathlib.Path(f"{at}.key").read_text() + pathlib.Path(f"{at}.crt").read_text())

    def requests(self):
        """The heads and bodies that arrived since the last call."""
        text = self.notes.read_text()
        self.notes.write_text("")
        return [json.loads(line) for line in text.splitlines()]

    def heads(self):
        return [one["head"] for one in self.requests() if "head" in one]

    def close(self):
        self.process.terminate()
        self.process.wait(10)
        self.world.host.run("umount", CERTIFICATES)


def variables(value=VALUE):
    return {**os.environ, **({"API_KEY": value} if isinstance(value, str) else value)}


def command(user, options, *words, key=f"API_KEY@{HOST}", carrel=None):
    keys = [f"--key={one}" for one in ([key] if isinstance(key, str) else key)]
    return [*user_command(user), carrel or os.path.abspath(CARREL), "run", *keys, *map(str, options), "--", *map(str, words)]

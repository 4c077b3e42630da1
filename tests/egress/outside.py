"""Two network namespaces of the tests' own. `world` has servers and a resolver; `host` is the one where egress runs,
with a resolv.conf of its own. Boxes are made by `carrel run` in `host`."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

from support.waiting import wait_for

HERE = pathlib.Path(__file__).parent
CARREL = os.environ.get("CARREL", "build/carrel")


@dataclasses.dataclass
class Result:
    code: int
    out: str
    err: str
    report: dict

    @property
    def refused(self):
        return {(one["name"], one["port"]) for one in self.report.get("net", {}).get("refused", [])}


class Namespace:
    """A network and a mount namespace that live until close()."""

    def __init__(self):
        self.holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--", "sh", "-c", "echo up; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.holder.stdout.readline()
        self.enter = ["nsenter", "-t", str(self.holder.pid), "--net", "--mount", "--"]

    def run(self, *command, **options):
        return subprocess.run(
            [*self.enter, *map(str, command)],
            check=options.pop("check", True),
            timeout=options.pop("timeout", 60),
            **options,
        )

    def start(self, *command, **options):
        return subprocess.Popen([*self.enter, *map(str, command)], **options)

    def ip(self, text):
        for line in text.strip().splitlines():
            self.run("ip", *line.split())

    def close(self):
        self.holder.stdin.close()
        self.holder.wait(10)


class World:
    def __init__(self, folder):
        self.folder = folder
        self.host, self.world = Namespace(), Namespace()
        self.children = []
        self.wire()
        self.settings = folder / "resolv.conf"
        self.settings.write_text("nameserver 203.0.113.53\nsearch example.test\n")
        self.host.run("mount", "--bind", self.settings, os.path.realpath("/etc/resolv.conf"))
        self.certificate = folder / "key-and-certificate.pem"
        subprocess.run(
            [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=t",
                "-addext",
                "subjectAltName=DNS:good.test,DNS:*.wild.test,DNS:other.test",
                "-keyout",
                folder / "key.pem",
                "-out",
                folder / "certificate.pem",
            ],
            check=True,
            capture_output=True,
        )
        self.certificate.write_text((folder / "key.pem").read_text() + (folder / "certificate.pem").read_text())
        (folder / "certificate.pem").chmod(0o644)
        servers = self.world.start(
            sys.executable, "-B", HERE / "servers.py", self.certificate, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.children.append(servers)
        assert servers.stdout.readline() == b"ready\n"
        self.start_resolver()
        wait_for(
            lambda: self.host.run("nc", "-z", "-w1", "2001:db8:77::10", "7", check=False).returncode == 0,
            "IPv6 between host and world",
        )

    def wire(self):
        self.world.ip("link set lo up")
        self.host.ip("link set lo up")
        self.host.ip(f"link add outside type veth peer name inside netns {self.world.holder.pid}")
        self.host.ip("""addr add 203.0.113.1/24 dev outside
            addr add 10.77.0.1/24 dev outside
            -6 addr add 2001:db8:77::1/64 dev outside nodad
            link set outside up""")
        self.world.ip("""addr add 203.0.113.10/24 dev inside
            addr add 203.0.113.11/24 dev inside
            addr add 203.0.113.53/24 dev inside
            addr add 10.77.0.5/24 dev inside
            addr add 169.254.169.254/32 dev lo
            -6 addr add 2001:db8:77::10/64 dev inside nodad
            link set inside up""")
        # Everything leads to the world, so that only the policy keeps a box from it.
        self.host.ip("route add default via 203.0.113.10\n-6 route add default via 2001:db8:77::10")

    def start_resolver(self):
        records = [
            "good.test,203.0.113.10",
            "good.test,2001:db8:77::10",
            "four.test,203.0.113.10",
            "private.test,10.77.0.5",
            "meta.test,169.254.169.254",
            "own.test,203.0.113.1",
            "mixed.test,203.0.113.10",
            "mixed.test,10.77.0.5",
            "six.test,2001:db8:77::10",
            "mapped.test,::ffff:169.254.169.254",
            "loop.test,127.0.0.1",
            "ownmapped.test,::ffff:203.0.113.1",
            "owncompatible.test,::203.0.113.1",
            "ownnat64.test,64:ff9b::203.0.113.1",
            "nas.home.arpa,203.0.113.10",
            "late.test,203.0.113.99",
            "late.test,203.0.113.10",
            "priv.wild.test,10.77.0.5",
            "good.wild.test,203.0.113.11",
            "web.wild.test,203.0.113.12",
            "other.test,203.0.113.10",
            "good.example.test,203.0.113.10",
            *(f"{name}.keys.test,203.0.113.20" for name in ("api", "other", "untrusted", "misnamed")),
            "plain.keys.test,203.0.113.21",
            "silent.keys.test,203.0.113.22",
        ]
        hosts = self.folder / "hosts"
        hosts.write_text("".join("%s %s\n" % tuple(reversed(one.split(",", 1))) for one in records))
        hosts.chmod(0o644)
        resolver = self.world.start(
            "dnsmasq",
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
            f"--addn-hosts={hosts}",
            "--listen-address=203.0.113.53",
            "--bind-interfaces",
            "--user=root",
            "--pid-file=",
            "--local=/test/",
            "--max-ttl=600",
            "--local-ttl=30",
            "--server=/evil.test/127.0.0.1#5353",
            "--cname=alias.test,meta.test",
            "--cname=friend.test,good.test",
            "--log-facility=-",
            stderr=subprocess.PIPE,
        )
        self.children.append(resolver)
        while b"read" not in resolver.stderr.readline():
            assert resolver.poll() is None

    def box(self, options, *command, timeout=60, stdin=None, environment=()):
        """Runs a command in a box that was made in the host's namespace."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        done = self.host.run(
            os.path.abspath(CARREL),
            "run",
            "--report",
            report,
            "--mount",
            f"{self.folder / 'certificate.pem'}:/ca.pem:ro",
            *options,
            "--",
            *command,
            check=False,
            timeout=timeout,
            capture_output=True,
            text=True,
            input=stdin,
        )
        try:
            told = json.loads(report.read_text())
        except FileNotFoundError:
            told = {}
        return Result(done.returncode, done.stdout, done.stderr, told)

    def python(self, options, code, **more):
        return self.box(options, "python3", "-c", code, **more)

    def close(self):
        for child in self.children:
            child.terminate()
            child.wait(10)
        self.host.close()
        self.world.close()

"""carrel-egress driven over a link by hand, and boxes' networks made with ip and nft as the engine makes them."""

import array
import os
import pathlib
import select
import socket
import struct
import subprocess
import sys

from support.waiting import wait_for

HERE = pathlib.Path(__file__).parent
BOX, GONE, FRONT, POLICY, SHOW, REFUSED, FLOW, USAGE, BROKER, BROKERED, COMMAND = range(1, 12)
WAYS = {"hold": (0, 0x7F), "tproxy": (1, 0x0F)}
NONE, LISTED, PUBLIC = range(3)


def rule(text, denies=False):
    """A name, *.name or an IPv4 network, with a port or without."""
    what, _, port = text.partition(":")
    first, last = (int(port), int(port)) if port else (0, 65535)
    address, bits, kind = b"", 0, 0
    if what[0].isdigit():
        base, _, bits = what.partition("/")
        address, bits, kind, what = socket.inet_aton(base), int(bits or 32), 2, ""
    elif what.startswith("*."):
        kind, what = 1, what[2:]
    return struct.pack(
        "=BBBBHHB16s256s", kind, denies, bits, 0, first, last, len(address), address, what.encode()
    ).ljust(282, b"\0")


def policy(allow=(), deny=(), mode=LISTED, connections=0, rate=0):
    rules = [rule(one) for one in allow] + [rule(one, True) for one in deny]
    return struct.pack("=IIQIIII", connections, 0, rate, mode, len(rules), 0, 0) + b"".join(rules)


def text(data):
    return data.split(b"\0", 1)[0].decode()


class Egress:
    def __init__(self, world, program, folder, before=()):
        self.link, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.words = folder / "egress.err"
        environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
        with open(self.words, "wb") as words:
            self.process = world.host.start(
                *before,
                program,
                "--link-fd",
                its.fileno(),
                "--uid",
                64997,
                "--gid",
                64997,
                pass_fds=[its.fileno()],
                stderr=words,
                env=environment,
            )
        its.close()
        self.frames = []

    def send(self, kind, box, body=b"", serial=0, fds=()):
        data = struct.pack("=IIQ", kind, serial, box) + body
        self.link.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])

    def hear(self):
        while select.select([self.link], [], [], 0)[0] and (data := self.link.recv(65536)):
            kind, serial, box = struct.unpack_from("=IIQ", data)
            self.frames.append((kind, serial, box, data[16:]))

    def show(self, box, serial=77):
        """Connections as (name, port, sent, received), and usage as (sent, received, connections, refusals, live)."""
        self.send(SHOW, box, serial=serial)
        self.frames.clear()
        wait_for(lambda: self.hear() or any(f[0] == USAGE and f[1] == serial for f in self.frames), "an answer to SHOW")
        flows = [
            (text(f[3][32:288]), *struct.unpack_from("=H", f[3], 24), *struct.unpack_from("=QQ", f[3]))
            for f in self.frames
            if f[0] == FLOW
        ]
        return flows, struct.unpack_from("=QQQQI", next(f[3] for f in self.frames if f[0] == USAGE and f[1] == serial))

    def refused(self):
        """why, port, count, what, other of each event so far."""
        self.hear()
        return [
            (*struct.unpack_from("=IHxxQ", f[3]), text(f[3][24:280]), text(f[3][280:536]))
            for f in self.frames
            if f[0] == REFUSED
        ]

    def close(self):
        self.link.close()
        assert self.process.wait(20) == 0, self.words.read_text()
        return self.words.read_text()


class SharedEgress(Egress):
    """As a server starts it: for many boxes, with a link of the keeper's and one of the front's."""

    def __init__(self, world, program, folder, before=()):
        self.words, self.frames = folder / "egress.err", []
        place = folder / "egress.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, open(self.words, "wb") as words:
            listener.bind(str(place))
            listener.listen(8)
            options = ["--listen-fd", listener.fileno(), "--peer-uid", 0, "--uid", 64997, "--gid", 64997]
            self.process = world.host.start(*before, program, *map(str, options), pass_fds=[listener.fileno()], stderr=words,
                                            env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})  # fmt: skip
            self.keeper = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.keeper.connect(str(place))
        self.link, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        socket.send_fds(self.keeper, [struct.pack("=IIQ", FRONT, 0, 0)], [its.fileno()])
        its.close()

    def send(self, kind, box, body=b"", serial=0, fds=()):
        link = self.keeper if kind in (BOX, GONE) else self.link
        data = struct.pack("=IIQ", kind, serial, box) + body
        link.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])

    def close(self):
        self.process.terminate()
        assert self.process.wait(20) == 0, self.words.read_text()
        self.link.close()
        self.keeper.close()
        return self.words.read_text()


class BoxNetwork:
    """A namespace with what the engine would put into it, and its sockets."""

    def __init__(self, namespace, way):
        self.namespace, self.way = namespace, way
        namespace.ip("""link set lo up
            addr add 10.0.2.100/32 dev lo
            -6 addr add fd00:2::100/128 dev lo nodad
            route add local 0.0.0.0/0 dev lo src 10.0.2.100 table 100
            -6 route add local ::/0 dev lo src fd00:2::100 table 100
            rule add priority 100 ipproto tcp table 100
            -6 rule add priority 100 ipproto tcp table 100
            rule add priority 99 fwmark 1 table 100
            -6 rule add priority 99 fwmark 1 table 100
            route add prohibit default
            -6 route add prohibit default""")
        self.netfilter()
        resolv = HERE / "box-resolv.conf"
        namespace.run("mount", "--bind", resolv, os.path.realpath("/etc/resolv.conf"))
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        namespace.run(sys.executable, "-B", HERE / "inbox.py", way, stdin=its)
        _, fds, _, _ = socket.recv_fds(ours, 16, 16)
        self.fds = list(fds)

    def netfilter(self):
        hold = "tcp flags & (syn | ack) == syn meta mark 0 log group 1 drop" if self.way == "hold" else ""
        self.namespace.run(
            "nft",
            "-f",
            "-",
            text=True,
            input="""table inet egress {
            chain pre {
                type filter hook prerouting priority -150;
                meta l4proto != tcp accept
                ip daddr { 127.0.0.0/8, 10.0.2.100 } accept
                ip6 daddr { ::1, fd00:2::100 } accept
                %s
                meta nfproto ipv4 meta l4proto tcp tproxy ip to 127.0.0.1:61000 accept
                meta nfproto ipv6 meta l4proto tcp tproxy ip6 to [::1]:61000 accept
                reject with tcp reset
            }
        }""" % hold,
        )

    def attach(self, egress, box):
        number, has = WAYS[self.way]
        egress.send(BOX, box, struct.pack("=II", number, has), fds=self.fds)
        for fd in self.fds:
            os.close(fd)
        self.fds = []

    def run(self, *command, **options):
        return self.namespace.run(*command, check=False, capture_output=True, text=True, **options)

    def start(self, *command):
        return self.namespace.start(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def python(self, code, *arguments):
        return self.start(sys.executable, "-u", "-c", code, *arguments)

    def close(self):
        for fd in self.fds:
            os.close(fd)
        self.namespace.close()

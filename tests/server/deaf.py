"""A FUSE file system whose daemon does not answer close() and stat() of its files, and a process that holds such files. A process that touches one hangs, and not even SIGKILL ends that;
only the daemon's end does. So all of it happens in processes other than the test, and the daemon ends first."""
import contextlib
import ctypes
import os
import pathlib
import signal
import struct
import tempfile
import traceback

from traces import own_children

LOOKUP, GETATTR, OPEN, RELEASE, FLUSH, INIT, OPENDIR, DESTROY = 1, 3, 14, 18, 25, 26, 27, 38
NAMES = {GETATTR: "GETATTR", FLUSH: "FLUSH"}
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None, use_errno=True)


def fork(work):
    """Runs work(tell) in a child; its pid, and the end of a pipe with the told values."""
    here, there = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            os.close(here)
            work(lambda text: os.write(there, (text + "\n").encode()))
        except BaseException:
            os.write(there, traceback.format_exc().encode())
        finally:
            os._exit(0)
    own_children.add(pid)
    os.close(there)
    return pid, os.fdopen(here)


def mode_of(node):
    return (0o40755, 2) if node == 1 else (0o100644, 1)


def attributes(node):
    mode, links = mode_of(node)
    return struct.pack("<6Q10I", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, links, os.getuid(), os.getgid(), 0, 4096, 0)


def serve(folder, tell):
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"deaf", os.fsencode(folder), b"fuse", 0, options.encode()) < 0:
        raise OSError(ctypes.get_errno(), "mounting a FUSE file system")
    tell("mounted")
    while True:
        request = os.read(device, 1 << 17)
        _, what, unique, node, _, _, pid, _ = struct.unpack_from("<IIQQIIII", request)
        answer, error = b"", 0
        if what == INIT:
            answer = struct.pack("<IIIIHHIIHHI7I", 7, 31, 0, 0, 12, 10, 4096, 1, 0, 0, 0, *[0] * 7)
        elif what == LOOKUP:        # there is one file, and it is always there
            answer = struct.pack("<4Q2I", 2, 0, 60, 0, 0, 0) + attributes(2)
        elif what in (OPEN, OPENDIR):
            answer = struct.pack("<QII", 1, 0, 0)
        elif what in NAMES:
            tell(f"{NAMES[what]} {pid}")
            continue
        elif what == DESTROY:
            return
        elif what in (2, 36, 42):   # FORGET, INTERRUPT, BATCH_FORGET need no answer
            continue
        elif what not in (RELEASE, 29):
            error = -38
        os.write(device, struct.pack("<IiQ", 16 + len(answer), error, unique) + answer)


class Deaf:
    """with Deaf() as deaf: deaf.file is one of its files; deaf.wait("FLUSH") returns when a process hangs in it."""
    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="carrel-deaf-")
        self.file = self.folder + "/file"
        self.holders = []
        self.daemon, self.told = fork(lambda tell: serve(self.folder, tell))
        try:
            line = self.told.readline()
            assert line == "mounted\n", line + self.told.read()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait(self, what):
        """The pid of the next process with this request."""
        for line in self.told:
            word, _, pid = line.strip().partition(" ")
            if word == what:
                return int(pid)
        raise AssertionError("the daemon has ended")

    def hold(self, work):
        """Like fork(), in a process that may hang with the files that it opens."""
        pid, told = fork(work)
        self.holders.append((pid, told))
        return told

    def __exit__(self, *_):
        os.kill(self.daemon, signal.SIGKILL)
        os.waitpid(self.daemon, 0)
        for pid, told in self.holders:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            told.close()
        self.told.close()
        libc.umount2(os.fsencode(self.folder), MNT_DETACH)
        pathlib.Path(self.folder).rmdir()

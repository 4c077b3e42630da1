#!/usr/bin/python3
"""Makes each system call of the making of a box fail in turn, and ends carrel at each of them.

After a failed call there are two good ends: the command ran, exactly as confined as without the failure (seen from inside by
tests/fault/witness.c and from outside while it stands still right after exec), and the status is 0; or it never ran, the status is 125 (126,
127) and one line says at which step carrel failed. After a signal to carrel the status does not matter. In both cases nothing hangs and
nothing is left: no process, no cgroup, no mount, no file.

    fault.py --inject PROGRAM --witness PROGRAM --carrel PROGRAM [--stride 7] [--errnos ...] [--only ROLE[:N]] [--ways ...] [--verbose]
"""
import argparse
import concurrent.futures
import errno
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

MEMORY, PIDS, CPUS = 64 << 20, 64, 1.0
NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
STEPS = ("host ids cgroup tree root clone idmap mount pivot nesting network join rights landlock seccomp stdio workdir exec wait protocol "
         "memory").split()
OWN_STATUS = (125, 126, 127)

# These never fail, whatever the kernel's state; the rest of the start of libc is in the same case.
NEVER_FAIL = set("getpid getppid getuid geteuid getgid getegid gettid umask set_tid_address arch_prctl exit exit_group rt_sigreturn "
                 "restart_syscall alarm pause rt_sigaction rt_sigprocmask capget".split())

# (role, call) -> the one problem that its failure may have, and why. WAY_BACK: only right after a clone.
WAY_BACK = "not one line of error: ''"
TOLERATED = {
    ("carrel", "access"): ("the command ran, but not as", "asks for the host's ld.so.cache, alternatives and fonts, without which a box can be"),
    ("carrel", "setns"): (WAY_BACK, "the way back from the box's pid namespace: carrel leaves at once, whatever it did next would be wrong"),
    ("carrel", "setresuid"): (WAY_BACK, "the way back to its own ids: likewise"),
    ("carrel", "prctl"): (WAY_BACK, "likewise"),
}

# (role, call) -> the noun that the error must have, if the call fails anywhere but on the way back.
NAMED = {("carrel", "prctl"): ("own rights", "CAP_SETPCAP"), ("carrel", "setresuid"): ("CAP_SETUID",)}


def system_calls():
    """Numbers to names."""
    for path in ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"):
        if os.path.exists(path):
            return {int(n): name for name, n in re.findall(r"#define __NR_(\w+) (\d+)", pathlib.Path(path).read_text())}
    sys.exit("fault: there is no asm/unistd_64.h")


CALLS = system_calls()


class Way:
    """How carrel is started: the user and the options. The witness comes in by a mount or with its own root filesystem."""

    def __init__(self, name, place, options, user=None, own_root=False, unlike=()):
        self.name = name
        self.user = user
        self.unlike = unlike        # of what an ordinary box shows, this one does not
        # If the user's range of ids cannot be had, a box with one id is made, and the report says so.
        self.fallback = "one" if name == "user" else None
        self.environment = {"PATH": "/usr/bin:/bin:/usr/sbin", "LANG": "C.UTF-8"}
        if user:
            run = place / f"run-{user.pw_uid}"
            run.mkdir(mode=0o700)
            os.chown(run, user.pw_uid, user.pw_gid)
            self.environment.update(XDG_RUNTIME_DIR=str(run), HOME="/")
        source = ["--root", str(place / "root")] if own_root else ["--mount", f"{place}/root/w:/w:ro"]
        self.command = [str(place / "carrel"), "run", *options, *source, "--", "/w/witness"]
        self.limits = "--memory" in options

    def inject(self, inject, out, *words):
        who = ["--uid", str(self.user.pw_uid), "--gid", str(self.user.pw_gid)] if self.user else []
        return [inject, *who, str(out), *map(str, words), "--", *self.command]


class Run:
    """One traced run and all that it reported."""

    def __init__(self, way, inject, *words):
        self.calls, self.ends, self.left, self.hang, self.notes = [], {}, [], [], []
        self.hit, self.executed, self.outside = None, 0, None
        ours, theirs = socket.socketpair()
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            process = subprocess.Popen(way.inject(inject, theirs.fileno(), *words), pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                                       stdout=stdout, stderr=stderr, env=way.environment, cwd="/")
            theirs.close()
            ours.settimeout(150)
            try:
                for line in ours.makefile("r"):
                    self.take(line.split(), ours, way)
            except TimeoutError:
                self.notes.append("the injector itself hangs")
                process.kill()
            finally:
                ours.close()
            self.injector = process.wait()
            stdout.seek(0)
            stderr.seek(0)
            self.stdout, self.stderr = stdout.read().decode("utf-8", "replace"), stderr.read().decode("utf-8", "replace")
        self.status = self.ends.get("carrel")

    def take(self, words, link, way):
        kind = words[0]
        if kind == "call":
            self.calls.append((words[1], int(words[2]), CALLS.get(int(words[3]), words[3]), words[4] == "1"))
        elif kind == "carrel":
            self.pid = int(words[1])
        elif kind == "hit":
            self.hit = (words[1], int(words[2]), CALLS.get(int(words[3]), words[3]))
        elif kind == "exec":
            self.executed += 1
            try:
                self.outside = seen_from_outside(int(words[1]))
            except (OSError, KeyError, ValueError):
                self.outside = None     # it was killed meanwhile
            link.send(b"g")
        elif kind == "end":
            self.ends[words[1]] = int(words[2])
        elif kind == "left":
            self.left.append(words[1])
        elif kind == "hang":
            self.hang.append(f"{words[1]} in {CALLS.get(int(words[3]), 'user code' if words[3] == '-1' else words[3])}")


def read(path):
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError as error:
        return errno.errorcode[error.errno]


def limits_of(pid):
    """The limits of a process' cgroups that matter, whichever hierarchy holds them."""
    found = {}
    for line in read(f"/proc/{pid}/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not path.split("/")[-1].startswith("carrel-"):
            continue
        for controller in controllers.split(",") if controllers else [""]:
            base = f"/sys/fs/cgroup/{controller or 'unified'}"
            if not controller and not os.path.isdir(base):
                base = "/sys/fs/cgroup"
            for file in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max", "memory.swap.max", "pids.max", "cpu.cfs_quota_us",
                         "cpu.cfs_period_us", "cpu.max"):
                if os.path.exists(base + path + "/" + file) and file.startswith(controller):
                    found[file] = read(base + path + "/" + file)
    return found


def seen_from_outside(pid):
    """The lines that must be the same each time. The process is stopped right after its exec."""
    status = dict(line.split(":\t", 1) for line in read(f"/proc/{pid}/status").splitlines() if ":\t" in line)
    uids = status["Uid"].split()
    host = read("/proc/self/uid_map").split()
    lines = [f"{key} {status[key].strip()}" for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "SigBlk")]
    lines.append(f"groups {len(status['Groups'].split())}")
    lines.append(f"pid namespaces {len(status['NSpid'].split())}")
    lines.append(f"one uid {len(set(uids)) == 1}, not root's {uids[0] != '0'}, whole host map {host[:2] == ['0', '0']}")
    for name in NAMESPACES:
        lines.append(f"own {name} namespace {os.readlink(f'/proc/{pid}/ns/{name}') != os.readlink(f'/proc/self/ns/{name}')}")
    lines.append(f"own root {os.stat(f'/proc/{pid}/root').st_dev != os.stat('/').st_dev}")
    for line in read(f"/proc/{pid}/mountinfo").splitlines():
        left, right = line.split(" - ")
        root, where, options = left.split()[3:6]
        kind, _, super_options = right.split()
        lines.append(f"mount {where} {re.sub('[0-9a-f]{8,}', '', root)} {options} {kind} {re.sub('/proc/self/fd/[0-9]+|[ug]id=[0-9]+', '', super_options)}")
    lines += sorted(f"limit {file} {value}" for file, value in limits_of(pid).items())
    lines += sorted(f"rlimit {line}" for line in read(f"/proc/{pid}/limits").splitlines())
    lines += sorted(f"descriptor {name}" for name in os.listdir(f"/proc/{pid}/fd"))
    if "(tracing stop)" not in read(f"/proc/{pid}/status"):
        raise ProcessLookupError("it was killed while it was looked at")
    return lines


def check_reference(way, run):
    """The run without a failure is the baseline for all others, so it is judged by itself."""
    inside, outside = run.stdout.splitlines(), "\n".join(run.outside or [])
    wanted = ["uid 1000 1000 1000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "pid 2 parent 0 session 2",
              "file /etc/shadow ENOENT", "write /x EROFS", "write /usr/x EROFS", "write /w/x EROFS", "unshare user: EPERM", "mount: EPERM",
              "file /proc/sys/user/max_user_namespaces '0'", "file /proc/sys/net/ipv4/tcp_rmem '4096\t65536\t131072'", "interface lo",
              "reach away: ENETUNREACH", "loopback connect: ok",
              "host box", "end of witness"]
    if os.path.exists("/sys/kernel/security/landlock") or "landlock" in read("/sys/kernel/security/lsm") or os.uname().release >= "6":
        wanted.append("landlock layers left 15: E2BIG")
    problems = [f"inside, '{line}' is missing" for line in wanted if line not in inside and line not in way.unlike]
    if run.status != 0 or run.executed != 1:
        problems.append(f"status {run.status}, executed {run.executed} times, {run.stderr.strip()!r}")
    problems += [f"outside, '{line}' is wrong" for line in (run.outside or []) if line.endswith(" False")]
    if way.limits:
        limits = dict(line.split()[1:3] for line in run.outside or [] if line.startswith("limit "))
        if str(MEMORY) not in (limits.get("memory.limit_in_bytes"), limits.get("memory.max")) or limits.get("pids.max") != str(PIDS):
            problems.append(f"limits are not in force: {limits}")
        quota = limits.get("cpu.max", "").split() or [limits.get("cpu.cfs_quota_us", "0"), limits.get("cpu.cfs_period_us", "1")]
        if float(quota[0]) / float(quota[1]) != CPUS:
            problems.append(f"the cpu limit is not in force: {limits}")
    if not outside:
        problems.append("nothing was seen from outside")
    return problems


# What a box may have or not, as the host gives it: configuration of the host's and its own cgroup, read-only; terminals of its own. It is no part of
# the walls.
CONVENIENCE = re.compile(r"mount /etc/\S+ /etc/\S+ ro,nosuid,nodev,noexec,|mount /sys/fs/cgroup\S* /carrel-\S+ ro,nosuid,nodev,noexec,|mount /dev/pts / rw,nosuid,noexec,")


def walls(lines):
    return [line for line in lines if not CONVENIENCE.match(line)]


def first_difference(now, reference):
    for line in now:
        if line not in reference:
            return f"'{line}' is new"
    for line in reference:
        if line not in now:
            return f"'{line}' is missing"
    return "another order"


def leftovers(run):
    """Cgroups whose name has the run's pid."""
    found = []
    for base in ["/sys/fs/cgroup", *(str(p) for p in pathlib.Path("/sys/fs/cgroup").iterdir() if p.is_dir())]:
        try:
            found += [f"{base}/{name}" for name in os.listdir(base) if re.match(rf"carrel-\d+-{run.pid}-", name)]
        except OSError:
            pass
    return found


def difference(run, reference):
    """The difference of the box from one without a failure; None if there was none."""
    if run.outside and walls(run.outside) != walls(reference.outside):
        return "outside: " + first_difference(walls(run.outside), walls(reference.outside))
    if run.status == 0 and run.stdout != reference.stdout:
        return "inside: " + first_difference(run.stdout.splitlines(), reference.stdout.splitlines())
    return None


def judge(run, references, is_signal):
    problems = list(run.notes)
    if run.hang:
        problems.append("hangs: " + ", ".join(run.hang))
    if run.left:
        problems.append("still alive 30 s after carrel: " + ", ".join(run.left))
    deadline = time.monotonic() + 60
    while leftovers(run) and time.monotonic() < deadline:
        time.sleep(0.01)
    problems += [f"left behind: {path}" for path in leftovers(run)]
    for path in leftovers(run):
        os.rmdir(path)
    if is_signal or run.hang:
        return problems

    if run.executed:
        different = [difference(run, reference) for reference in references]
        different = None if None in different else " or ".join(different)
        if different:
            problems.append(f"the command ran, but not as confined as always; {different}")
        if run.status == 125 and run.hit and run.hit[0] == "init" and run.stderr.count("\n") == 1:
            pass    # init gives up its own rights beside the command, which is confined by then; if it cannot, the box ends and carrel says why
        elif run.status in OWN_STATUS:
            problems.append(f"carrel says that it failed ({run.stderr.strip()!r}), but the command had been started")
        elif run.status != 0:
            problems.append(f"the command ran and should have ended with 0, not {run.status} {run.stderr.strip()!r}")
    else:
        lines = run.stderr.splitlines()
        if run.status not in OWN_STATUS:
            problems.append(f"the command never ran, but the status is {run.status} {run.stderr.strip()!r}")
        elif len(lines) != 1 or not lines[0].startswith("carrel: "):
            problems.append(f"not one line of error: {run.stderr!r}")
    return problems


def points(run, every, is_signal):
    """The calls to try. For a signal: each one. To fail: those of the making of the box, which ends for carrel with its first poll, for the
    payload with exec, for init when it only reaps."""
    chosen, is_waiting = [], False
    for role, n, name, after in run.calls:
        is_waiting |= role == "carrel" and name == "poll"
        makes = name not in NEVER_FAIL and not (role == "carrel" and is_waiting) and (not after or role == "init")
        if (is_signal or makes) and name not in ("rt_sigtimedwait", "wait4"):
            chosen.append((role, n, name))
    return chosen[::every]


def plausible(name, index, errnos):
    """One errno for each point, a different one at the next point; all of them if asked for."""
    if errnos:
        return errnos
    kinds = {"read": ["EIO"], "write": ["EIO", "ENOSPC"], "clone3": ["EAGAIN", "ENOMEM"], "mmap": ["ENOMEM"], "brk": ["ENOMEM"], "close": ["EIO"]}
    names = kinds.get(name, ["EPERM", "ENOMEM", "EIO"])
    return [getattr(errno, names[index % len(names)])]


def jobs_of(way, reference, args):
    jobs = []
    only = args.only.split(":") if args.only else None
    for index, (role, n, name) in enumerate(points(reference, args.stride, False)):
        jobs += [(way, "fail", role, n, name, code) for code in plausible(name, index, args.errnos)]
    for number in () if args.no_signals else (signal.SIGKILL, signal.SIGTERM):
        jobs += [(way, "signal", role, n, name, int(number)) for role, n, name in points(reference, args.stride, True)]
    return [job for job in jobs if not only or (job[2] == only[0] and (len(only) == 1 or job[3] == int(only[1])))]


def way_back(reference):
    """The calls of carrel right after a clone, by which it restores its own state."""
    found, since = set(), None
    for role, n, name, _ in reference.calls:
        if role != "carrel":
            continue
        since = 0 if name == "clone3" else since + 1 if since is not None else None
        if since and since <= 4:
            found.add(n)
    return found


def serious(job, run, problems, reference):
    """The problems without the one that is tolerated at this place, and with what the error should have said."""
    _, kind, role, n, name, _ = job
    allowed, _ = TOLERATED.get((role, name), (None, None)) if kind == "fail" else (None, None)
    if n not in way_back(reference):
        allowed = None if allowed is WAY_BACK else allowed
        words = NAMED.get((role, name)) if kind == "fail" and run.hit else None
        if words and not any(word in run.stderr for word in words):
            problems = [*problems, f"the error names none of {words}"]
    return [problem for problem in problems if not (allowed and problem.startswith(allowed))]


def make_user(name, options):
    try:
        return pwd.getpwnam(name)
    except KeyError:
        subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/sh", *options, name], check=True, stdout=subprocess.DEVNULL, timeout=60)
        return pwd.getpwnam(name)


def ways(names, place):
    limits = ["--memory", "64M", "--pids", "64", "--cpus", "1", "--disk", "16M"]
    writable = ["write /x EROFS", "write /usr/x EROFS", "file /proc/sys/user/max_user_namespaces '0'",
                "file /proc/sys/net/ipv4/tcp_rmem '4096\t65536\t131072'", "interface lo"]
    no_range = ["-K", "SUB_UID_COUNT=0", "-K", "SUB_GID_COUNT=0"]
    if os.geteuid() != 0:
        return [Way("user", place, ["--disk", "16M"], own_root=True, unlike=["write /usr/x EROFS"])]
    made = {
        "root": lambda: Way("root", place, limits),
        "writable": lambda: Way("writable", place, [*limits, "--writable-root", "--profile", "strict"], unlike=writable),
        "user": lambda: Way("user", place, ["--disk", "16M"], make_user("carreltest", []), True, ["write /usr/x EROFS"]),
        "one": lambda: Way("one", place, ["--disk", "16M"], make_user("carrelone", no_range), True, ["write /usr/x EROFS"]),
    }
    return [made[name]() for name in names]


def main():
    parser = argparse.ArgumentParser()
    for name in ("inject", "witness", "carrel"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--stride", type=int, default=int(os.environ.get("FAULT_STRIDE", "7")))
    parser.add_argument("--errnos", type=lambda text: [getattr(errno, name) for name in text.split(",")])
    parser.add_argument("--only")
    parser.add_argument("--ways", default="root,writable,user,one", type=lambda text: text.split(","))
    parser.add_argument("--no-signals", action="store_true")
    parser.add_argument("--most", type=int, default=40, help="stop after so many bad runs")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    args.inject = os.path.abspath(args.inject)

    place = pathlib.Path(tempfile.mkdtemp(prefix="carrel-fault-"))
    place.chmod(0o755)
    try:
        (place / "root/w").mkdir(parents=True)
        shutil.copy(args.carrel, place / "carrel")
        shutil.copy(args.witness, place / "root/w/witness")
        return test(args, place)
    finally:
        shutil.rmtree(place)


def test(args, place):
    mounts = read("/proc/self/mountinfo")
    failed, counts, lock = 0, {}, threading.Lock()

    def work(job):
        nonlocal failed
        way, kind, role, n, name, value = job
        if failed >= args.most:
            return job, None, [], "not tried"
        run = Run(way, args.inject, kind, role, n, value)
        problems = judge(run, [references[name] for name in (way.name, way.fallback) if name in references], kind == "signal") if run.hit or run.hang else []
        end = "missed" if not run.hit else "ran" if run.executed else "refused"
        problems = serious(job, run, problems, references[way.name])
        with lock:
            failed += bool(problems)
        return job, run, problems, end

    references, jobs = {}, []
    names = [*args.ways, "one"] if "user" in args.ways and "one" not in args.ways else args.ways
    for way in ways(names, place):
        reference = references[way.name] = Run(way, args.inject, "list")
        problems = check_reference(way, reference)
        for problem in problems[-3:]:
            print(f"fault: {way.name}: {problem}")
        if problems:
            return 1
        if way.name in args.ways:
            jobs += jobs_of(way, reference, args)

    with concurrent.futures.ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 2)) as pool:
        for job, run, problems, end in pool.map(work, jobs):
            way, kind, role, n, name, value = job
            what = errno.errorcode[value] if kind == "fail" else signal.Signals(value).name
            counts[way.name, kind, end] = counts.get((way.name, kind, end), 0) + 1
            if problems or (args.verbose and run):
                print(f"{way.name}: {kind} {role}:{n} {name} {what}: {end} {run.status} {run.stderr.strip()!r}")
                for problem in problems:
                    print(f"    {problem}")
    new = set(read("/proc/self/mountinfo").splitlines()) - set(mounts.splitlines())
    if new:
        failed += 1
        print("fault: mounts are left:", *new, sep="\n    ")
    for (way, kind, end), count in sorted(counts.items()):
        print(f"  {way}, {kind}: {count} {end}")
    print(f"fault: {len(jobs)} runs, {failed} bad")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

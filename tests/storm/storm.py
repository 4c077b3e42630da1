#!/usr/bin/python3
"""Kills carrel at random moments, many times, and asserts that nothing of it stays.

A round is one `carrel run` whose process gets SIGKILL after a random time: before the box exists, while it is made,
while its command runs, while it is taken down. Some are let go to their end. Several run at once. The times are drawn
between nothing and twice what an undisturbed run takes, so that every phase is hit. Afterwards, within a deadline,
there must be no process that descends from these runs, no cgroup directory of theirs and no new mount, and one more run
must succeed. Strangers' boxes do not matter: cgroups carry their owner's pid in their names.
"""

import argparse
import ctypes
import os
import random
import secrets
import signal
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36

COMMANDS = {
    "true": ["/bin/true"],
    "sleep": ["/bin/sleep", "1000"],
    "children": ["/bin/sh", "-c", "for i in 1 2 3 4 5; do setsid sleep 1000 & done; wait"],
    "orphans": ["/bin/sh", "-c", "(setsid sleep 1000 &) ; (setsid setsid sleep 1000 &) ; exec sleep 1000"],
    "writer": ["/bin/dd", "if=/dev/zero", "of=/tmp/x", "bs=64k", "count=100", "status=none"],
    "deaf": ["/bin/sh", "-c", "trap '' TERM INT HUP QUIT; while :; do sleep 1; done"],
}
LIMITS = {
    "all": ["--memory", "64M", "--pids", "32", "--cpus", "1", "--disk", "16M"],
    "none": [],
    "timeout": ["--memory", "64M", "--timeout", "20s"],
}


def cgroups(owners):
    """Directories of boxes that one of these processes made (None: all); its pid is the second number in the name."""
    found = set()
    for where, names, _ in os.walk("/sys/fs/cgroup"):
        for name in [name for name in names if name.startswith("carrel-")]:
            names.remove(name)
            parts = name.split("-")
            if owners is None or len(parts) < 3 or not parts[2].isdigit() or int(parts[2]) in owners:
                found.add(os.path.join(where, name))
    return found


def mounts():
    with open("/proc/self/mountinfo") as file:
        return {line.split()[0]: line.split()[4] for line in file}


def tagged(tag):
    """{pid: name} of the processes with the tag in their environment, and of all that descend from this process."""
    parents, names = {}, {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", errors="replace") as file:
                text = file.read()
        except OSError:
            continue
        names[int(pid)] = text.split("(", 1)[1].rsplit(")", 1)[0]
        parents[int(pid)] = int(text.rsplit(")", 1)[1].split()[1])
    found, own = {}, os.getpid()
    for pid in parents:
        above = pid
        while above not in (0, 1, own):
            above = parents.get(above, 0)
        if pid != own and above == own:
            found[pid] = names[pid]
            continue
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if tag.encode() in file.read():
                    found[pid] = names[pid]
        except OSError:
            continue
    found.pop(own, None)
    return found


def reap():
    """This process is the reaper of all its descendants, so what is dead must be collected before one counts."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


class Storm:
    def __init__(self, args):
        self.args = args
        self.random = random.Random(args.seed)
        self.tag = f"storm-{secrets.token_hex(8)}"
        self.environment = dict(os.environ, CARREL_STORM=self.tag)
        self.killed = self.finished = self.failed = 0
        self.owners = set()     # the pids of all runs
        self.running = {}       # pid: (when to kill it or None, when it is too late, what it is)

    def start(self, command, limits, kill_after):
        options = [*LIMITS[limits], "--pass-env", "CARREL_STORM"]
        process = subprocess.Popen([self.args.carrel, "run", *options, "--", *COMMANDS[command]], env=self.environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors)
        process.returncode = 0      # reaped below by pid, not by the object
        now = time.monotonic()
        self.owners.add(process.pid)
        self.running[process.pid] = (None if kill_after is None else now + kill_after, now + 60, f"{command}, {limits}")

    def undisturbed(self):
        """None if a run succeeds, else what happened."""
        done = subprocess.run([self.args.carrel, "run", *LIMITS["all"], "--", *COMMANDS["true"]], capture_output=True,
                              stdin=subprocess.DEVNULL, text=True, timeout=60)
        return f"a run fails with {done.returncode}: {done.stderr}" if done.returncode else None

    def usual_time(self):
        """How long an undisturbed run takes here: the median of a few."""
        times = []
        for _ in range(9):
            began = time.monotonic()
            if problem := self.undisturbed():
                sys.exit(f"storm: before the storm, {problem}")
            times.append(time.monotonic() - began)
        return sorted(times)[4]

    def pick(self, usual):
        command = self.random.choice(list(COMMANDS))
        limits = self.random.choice(list(LIMITS))
        spares = command in ("true", "writer") and self.random.random() < 0.3
        return command, limits, None if spares else self.random.uniform(0, 2 * usual * self.args.parallel)

    def step(self):
        """Kills what is due, collects what has ended."""
        now = time.monotonic()
        for pid, (kill_at, late, what) in list(self.running.items()):
            if kill_at is not None and now >= kill_at:
                os.kill(pid, signal.SIGKILL)        # ours and not yet reaped, so the number is still its own
                self.running[pid] = (None, late, what)
            elif now > late:
                sys.exit(f"storm: a run ({what}) has neither ended nor died")
        while self.running:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid not in self.running:
                continue                            # an orphan of a killed one
            _, _, what = self.running.pop(pid)
            if os.WIFSIGNALED(status):
                self.killed += 1
            elif status == 0:
                self.finished += 1
            else:
                self.failed += 1
                print(f"storm: a run ({what}) ended with status {os.waitstatus_to_exitcode(status)}")

    def run(self):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.errors = open(self.args.errors, "wb")
        before = cgroups(None), mounts()
        usual = self.usual_time()
        left = self.args.rounds
        deadline = time.monotonic() + self.args.timeout
        while left or self.running:
            while left and len(self.running) < self.args.parallel:
                self.start(*self.pick(usual))
                left -= 1
            self.step()
            if time.monotonic() > deadline:
                sys.exit(f"storm: out of time with {left} rounds to go and {len(self.running)} running")
            time.sleep(0.0005)      # the resolution of the kill times
        return self.settle(*before)

    def leftovers(self, cgroups_before, mounts_before):
        reap()
        return {"processes": tagged(self.tag), "cgroups": sorted(cgroups(self.owners) - cgroups_before),
                "mounts": {i: where for i, where in mounts().items() if i not in mounts_before}}

    def settle(self, cgroups_before, mounts_before):
        began = time.monotonic()
        while any((left := self.leftovers(cgroups_before, mounts_before)).values()):
            if time.monotonic() - began > self.args.deadline:
                break
            time.sleep(0.02)
        took = time.monotonic() - began
        problems = [f"{name} left after {took:.1f} s: {what}" for name, what in left.items() if what]
        if problem := self.undisturbed():
            problems.append(f"after the storm, {problem}")
        if self.failed:
            problems.append(f"{self.failed} runs failed by themselves; see {self.args.errors}")
        if self.killed < self.args.rounds // 4:
            problems.append(f"only {self.killed} of {self.args.rounds} runs were killed: not a storm")
        print(f"storm: {self.args.rounds} runs, {self.args.parallel} at once: {self.killed} killed, "
              f"{self.finished} finished, {self.failed} failed; clean after {took:.2f} s; seed {self.args.seed}")
        for problem in problems:
            print(f"storm: {problem}")
        return 1 if problems else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--carrel", required=True)
    parser.add_argument("--errors", required=True, help="a file for what the runs say on stderr")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--parallel", type=int, default=4, help="1: one after the other")
    parser.add_argument("--deadline", type=float, default=60, help="seconds until all must be gone")
    parser.add_argument("--timeout", type=float, default=240, help="seconds for all runs")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    return Storm(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())

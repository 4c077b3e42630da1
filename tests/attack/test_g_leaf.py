"""The box's own cgroup at /sys/fs/cgroup: it tells the limits and gives no way to change them, nor to see another's."""
import json

import pytest

from harness import run_box

LIMITS = ("--memory", "64M", "--pids", "32", "--cpus", "0.5")
LOOK = """
import errno, json, os
found = {"opened": [], "other": [], "made": [], "outside": [], "roots": [], "limits": {}, "files": 0, "above": []}
for top, folders, files in os.walk("/sys/fs/cgroup", followlinks=False):
    for name in files:
        path = os.path.join(top, name)
        found["files"] += 1
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_APPEND):
            try:
                os.close(os.open(path, flags)); found["opened"].append(path)
            except OSError as e:
                if e.errno not in (errno.EROFS, errno.EACCES, errno.EPERM): found["other"].append([path, e.errno])
        for change in (lambda: os.chmod(path, 0o666), lambda: os.chown(path, 1000, 1000), lambda: os.utime(path), lambda: os.unlink(path),
                       lambda: os.setxattr(path, "user.x", b"y"), lambda: os.truncate(path, 0), lambda: os.rename(path, path + "x")):
            try:
                change(); found["opened"].append(path)
            except OSError:
                pass
    for make in (lambda: os.mkdir(os.path.join(top, "x")), lambda: os.rmdir(top), lambda: os.symlink("/", os.path.join(top, "y"))):
        try:
            own = os.stat(top).st_dev == os.stat("/").st_dev         # a folder of the box's root, which may be writable
            make(); found["made"] += [] if own else [top]
        except OSError:
            pass
    found["outside"] += [name for name in folders + files if name.startswith(("carrel-", "system", "user.", "init.scope"))]
for line in open("/proc/self/mountinfo"):
    words = line.split()
    if words[4].startswith("/sys"): found["roots"].append([words[4], words[3], words[5].split(",")[0]])
for top in [r[0] for r in found["roots"]]:      # a bind mount's parent is the mount point's, not the directory's on the host
    found["above"] += [n for n in os.listdir(os.path.join(top, "..")) if n not in ("memory", "pids", "cpu", "cpu,cpuacct", "cgroup", "x", "y")]
    pids = [int(p) for p in open(os.path.join(top, "cgroup.procs"))]
    found["outside"] += [p for p in pids if p and not os.path.exists("/proc/%d" % p)]
for name in ("memory/memory.limit_in_bytes", "pids/pids.max", "cpu/cpu.cfs_quota_us", "memory.max", "pids.max", "cpu.max"):
    try: found["limits"][name] = open("/sys/fs/cgroup/" + name).read().strip()
    except OSError: pass
print(json.dumps(found))
"""


def look(*options, **more):
    result = run_box(["/usr/bin/python3", "-c", LOOK], limits=LIMITS, options=("--timeout", "60s", *options), **more)
    assert result.status == 0, result
    return json.loads(result.stdout)


@pytest.mark.parametrize("options", [(), ("--profile", "system"), ("--writable-root", "--profile", "system")], ids=["standard", "system", "writable-root"])
def test_a_box_can_change_nothing_in_its_cgroup_and_sees_no_other(options):
    found = look(*options)
    assert found["files"] > 10 and found["limits"], found      # it was there to be attacked
    for what in ("opened", "other", "made", "outside", "above"):
        assert found[what] == [], (what, found[what])
    assert found["roots"] and all(root == "/" and flags == "ro" for _, root, flags in found["roots"]), found["roots"]
    v1 = {"memory/memory.limit_in_bytes": str(64 << 20), "pids/pids.max": "32", "cpu/cpu.cfs_quota_us": "50000"}
    v2 = {"memory.max": str(64 << 20), "pids.max": "32", "cpu.max": "50000 100000"}
    assert found["limits"] in (v1, v2)


def test_what_has_no_limit_shows_the_hosts_to_nobody():
    """On v1 a hierarchy without a limit has no directory of the box; the root of the hierarchy is not shown in its place."""
    result = run_box(["sh", "-c", "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; ls /sys/fs/cgroup/memory 2>/dev/null; echo end"], limits=("--pids", "32"))
    assert result.stdout.decode() in ("end\n", "max\nend\n")


def test_strict_shows_none():
    result = run_box(["sh", "-c", "ls /sys 2>/dev/null; echo end"], limits=LIMITS, options=("--profile", "strict"))
    assert result.stdout == b"end\n"

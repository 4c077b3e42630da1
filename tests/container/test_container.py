"""carrel in containers as docker, podman and Kubernetes make them, by crun: working features, and messages where none works."""
import copy
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import uuid

import pytest

BUILD = pathlib.Path(os.environ.get("CARREL_BUILD", pathlib.Path(__file__).parents[2] / "build"))
# crun does not accept v1 controllers with a v2 tree beside them; here it does not see it.
HIDE_V2 = ["unshare", "-m", "--propagation", "private", "sh", "-c", 'umount -l /sys/fs/cgroup/unified 2>/dev/null; exec "$@"', "sh"]
# As docker has them.
CAPABILITIES = ["CAP_" + c for c in ("CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL "
                                     "AUDIT_WRITE").split()]
MASKED = ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug", "/proc/scsi"]
READONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
NEWUSER = 0x10000000      # CLONE_NEWUSER


def deny(*names):
    return {"names": list(names), "action": "SCMP_ACT_ERRNO", "errnoRet": 1}


# What a runtime's default profile refuses to those without CAP_SYS_ADMIN, and to those who have it.
PROFILE = [deny("unshare", "setns", "mount", "umount2", "pivot_root", "keyctl", "open_tree", "move_mount", "fsopen", "fsmount", "fsconfig", "mount_setattr"),
           {**deny("clone3"), "errnoRet": 38},
           {**deny("clone"), "args": [{"index": 0, "value": NEWUSER, "valueTwo": NEWUSER, "op": "SCMP_CMP_MASKED_EQ"}]}]
PROFILE_ADMIN = [deny("pivot_root", "keyctl")]


@pytest.fixture(scope="module")
def place():
    if os.geteuid() != 0 or not shutil.which("crun"):
        pytest.skip("these tests need root and crun")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-container-", dir="/var/tmp"))
    folder.chmod(0o755)
    root = folder / "root"
    for name in ("usr", "proc", "dev", "tmp", "sys", "etc", "run", "carrel"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / name).symlink_to("usr/" + name)
    shutil.copy(BUILD / "carrel", root / "carrel/carrel")
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    yield folder
    shutil.rmtree(folder)


def spec(capabilities=CAPABILITIES, masked=MASKED, readonly=READONLY, profile=None, own_users=False, user=0):
    all_caps = {kind: capabilities for kind in ("bounding", "effective", "permitted")}
    bind = {"type": "bind", "options": ["rbind", "ro"]}
    made = {
        "ociVersion": "1.0.2",
        "process": {"terminal": False, "user": {"uid": user, "gid": user}, "args": [], "env": ["PATH=/usr/bin:/bin:/carrel", "HOME=/tmp"], "cwd": "/",
                    "capabilities": all_caps},
        "root": {"path": "root", "readonly": False},
        "mounts": [{"destination": "/usr", "source": "/usr", **bind}, {"destination": "/proc", "type": "proc", "source": "proc"},
                   {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
                   {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666"]},
                   {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]},
                   {"destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]}],
        "linux": {"namespaces": [{"type": t} for t in ("pid", "network", "ipc", "uts", "mount")], "maskedPaths": masked, "readonlyPaths": readonly},
    }
    if profile:
        made["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"], "syscalls": profile}
    if own_users:
        ids = [{"containerID": 0, "hostID": 900000000, "size": 65536}]
        made["linux"]["namespaces"].append({"type": "user"})
        made["linux"].update(uidMappings=ids, gidMappings=ids)
    return made


def run(place, made, *words):
    made = copy.deepcopy(made)
    made["process"]["args"] = ["/carrel/carrel", *words]
    (place / "config.json").write_text(json.dumps(made))
    name = "carrel-" + uuid.uuid4().hex[:12]
    return subprocess.run([*HIDE_V2, "crun", "--root", str(place / "state"), "run", "--bundle", str(place), name], capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL)


OPEN = {"masked": [], "readonly": []}
PROC = ("--security-opt systempaths=unconfined", "--security-opt unmask=ALL", "procMount: Unmasked")
SECCOMP = ("--security-opt seccomp=unconfined", "seccompProfile: {type: Unconfined}")


@pytest.mark.parametrize("options, told, not_told", [
    ({}, PROC, SECCOMP),
    ({"user": 1000}, PROC, SECCOMP),
    ({"profile": PROFILE}, PROC + SECCOMP, ()),
    ({"profile": PROFILE, **OPEN}, SECCOMP, PROC),
    ({"own_users": True}, PROC, SECCOMP),
    ({"capabilities": CAPABILITIES + ["CAP_SYS_ADMIN"], "profile": PROFILE_ADMIN, **OPEN}, SECCOMP, PROC),
    ({"own_users": True, "profile": PROFILE_ADMIN, **OPEN}, SECCOMP, PROC),
], ids=["default", "default, a user", "profile", "profile, open proc", "own users", "SYS_ADMIN and profile", "own users, profile, open proc"])
def test_a_container_that_forbids_boxes_is_told_what_it_lacks(place, options, told, not_told):
    made = spec(**options)
    failed = run(place, made, "run", "--", "/bin/true")
    doctor = run(place, made, "doctor")
    assert failed.returncode == 125 and doctor.returncode == 1, (failed, doctor)
    for text in (failed.stderr, doctor.stdout):
        assert all(t in text for t in told) and not any(t in text for t in not_told), text
    assert "No box can be made here" in doctor.stdout
    report = json.loads(run(place, made, "doctor", "--json").stdout)
    assert report["boxes"] is False and not [check for check in report["checks"] if "\n" in check["found"]], report


@pytest.mark.parametrize("options", [{**OPEN}, {"own_users": True, **OPEN}, {"own_users": True, "user": 1000, **OPEN}, {"user": 1000, **OPEN}],
                         ids=["open proc", "own users", "own users, a user", "a user"])
def test_what_is_advised_suffices(place, options):
    made = spec(**options)
    done = run(place, made, "run", "--", "/bin/sh", "-c", "echo made; ls /proc/self/fd >/dev/null && echo proc")
    assert (done.returncode, done.stdout) == (0, "made\nproc\n"), done
    doctor = run(place, made, "doctor")
    assert doctor.returncode == 0 and "Boxes can be made here" in doctor.stdout, doctor


def test_where_only_a_fresh_proc_is_refused_there_are_boxes_without_one(place):
    made = spec(masked=MASKED, readonly=[])
    refused = run(place, made, "run", "--", "/bin/true")
    assert refused.returncode == 125 and "--no-proc" in refused.stderr, refused
    done = run(place, made, "run", "--json", "--no-proc", "--", "/bin/sh", "-c", "ls -a /proc | wc -l; echo $((6 * 7))")
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["stdout"].split() == ["2", "42"], done
    assert "proc" in report["not_enforced"]
    assert "proc" not in json.loads(run(place, spec(**OPEN), "run", "--json", "--", "/bin/true").stdout)["not_enforced"]

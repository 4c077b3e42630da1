import json
import os
import shutil
import signal
import tempfile
import time

import pytest

from support.users import ORDINARY as USER
from support.waiting import wait_for

# What a server needs to keep files on disk; where it is there, nothing else may be the reason that it cannot.
on_disk = pytest.mark.skipif(not os.access("/dev/loop-control", os.R_OK), reason="needs loop devices")


def test_create_prints_the_id_and_ps_shows_the_box(server):
    made = server.carrel("create", "--name", "web", "--memory", "64M", "--cpus", "0.5", "--label", "a=b", "--env", "X=1")
    assert (made.returncode, made.stderr) == (0, "")
    assert len(made.stdout.strip()) == 13 and made.stdout.startswith("b")
    lines = server.carrel("ps").stdout.splitlines()
    assert lines[0].split() == ["ID", "NAME", "PHASE", "REASON", "AGE", "MEMORY", "CPUS", "RUNNING", "LABELS"]
    row = lines[1].split()
    assert row[:3] == [made.stdout.strip(), "web", "running"] and row[5:] == ["64M", "0.5", "0", "a=b"]
    assert "\033" not in lines[1]
    assert server.carrel("exec", "web", "--", "sh", "-c", "echo $X").stdout == "1\n"


def test_json_is_for_programs(server):
    made = json.loads(server.carrel("create", "--json", "--memory", "64M", "--ttl", "1h").stdout)
    assert made["limits"]["memory"] == 64 << 20 and made["ttl"] == 3600
    assert [b["id"] for b in json.loads(server.carrel("ps", "--json").stdout)] == [made["id"]]
    assert json.loads(server.carrel("stats", "--json").stdout)[0]["box"] == made["id"]


@pytest.mark.cgroups
def test_requests_are_options_and_refusals_name_them(server):
    made = json.loads(server.carrel("create", "--json", "--name", "trainer", "--request-memory", "64M", "--request-cpus", "0.5").stdout)
    assert made["requests"] == {"memory": 64 << 20, "cpus": 0.5}
    over = server.carrel("create", "--memory", "64M", "--request-memory", "128M")
    assert over.stderr == "carrel: --request-memory is 128M, more than --memory, which is 64M\n"
    most = server.admin.get("/v1/info").json["host"]["cpus"]
    full = server.carrel("create", "--request-cpus", str(most), "--cpus", str(most))
    assert full.returncode == 125 and "Requested by you: trainer 0.5; ask for less, or make room with 'carrel rm'" in full.stderr, full.stderr


def test_labels_filter_and_ids_alone(server):
    ids = [server.carrel("create", "--label", f"n={n}").stdout.strip() for n in range(3)]
    assert server.carrel("ps", "-q", "--label", "n=1").stdout.split() == [ids[1]]
    assert server.carrel("ps", "-q").stdout.split() == ids[::-1]
    assert server.carrel("rm", "--all", "--label", "n=0").stdout.split() == [ids[0]]
    assert server.carrel("ps", "-q").stdout.split() == ids[:0:-1]


def test_pause_freezes_and_resume_goes_on(server, box):
    assert server.carrel("pause", box).returncode == 0
    assert server.carrel("ps").stdout.splitlines()[1].split()[2] == "paused"
    refused = server.carrel("exec", box, "true")
    assert refused.returncode == 125 and "carrel resume" in refused.stderr
    assert server.carrel("resume", box).returncode == 0
    assert server.carrel("exec", box, "true").returncode == 0


def test_rm_ends_boxes_and_tells_what_is_not_there(server, box):
    result = server.carrel("rm", box, "nosuch")
    assert result.returncode == 125 and result.stdout == "one\n" and "there is no box '" in result.stderr
    assert server.carrel("ps", "-q").stdout == ""


def test_the_same_key_gives_the_same_box(server):
    ids = {server.carrel("create", "--idempotency-key", "k1").stdout for _ in range(2)}
    assert len(ids) == 1


def test_a_name_can_be_used_once(server, box):
    again = server.carrel("create", "--name", box)
    assert again.returncode == 125 and again.stderr.startswith("carrel: ")


def test_ttl_removes_the_box(server):
    server.carrel("create", "--name", "brief", "--ttl", "1s")
    wait_for(lambda: server.carrel("ps", "-q").stdout == "", "the box is gone")


def test_stats_show_use_and_limit(server, box):
    server.carrel("exec", box, "--", "dd", "if=/dev/zero", "of=/tmp/x", "bs=1M", "count=5")
    row = server.carrel("stats", box).stdout.splitlines()[1].split()
    assert row[1] == box and row[5] == "128M" and row[-1] == "0"


def test_what_nothing_counts_is_no_zero(make_server):
    server = make_server(user=USER)
    if server.admin.post("/v1/boxes", {"limits": {"memory": "64M"}}).status == 201:
        pytest.skip("an ordinary user has cgroups here")
    made = server.carrel("create").stdout.strip()
    assert server.carrel("stats", made).stdout.splitlines()[1].split()[2:5] == ["-", "-", "-"]
    usage = server.admin.get(f"/v1/boxes/{made}/usage").json
    assert usage["cpu_ms"] is None and usage["memory_bytes"] is None and usage["pids"] is None and usage["disk_bytes"] >= 0


def test_stats_watch_goes_on(server, box):
    watching = server.start_carrel("stats", "--watch", "--json", box, stdout=-1, text=True)
    try:
        decoder, text, seen = json.JSONDecoder(), "", 0
        deadline = time.monotonic() + 60
        while seen < 2 and time.monotonic() < deadline:
            text += watching.stdout.readline()
            try:
                _, end = decoder.raw_decode(text)
            except ValueError:
                continue
            text, seen = text[end:].lstrip(), seen + 1
        assert seen == 2
    finally:
        watching.terminate()
        watching.wait()


def test_events_tell_the_life_of_a_box(server, box):
    server.carrel("pause", box)
    events = [json.loads(line) for line in server.carrel("events", "--json", box).stdout.splitlines()]
    changes = [(e["body"]["from"], e["body"]["to"]) for e in events if e["type"] == "phase"]
    assert changes == [("creating", "running"), ("running", "paused")]


def test_events_follow(server, box):
    watching = server.start_carrel("events", "-f", "--json", box, stdout=-1, text=True)
    try:
        assert json.loads(watching.stdout.readline())["body"]["to"] == "running"
        server.carrel("pause", box)
        assert json.loads(watching.stdout.readline())["body"]["to"] == "paused"
    finally:
        watching.terminate()
        watching.wait()


def test_mount_is_read_only_unless_asked(server, tmp_path):
    (tmp_path / "f").write_text("hello\n")
    made = server.carrel("create", "--name", "m", "--mount", f"{tmp_path}:/data")
    assert made.returncode == 0, made.stderr
    assert server.carrel("exec", "m", "cat", "/data/f").stdout == "hello\n"
    assert server.carrel("exec", "m", "touch", "/data/g").returncode != 0


@on_disk
def test_a_templates_directory_below_a_mount_fills_the_gap_that_is_left_for_it(make_server, tmp_path):
    """A mount over root's home would hide an interpreter below it. Files in the mount itself are not covered."""
    layer = tmp_path / "home/python"
    layer.mkdir(parents=True)
    (layer / "of").write_text("the template")
    tmp_path.chmod(0o755)
    server = make_server("--set", f"templates.python.layers={layer}", "--set", "templates.python.pool=off")
    mounted = {"gap": lambda place: place.mkdir(), "full": lambda place: (place.mkdir(), (place / "of").write_text("the caller")),
               "nothing": lambda place: None, "link": lambda place: place.symlink_to("/tmp"), "file": lambda place: place.write_text("")}
    for name, make in mounted.items():
        (tmp_path / name).mkdir()
        make(tmp_path / name / "python")
        (tmp_path / name).chmod(0o700)
        made = server.carrel("create", "--name", name, "--template", "python", "--mount", f"{tmp_path}/{name}:{layer.parent}:rw")
        assert made.returncode == 0, made.stderr
    seen = {name: server.carrel("exec", name, "cat", f"{layer}/of").stdout for name in mounted}
    assert seen == {"gap": "the template", "full": "the caller", "nothing": "", "link": "", "file": ""}
    assert "Read-only" in server.carrel("exec", "gap", "touch", f"{layer}/mine").stderr


def test_start_hands_the_mounts_over_again(server, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text(name)
    made = server.carrel("create", "--name", "m", "--store", "disk", "--mount", f"{tmp_path}/a:/a", "--mount", f"{tmp_path}/b:/b:rw")
    assert made.returncode == 0, made.stderr
    assert server.carrel("exec", "m", "touch", "kept").returncode == 0
    for _ in range(2):
        assert server.carrel("stop", "m").returncode == 0
        bare = server.request("POST", "/v1/boxes/m/start")
        assert bare[0] == 400 and "handed over again" in bare[1]["error"]["message"]
        started = server.carrel("start", "m")
        assert started.returncode == 0, started.stderr
        assert server.carrel("exec", "m", "sh", "-c", "cat /a/f /b/f; ls").stdout == "abkept\n"
        assert server.carrel("exec", "m", "touch", "/a/g").returncode != 0
        assert server.carrel("exec", "m", "touch", "/b/g").returncode == 0
    assert server.carrel("start", "m").returncode == 0
    server.carrel("stop", "m")
    (tmp_path / "a").rename(tmp_path / "c")
    gone = server.carrel("start", "m")
    assert gone.returncode == 125 and "/a" in gone.stderr and "No such file" in gone.stderr
    assert server.carrel("rm", "m").returncode == 0


@on_disk
def test_only_the_owner_hands_the_mounts_over_again(server):
    """The owner chose the paths; an admin's client could open more than the owner may."""
    home = tempfile.mkdtemp(prefix="carrel-home-")
    try:
        shutil.chown(home, USER, USER)
        made = server.carrel("create", "--name", "m", "--store", "disk", "--mount", f"{home}:/a:rw", user=USER)
        assert made.returncode == 0, made.stderr
        box = made.stdout.strip()
        assert server.carrel("stop", box).returncode == 0
        refused = server.carrel("start", box)
        assert refused.returncode == 125 and "only the owner" in refused.stderr, refused.stderr
        assert server.carrel("start", "m", user=USER).returncode == 0
        assert server.carrel("exec", "m", "touch", "/a/f", user=USER).returncode == 0
        assert server.carrel("rm", box).returncode == 0
    finally:
        shutil.rmtree(home)


@on_disk
def test_start_follows_no_link_that_the_box_has_made(server, tmp_path):
    (tmp_path / "project/data").mkdir(parents=True)
    (tmp_path / "private").mkdir()
    made = server.carrel("create", "--name", "m", "--store", "disk", "--mount", f"{tmp_path}/project:/p:rw", "--mount", f"{tmp_path}/project/data:/data:rw")
    assert made.returncode == 0, made.stderr
    planted = server.carrel("exec", "m", "sh", "-c", f"mv /p/data /p/was && ln -s {tmp_path}/private /p/data")
    assert planted.returncode == 0, planted.stderr
    assert server.carrel("stop", "m").returncode == 0
    refused = server.carrel("start", "m")
    assert refused.returncode == 125 and "link" in refused.stderr, refused.stderr
    (tmp_path / "project/data").unlink()
    (tmp_path / "project/was").rename(tmp_path / "project/data")
    assert server.carrel("start", "m").returncode == 0
    assert server.carrel("rm", "m").returncode == 0


def test_a_mount_uses_the_callers_rights(server):
    refused = server.carrel("create", "--mount", "/root:/x", user=USER)
    assert refused.returncode == 125 and "Permission denied" in refused.stderr
    named = server.request("POST", "/v1/boxes", {"mounts": [{"source": "/root", "target": "/x"}]})
    assert named[0] == 403


def test_boxes_that_failed_can_be_removed(make_server):
    server = make_server()
    ids = [server.carrel("create", "--name", name).stdout.strip() for name in ("one", "two")]
    os.kill(wait_for(lambda: server.child("keeper"), "there is a keeper"), signal.SIGKILL)
    wait_for(lambda: server.carrel("ps", "-q", "--phase", "failed").stdout.split() == ids[::-1], "the boxes have failed")
    assert server.carrel("ps", "-a", "-q", "--phase", "running").stdout == ""
    removed = server.carrel("rm", "one")
    assert (removed.returncode, removed.stdout) == (0, "one\n"), removed.stderr
    assert server.carrel("ps", "-q").stdout.split() == [ids[1]]
    assert server.carrel("rm", "--all").stdout.split() == [ids[1]]
    assert server.carrel("ps", "-q").stdout == "" and server.carrel("ps", "-q", "-a").stdout.split() == ids[::-1]


def test_a_create_that_is_refused_leaves_no_box(make_server):
    """The keeper refuses it: an ordinary user's has no cgroup for the limit, or no such file."""
    server = make_server(user=USER)
    refused = server.carrel("create", "--memory", "64M", user=USER)
    if refused.returncode == 0:
        pytest.skip("an ordinary user can limit memory here")
    assert refused.returncode == 125 and "memory" in refused.stderr
    assert server.carrel("ps", "-q", user=USER).stdout == ""


def test_hints_fit(server, box):
    """The suggested remedy works."""
    missing = server.carrel("exec", "nobox", "true").stderr
    assert "carrel ps" in missing
    other = server.carrel("logs", box, "xaaaaaaaaaaaa").stderr
    assert other and "lists your boxes" not in other, other
    server.carrel("pause", box)
    assert "carrel resume" in server.carrel("exec", box, "true").stderr
    server.carrel("resume", box)
    made = server.carrel("create", "--name", "kept", "--store", "disk", "--disk", "64M")
    if made.returncode == 0:
        server.carrel("stop", "kept")
        told = server.carrel("exec", "kept", "true").stderr
        assert "carrel start" in told and "resume" not in told, told


@pytest.mark.skipif(os.path.exists("/sys/fs/cgroup/cgroup.controllers"), reason="an ordinary user may have cgroups of v2")
def test_who_has_no_cgroups_is_told_what_pausing_needs(make_server):
    theirs = make_server(user=USER)
    assert theirs.carrel("create", "--name", "plain", user=USER).returncode == 0
    refused = theirs.carrel("pause", "plain", user=USER)
    assert refused.returncode and "carrel doctor" in refused.stderr, refused.stderr
    assert theirs.carrel("ps", user=USER).stdout.splitlines()[1].split()[5:7] == ["-", "-"]

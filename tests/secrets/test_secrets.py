"""Secrets of an identity: kept, listed without values, given to processes, replaced, removed."""
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import tempfile

import pytest

from conftest import SERVICE, digest, expect, family, fresh, in_files, in_memory, is_init, refused, sha, sha_file, shell
from support.users import ORDINARY
from support.waiting import wait_for

KILLS = int(os.environ.get("CARREL_KILLS", "3"))
VARIABLE = {"name": "hf", "env": "HF_TOKEN"}
FILE = {"name": "cert", "file": "/run/secrets/cert"}


def names(client):
    return [s["name"] for s in expect(client.get("/v1/secrets"))["secrets"]]


def restart(server):
    server.process.terminate()
    server.process.wait()
    server.log.close()
    server.start()


# ---- keeping ----

def test_a_secret_is_listed_without_its_value_and_for_its_owner_alone(alice, bob, server, keep):
    value = fresh()
    made = expect(alice.put("/v1/secrets/listed", body=value.encode()))
    assert {k: made[k] for k in ("name", "owner", "bytes", "kind")} == {"name": "listed", "owner": "alice", "bytes": len(value), "kind": "stored"}
    listed = alice.get("/v1/secrets")
    assert made in listed.json["secrets"] and value.encode() not in listed.body
    for other in (bob, server.admin):
        assert "listed" not in names(other)
        refused(other.delete("/v1/secrets/listed"), 404, "'listed'")
    assert alice.get("/v1/secrets/listed").status in (404, 405)
    refused(alice.put("/v1/secrets/listed", body=b"other"), 409, "already", "--replace")
    assert expect(alice.put("/v1/secrets/listed?replace=true", body=b"other"))["created_at"] == made["created_at"]
    assert alice.delete("/v1/secrets/listed").status == 204
    assert "listed" not in names(alice)


def test_a_file_of_the_servers_user_alone_holds_the_value(alice, server, keep):
    value = fresh()
    keep(own=value)
    folder = server.state / "secrets"
    (path,) = [p for p in folder.iterdir() if value.encode() in p.read_bytes()]
    owner = pathlib.Path(f"/proc/{server.front_pid()}").stat().st_uid
    assert (folder.stat().st_mode & 0o777, path.stat().st_mode & 0o7777) == (0o700, 0o600)
    assert folder.stat().st_uid == path.stat().st_uid == owner
    assert "own" not in path.name and "alice" not in path.name


@pytest.mark.parametrize("name", ["n" * 65, "n" * 300, ".hidden", "-n", "_n", "a%20b", "%C3%A9", "a%2Fb", "a%00b", "..%2F..%2Fetc%2Fpasswd", "../x"])
def test_a_name_that_can_be_none_is_refused(alice, server, name):
    before = set((server.state / "secrets").iterdir())
    assert 400 <= alice.put(f"/v1/secrets/{name}", body=b"value").status < 500
    assert set((server.state / "secrets").iterdir()) == before


def test_values_have_bounds(alice, keep):
    refused(alice.put("/v1/secrets/big", body=b"x" * 65537), 413, "65536")
    refused(alice.put("/v1/secrets/big", body=b"x" * 10_000_000), 413, "65536")
    refused(alice.put("/v1/secrets/big", body=b""), 400, "empty")
    assert "big" not in names(alice)
    keep(big=b"y" * 65536)


@pytest.mark.parametrize("uses, words", [
    ("hf", "a list"), ([1], "secrets[0]"), ([{"name": "hf"}], "secrets[0]"), ([{"name": "hf", "env": "A", "file": "/run/secrets/a"}], "secrets[0]"),
    ([{"name": "hf", "env": "1A"}], "1A"), ([{"name": "hf", "env": "A", "value": "x"}], "secrets[0]"), ([{"name": "../hf", "env": "A"}], "../hf"),
    ([{"name": "hf", "file": "/etc/passwd"}], "/run/secrets/"), ([{"name": "hf", "file": "/run/secrets/../x"}], "/run/secrets/"),
    ([{"name": "hf", "file": "/run/secrets/a/b"}], "/run/secrets/"), ([{"name": "hf", "file": "/run/secrets/" + "n" * 65}], "/run/secrets/"),
    ([{"name": "hf", "env": "A"}] * 2, "same place"), ([{"name": "hf", "env": f"A{i}"} for i in range(33)], "32"), ([{"name": "n" * 300, "env": "A"}], "name"),
])
def test_uses_that_make_no_sense_are_refused_with_their_place(alice, make_box, keep, uses, words):
    keep(hf="value")
    box = make_box()
    for path in ("/v1/boxes", f"/v1/boxes/{box}/exec", f"/v1/boxes/{box}/kernels", "/v1/run"):
        refused(alice.post(path, {"secrets": uses, **({"argv": ["true"]} if path.endswith("exec") else {"code": "1"} if path.endswith("run") else {})}), 400, words)


def test_a_variable_in_env_and_in_secrets_is_refused(alice, keep):
    keep(hf="value")
    refused(alice.post("/v1/boxes", {"env": {"HF_TOKEN": "x"}, "secrets": [VARIABLE]}), 400, "HF_TOKEN")


def test_a_nul_goes_into_a_file_and_into_no_variable(alice, make_box, keep):
    value = b"a\0b" + fresh().encode()
    keep(nul=value)
    refused(alice.post("/v1/boxes", {"secrets": [{"name": "nul", "env": "NUL"}]}), 400, "'nul'", "NUL byte", "file")
    box = make_box({"name": "nul", "file": "/run/secrets/nul"})
    assert sha_file(alice, box, "nul") == digest(value)
    refused(alice.post(f"/v1/boxes/{box}/exec", {"argv": ["true"], "secrets": [{"name": "nul", "env": "NUL"}]}), 400, "NUL byte")


def test_a_credential_of_systemd_is_a_secret_of_the_identities_that_the_configuration_names(make_server, kind):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-credentials-"))
    value = fresh()
    (folder / "db").write_text(value)
    (folder / "big").write_text("x" * 70000)
    if kind == "user":
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, ORDINARY)
    server = make_server("--set", "secrets.credentials=db=alice db=carol big=alice none=alice", variables={"CREDENTIALS_DIRECTORY": str(folder)})
    alice, bob = server.token("alice"), server.token("bob")
    (shown,) = expect(alice.get("/v1/secrets"))["secrets"]
    assert (shown["name"], shown["kind"], shown["bytes"], shown["created_at"]) == ("db", "credential", len(value), None)
    box = expect(alice.post("/v1/boxes", {"secrets": [{"name": "db", "env": "DB"}, {"name": "db", "file": "/run/secrets/db"}]}), 201)["id"]
    assert sha(alice, box, "DB") == sha_file(alice, box, "db") == digest(value)
    refused(bob.post("/v1/boxes", {"secrets": [{"name": "db", "env": "DB"}]}), 400, "'db'")
    refused(alice.put("/v1/secrets/db?replace=true", body=b"x"), 403, "credential")
    refused(alice.delete("/v1/secrets/db"), 403, "credential")
    assert server.log_text().count("secrets.credentials") == 1 and "LoadCredential" in server.log_text() and value not in server.log_text()
    server.kill("front")
    assert sha(alice, box, "DB") == digest(value)
    shutil.rmtree(folder)


# ---- giving ----

def test_a_box_whose_secret_does_not_exist_is_refused(alice, bob, keep):
    keep(hf="value")
    before = len(expect(bob.get("/v1/boxes"))["boxes"])
    for body in ({"secrets": [VARIABLE]}, {"secrets": [{"name": "hf", "file": "/run/secrets/x"}]}):
        refused(bob.post("/v1/boxes", body), 400, "'hf'", "bob")
    assert len(expect(bob.get("/v1/boxes"))["boxes"]) == before


def test_commands_get_variables_and_files(alice, make_box, keep):
    value, cert = fresh(), fresh().encode() + b"\n\0\xff" + os.urandom(60000)
    keep(hf=value, cert=cert)
    box = make_box(VARIABLE, FILE)
    assert sha(alice, box, "HF_TOKEN") == digest(value)
    assert sha_file(alice, box, "cert") == digest(cert)
    assert shell(alice, box, "stat -c %a:%u:%g /run/secrets /run/secrets/cert") == "700:1000:1000\n400:1000:1000"
    assert "tmpfs" in shell(alice, box, "stat -f -c %T /run/secrets") and "noexec" in shell(alice, box, "grep ' /run/secrets ' /proc/self/mounts")
    # A command's own are its own.
    other = fresh()
    keep(other=other)
    assert sha(alice, box, "HF_TOKEN", secrets=[{"name": "other", "env": "HF_TOKEN"}]) == digest(other)
    assert sha(alice, box, "HF_TOKEN", env={"HF_TOKEN": "plain"}) == digest("plain")
    assert sha(alice, box, "HF_TOKEN") == digest(value)
    assert sha_file(alice, box, "mine", secrets=[{"name": "other", "file": "/run/secrets/mine"}]) == digest(other)
    assert sha(alice, make_box(), "HF_TOKEN", secrets=[VARIABLE]) == digest(value)


def test_another_user_of_the_box_cannot_read_its_files(alice, make_box, keep):
    keep(cert=fresh())
    box = make_box(FILE, profile="system", user="1000")
    sha_file(alice, box, "cert")
    answer = alice.post(f"/v1/boxes/{box}/exec", {"shell": "cat /run/secrets/cert", "user": "2000:2000"})
    assert answer.status >= 400 or (answer.json["exit_code"] != 0 and not answer.json["stdout"]), answer.body
    refused(alice.post(f"/v1/boxes/{box}/exec", {"argv": ["true"], "user": "2000:2000", "secrets": [FILE]}), 400, "another \"user\"")


def test_a_kernel_gets_them_after_its_fork(alice, make_box, keep, server):
    value, cert = fresh(), fresh()
    keep(hf=value, cert=cert)
    code = "import hashlib, os\nprint(hashlib.sha256(os.environ['HF_TOKEN'].encode()).hexdigest(), hashlib.sha256(open('/run/secrets/cert', 'rb').read()).hexdigest())"

    def forked():
        box = make_box(VARIABLE, FILE, template="python")
        ran = expect(alice.post(f"/v1/boxes/{box}/run", {"code": code}))
        assert ran["stdout"].split() == [digest(value), digest(cert)], ran
        return ran["kernel"]["way"] != "cold"
    wait_for(forked, server.log_text, every_s=0.2)
    ran = expect(alice.post("/v1/run", {"code": code, "secrets": [VARIABLE, FILE]}))
    assert ran["stdout"].split() == [digest(value), digest(cert)], ran
    # Its own, which its records have by name; a restart gives it the present value.
    box = make_box(template="python")
    expect(alice.post(f"/v1/boxes/{box}/kernels", {"context": "own", "secrets": [VARIABLE, FILE]}), 201)
    keep(hf=cert)
    expect(alice.post(f"/v1/boxes/{box}/kernels/own/restart"))
    ran = expect(alice.post(f"/v1/boxes/{box}/run", {"context": "own", "code": code}))
    assert ran["stdout"].split() == [digest(cert)] * 2, ran
    assert "KeyError" in json.dumps(expect(alice.post(f"/v1/boxes/{box}/run", {"code": code}))["error"])


def test_a_service_gets_them_and_keeps_them_over_a_restart_of_the_front(alice, keep, server):
    value = fresh()
    keep(hf=value)
    made = expect(alice.post("/v1/services", {"name": "named", "code": SERVICE, "secrets": [VARIABLE]}), 201)
    path = f"/v1/services/{made['id']}"
    assert expect(alice.post(path + "/call", {"function": "digest", "args": ["HF_TOKEN"]}))["result"] == digest(value)
    server.kill("front")
    expect(alice.post(path + "/restart"))
    assert expect(alice.post(path + "/call", {"function": "digest", "args": ["HF_TOKEN"]}))["result"] == digest(value)
    alice.delete(path)
    refused(alice.post("/v1/services", {"code": SERVICE, "secrets": [{"name": "missing", "env": "A"}]}), 400, "'missing'")


def test_a_client_of_the_jupyter_door_names_them_by_a_variable(alice, bob, keep):
    value = fresh()
    keep(hf=value)
    body = {"env": {"KERNEL_SECRETS": "hf=HF_TOKEN hf=/run/secrets/hf"}}
    kernel = expect(alice.post("/api/kernels", body), 201)["id"]
    (box,) = expect(alice.get(f"/v1/boxes?label=jupyter-kernel%3D{kernel}"))["boxes"]
    ran = expect(alice.post(f"/v1/boxes/{box['id']}/run", {"code": "import hashlib, os; print(hashlib.sha256(os.environ['HF_TOKEN'].encode()).hexdigest())"}))
    assert ran["stdout"].split() == [digest(value)], ran
    assert sha_file(alice, box["id"], "hf") == digest(value)
    assert alice.delete(f"/api/kernels/{kernel}").status == 204
    for client, words, said in ((bob, body["env"]["KERNEL_SECRETS"], b"'hf' of bob"), (alice, "hf", b"KERNEL_SECRETS"), (alice, "hf=/etc/passwd", b"'/etc/passwd'")):
        answer = client.post("/api/kernels", {"env": {"KERNEL_SECRETS": words}})
        assert answer.status == 400 and said in answer.body, answer.body


def test_a_template_gives_them_to_its_boxes(alice, bob, make_box, keep):
    value = fresh()
    refused(bob.post("/v1/boxes", {"template": "given"}), 400, "'given'")
    keep(given=value)
    box = make_box(template="given")
    assert sha(alice, box, "GIVEN") == sha_file(alice, box, "given") == digest(value)
    assert sha(alice, make_box(template="given", env={"GIVEN": "plain"}), "GIVEN") == digest("plain")


def test_a_terminal_gets_them(alice, make_box, keep):
    value = fresh()
    keep(hf=value)
    assert sha(alice, make_box(VARIABLE), "HF_TOKEN", tty=True) == digest(value)


def test_a_mount_over_their_folder_is_refused(alice, keep, server):
    keep(cert=fresh())
    expect(alice.post("/v1/volumes", {"name": "over", "size": "16M"}), 201)
    refused(alice.post("/v1/boxes", {"secrets": [FILE], "volumes": [{"name": "over", "path": "/run/secrets"}]}), 400, "/run/secrets")
    alice.delete("/v1/volumes/over")


# ---- replacing, removing ----

def test_a_replaced_value_is_seen_by_later_processes(alice, make_box, keep):
    first, second = fresh(), fresh()
    keep(hf=first, cert=first)
    box = make_box(VARIABLE, FILE)
    running = expect(alice.post(f"/v1/boxes/{box}/exec", {"shell": 'read x; printf %s "$HF_TOKEN" | sha256sum', "background": True, "stdin": True}), 202)["id"]
    keep(hf=second, cert=second)
    assert sha(alice, box, "HF_TOKEN") == sha_file(alice, box, "cert") == digest(second)
    alice.post(f"/v1/boxes/{box}/exec/{running}/stdin", body=b"\n")
    wait_for(lambda: expect(alice.get(f"/v1/boxes/{box}/exec/{running}"))["state"] == "ended")
    assert digest(first).encode() in alice.get(f"/v1/boxes/{box}/exec/{running}/output").body


def test_a_removed_secret_is_named_by_later_processes_of_its_boxes(alice, make_box, keep):
    keep(hf=fresh(), cert=fresh())
    box = make_box(VARIABLE, FILE, template="python")
    expect(alice.post(f"/v1/boxes/{box}/run", {"code": "1"}))
    assert alice.delete("/v1/secrets/hf").status == 204
    refused(alice.post(f"/v1/boxes/{box}/exec", {"argv": ["true"]}), 400, "no secret 'hf' of alice")
    refused(alice.post(f"/v1/boxes/{box}/kernels", {"context": "more"}), 400, "no secret 'hf' of alice")
    keep(hf=fresh())
    shell(alice, box, "true")


# ---- deaths ----

def test_after_a_death_of_front_or_keeper_they_are_there(alice, make_box, keep, server):
    value = fresh()
    keep(hf=value, cert=value)
    box = make_box(VARIABLE, FILE)
    server.kill("front")
    assert sha(alice, box, "HF_TOKEN") == sha_file(alice, box, "cert") == digest(value)
    server.kill("keeper")
    box = make_box(VARIABLE, FILE)
    assert sha(alice, box, "HF_TOKEN") == sha_file(alice, box, "cert") == digest(value)


def test_a_kill_while_values_are_written_leaves_whole_ones(alice, server, keep):
    """Each value is what was there before, or the new one; nothing half-written, nothing left over."""
    letters = {n: n.encode() * 60000 for n in "abcdefgh"}
    keep(**{f"storm-{n}": value for n, value in letters.items()})
    for i in range(KILLS):
        pid = os.fork()
        if pid == 0:
            try:
                while True:
                    for n, value in letters.items():
                        alice.put(f"/v1/secrets/storm-{n}?replace=true", body=value)
            finally:
                os._exit(0)
        try:
            server.kill("front")
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        listed = {s["name"]: s["bytes"] for s in expect(alice.get("/v1/secrets"))["secrets"]}
        assert all(listed[f"storm-{n}"] == 60000 for n in letters)
        files = [p for p in (server.state / "secrets").iterdir()]
        assert not [p for p in files if p.name.startswith("new-")]
        for n, value in letters.items():
            assert sum(value in p.read_bytes() for p in files) == 1


def test_a_full_disk_refuses_a_value_and_keeps_the_old_one(make_server):
    place = pathlib.Path(tempfile.mkdtemp(prefix="carrel-state-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0777", "tmpfs", place], check=True)
    try:
        server = make_server(state=place / "state")
        value = fresh()
        expect(server.admin.put("/v1/secrets/hf", body=value.encode()))
        fill = place / "fill"
        with open(fill, "wb", 0) as f:
            try:
                while True:
                    f.write(b"\0" * 4096)
            except OSError:
                pass
        answer = server.admin.put("/v1/secrets/hf?replace=true", body=b"x" * 60000)
        assert answer.status == 507 and "'hf'" in answer.json["error"]["message"], answer.body
        fill.unlink()
        assert [p for p in (place / "state/secrets").iterdir() if p.name.startswith("new-")] == []
        box = expect(server.admin.post("/v1/boxes", {"secrets": [VARIABLE]}), 201)["id"]
        assert sha(server.admin, box, "HF_TOKEN") == digest(value)
        restart(server)
        assert names(server.admin) == ["hf"]
        server.process.terminate()
        server.process.wait()
    finally:
        subprocess.run(["umount", "-l", place], check=True)
        place.rmdir()


def test_a_damaged_file_is_ignored_and_the_server_starts(make_server):
    server = make_server()
    for name in ("one", "two", "three"):
        expect(server.admin.put(f"/v1/secrets/{name}", body=b"value"))
    server.process.terminate()
    server.process.wait()
    server.log.close()
    files = sorted((server.state / "secrets").iterdir())
    files[0].write_bytes(b"no header")
    files[1].rename(files[1].with_name("0" * 64))
    server.start()
    assert len(names(server.admin)) == 1 and "damaged" in server.log_text()


def test_a_box_on_disk_has_files_in_memory_and_gets_them_again(kind, make_server):
    if kind == "user" or not os.access("/dev/loop-control", os.R_OK):
        pytest.skip("boxes on disk need root and loop devices")
    server = make_server("--set", "limits.disk=100000G", folder="/var/tmp")
    value = fresh()
    expect(server.admin.put("/v1/secrets/cert", body=value.encode()))
    box = expect(server.admin.post("/v1/boxes", {"secrets": [FILE], "store": "disk"}), 201)["id"]
    assert sha_file(server.admin, box, "cert") == digest(value)
    assert shell(server.admin, box, "stat -f -c %T /run/secrets; echo kept >/home/box/kept; sync").split()[-1] == "tmpfs"
    for how in ("stop", "front", "keeper"):
        if how == "stop":
            expect(server.admin.post(f"/v1/boxes/{box}/stop"))
            assert in_files(server.state, [value.encode()], [server.state / "secrets"]) == []
        else:
            server.kill(how)
        if expect(server.admin.get(f"/v1/boxes/{box}"))["phase"] == "stopped":
            expect(server.admin.post(f"/v1/boxes/{box}/start"))
        assert sha_file(server.admin, box, "cert") == digest(value)
        assert shell(server.admin, box, "cat /home/box/kept") == "kept"
    server.admin.delete(f"/v1/boxes/{box}")


# ---- what is shown ----

def test_names_of_variables_are_shown_and_no_value(alice, make_box, server, keep):
    value, plain = fresh(), fresh("plain")
    keep(hf=value)
    box = make_box(VARIABLE, env={"PLAIN": plain})
    shown = expect(alice.get(f"/v1/boxes/{box}"))
    assert shown["env"] == ["PLAIN"] and shown["secrets"] == [VARIABLE]
    assert shell(alice, box, "echo $PLAIN") == plain
    server.kill("front")
    assert shell(alice, box, "echo $PLAIN") == plain        # it is stored, as the documentation says
    for client, path in ((alice, f"/v1/boxes/{box}"), (alice, "/v1/boxes"), (server.admin, f"/v1/boxes/{box}"), (alice, f"/v1/boxes/{box}/events")):
        body = client.get(path).body
        assert value.encode() not in body and plain.encode() not in body, path


def rows(server):
    """All texts of the database."""
    (path,) = server.state.glob("*.db")
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        tables = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
        return "\n".join(repr(row) for table in tables for row in db.execute(f"select * from {table}"))


def test_values_are_nowhere_but_in_their_files_and_processes(alice, bob, make_box, server, keep):
    values = {name: fresh(name) for name in ("env", "file", "exec", "kernel", "service", "replaced", "removed")}
    keep(**values)
    everything = [v.encode() for v in values.values()]
    bystander = make_box(client=bob, template="python")
    expect(bob.post(f"/v1/boxes/{bystander}/run", {"code": "1"}))
    bob.post(f"/v1/boxes/{bystander}/exec", {"argv": ["sleep", "1000"], "background": True})
    box = make_box({"name": "env", "env": "ENV"}, {"name": "file", "file": "/run/secrets/file"}, {"name": "replaced", "env": "REPLACED"}, template="python")
    sha(alice, box, "REPLACED")
    values["second"] = fresh("second")
    everything.append(values["second"].encode())
    keep(replaced=values["second"])
    alice.delete("/v1/secrets/removed")
    mark = "1234.567"
    for body in ({"argv": ["sleep", mark], "secrets": [{"name": "exec", "env": "EXEC"}]}, {"argv": ["sleep", mark], "tty": True}):
        expect(alice.post(f"/v1/boxes/{box}/exec", {**body, "background": True}), 202)
    expect(alice.post(f"/v1/boxes/{box}/kernels", {"secrets": [{"name": "kernel", "env": "KERNEL"}]}), 201)
    ran = expect(alice.post(f"/v1/boxes/{box}/run", {"code": "import os; x = os.environ['KERNEL']"}))
    assert not ran["error"], ran
    expect(alice.post("/v1/services", {"name": "holder", "box": box, "code": SERVICE, "secrets": [{"name": "service", "env": "SERVICE"}]}), 201)
    alice.post(f"/v1/boxes/{box}/exec", {"argv": ["/no/such/program"]})
    server.kill("front")
    sha(alice, box, "ENV")

    def words(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):     # it has ended
            return b""

    def mine():
        return [p for p in family(server) if f"sleep\0{mark}".encode() in words(p)]
    holder = wait_for(mine, "the commands run")[0]
    inside = os.readlink(f"/proc/{holder}/ns/pid")
    searched, holders = {}, set()
    for pid in family(server) - {server.front_pid()}:
        try:
            in_box = os.readlink(f"/proc/{pid}/ns/pid") == inside and not is_init(pid)
            name = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found = in_memory(pid, everything)
        if in_box:
            holders |= found
        else:
            searched[pid] = name
            assert not found, (pid, name, found)
    # The search finds what is there, and has seen a zygote, the keeper, inits and the bystander.
    assert {values[n].encode() for n in ("env", "exec", "kernel", "service")} <= holders
    assert sum(b"init" in n for n in searched.values()) >= 2 and any(b"sleep" in n for n in searched.values()), searched
    assert any(b"zygote" in n or b"python" in n for n in searched.values()) and server.keeper_pid() in searched, searched
    assert in_files(server.folder, everything, [server.state / "secrets"]) == []
    text = rows(server)
    assert not [v for v in values.values() if v in text]
    kept = in_files(server.state / "secrets", everything)
    assert sorted(v for _, v in kept) == sorted(values[n].encode() for n in values if n not in ("replaced", "removed"))
    for client in (alice, bob, server.admin):
        for path in ("/v1/boxes", f"/v1/boxes/{box}", f"/v1/boxes/{box}/events", f"/v1/boxes/{box}/exec", f"/v1/boxes/{box}/kernels", "/v1/events", "/v1/services",
                     "/v1/secrets", "/v1/info", "/v1/me", "/metrics"):
            headers = {"Accept": "application/json"}
            if path.endswith("events"):
                path += "?stream=false"
            body = client.get(path, headers=headers).body if not path.startswith("/v1/events") else b""
            assert not [v for v in everything if v in body], path
    alice.delete("/v1/services/holder")

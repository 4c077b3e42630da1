"""Models are fetched in boxes that reach only the hub, and what they bring is checked: against a hub on loopback that is honest, or is not."""
import json
import os
import pathlib
import subprocess
import sys
import textwrap
import types

import pytest
from hub_server import COMMIT, Hub

from carrel.environment import hub_box, landing
from carrel.environment.hub import ModelUnavailable, discard, hub_cache, taken
from carrel.environment.hub_box import Hub as Reached
from carrel.environment.models import cached_snapshot, find_model
from carrel.environment.server import scoped_server
from support import SDK

HERE = pathlib.Path(__file__).resolve().parent
NAME = "google/gemma-2-9b"
TOKEN = "hf_0123456789abcdefghij"


@pytest.fixture
def weights(tmp_path):
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"num_hidden_layers": 2}))
    (folder / "model.safetensors").write_bytes(os.urandom(3 << 20))
    return folder


@pytest.fixture
def hub(weights, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CARREL_MODEL_HOSTS", raising=False)
    it = Hub({NAME: weights})
    monkeypatch.setenv("HF_ENDPOINT", f"http://hub.carrel.internal:{it.server_address[1]}")
    yield it
    it.end()


def tree(folder):
    """All that is below a folder: names, and what files say."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() and not p.is_symlink() else None for p in sorted(pathlib.Path(folder).rglob("*"))}


def store():
    return pathlib.Path(hub_cache(), "models--" + NAME.replace("/", "--"))


def nothing_came():
    """No blob, no snapshot, no name main; nothing of ours is left."""
    return not any(list((store() / part).rglob("*")) for part in ("blobs", "snapshots", "refs", ".carrel"))


# --- where the boxes get to ---

def test_a_hub_and_nothing_else_is_named():
    def rules(endpoint=None, **more):
        found = Reached.of({**({"HF_ENDPOINT": endpoint} if endpoint else {}), **more})
        return found.rules, found.broker_host
    assert rules() == (["huggingface.co:443", "*.huggingface.co:443", "*.hf.co:443"], "huggingface.co")
    assert rules("https://hub.example.org/") == (["hub.example.org:443"], "hub.example.org")
    assert rules("https://hub.example.org:8443", CARREL_MODEL_HOSTS="files.example.org:443, *.cdn.example.org") == (
        ["hub.example.org:8443", "files.example.org:443", "*.cdn.example.org"], "")
    assert rules("http://10.1.2.3:8080") == (["10.1.2.3:8080"], "") and rules("https://[fd00::1]") == (["[fd00::1]:443"], "")
    here = Reached.of({"HF_ENDPOINT": "http://localhost:8080/base"})
    assert (here.inside, here.rules) == ("http://hub.carrel.internal:8080/base", ["hub.carrel.internal:8080"])


@pytest.mark.parametrize("endpoint", ["huggingface.co", "ftp://x.example.org", "http://:80", "https://x.example.org:99999"])
def test_an_endpoint_that_is_none_is_refused(endpoint):
    with pytest.raises(ModelUnavailable, match="HF_ENDPOINT"):
        Reached.of({"HF_ENDPOINT": endpoint})


def test_large_files_come_from_a_host_that_was_named_and_the_token_stays_with_the_hub(hub, weights, monkeypatch):
    hub.store = "files.carrel.internal"
    hub.gated = TOKEN
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    rule = f"files.carrel.internal:{hub.server_address[1]}"
    with pytest.raises(ModelUnavailable) as failed:
        find_model(NAME, os.environ)
    assert f"CARREL_MODEL_HOSTS={rule}" in str(failed.value) or "CARREL_MODEL_HOSTS=files.carrel.internal" in str(failed.value)
    monkeypatch.setenv("CARREL_MODEL_HOSTS", rule)
    folder = find_model(NAME, os.environ)
    assert pathlib.Path(folder, "model.safetensors").read_bytes() == (weights / "model.safetensors").read_bytes()
    assert {auth for host, auth in hub.tokens if host == "files.carrel.internal"} == {None}
    assert ("hub.carrel.internal", f"Bearer {TOKEN}") in hub.tokens


def test_the_token_of_a_login_is_used_where_no_variable_has_one(hub, tmp_path):
    hub.gated = TOKEN
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/token").write_text(TOKEN + "\n")
    find_token = hub_box.find_token
    assert find_token({**os.environ, "HF_TOKEN": " hf_other\n"}) == "hf_other"
    assert find_token({**os.environ, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}) == find_token({**os.environ, "HF_HOME": "/nosuch"}) == ""
    assert find_model(NAME, os.environ)


def test_the_token_is_in_no_file(hub, tmp_path, monkeypatch):
    hub.gated = TOKEN
    find_model(NAME, {**os.environ, "HF_TOKEN": TOKEN})
    for folder in (tmp_path, scoped_server().directory):
        found = subprocess.run(["grep", "-rlF", "--devices=skip", TOKEN, folder], capture_output=True, text=True, check=False)
        assert (found.returncode, found.stdout) == (1, ""), found


@pytest.mark.skipif(os.geteuid() != 0, reason="port 443 and the host's authorities are root's")
def test_the_broker_has_the_token_and_the_box_a_placeholder(hub, tmp_path):
    """In namespaces of its own: a network with loopback alone, and a copy of the host's certificates with one more."""
    done = subprocess.run(["unshare", "--mount", "--net", sys.executable, "-B", HERE / "hub_story.py", tmp_path / "story"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["placeholder"].startswith("carrel-placeholder-") and not said["seen_inside"] and said["fetched"]
    assert said["tokens_of_hub"] == [f"Bearer {TOKEN}"] and said["tokens_of_files"] == [None] and said["files_with_token"] == ""


def test_an_interpreter_without_the_hubs_library_has_it_in_the_box(hub, tmp_path):
    """Debian's own."""
    path = [str(SDK), str(HERE.parent)]
    code = f"import os, sys; sys.path[:0] = {path!r}\nfrom carrel.environment.models import find_model\nprint(find_model({NAME!r}, os.environ))"
    done = subprocess.run(["/usr/bin/python3", "-B", "-I", "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "installed once" in done.stderr and cached_snapshot(NAME) == done.stdout.strip()


# --- interrupted ---

def test_an_interrupted_download_goes_on_where_it_was(hub, weights, monkeypatch):
    monkeypatch.setattr("carrel.environment.hub._TRIES", 1)
    data = os.urandom(20 << 20)
    (weights / "model.safetensors").write_bytes(data)

    class Interrupted(BaseException):
        pass

    def ended(self, size):
        if size >= 8 << 20:
            raise Interrupted
    with monkeypatch.context() as m:
        m.setattr(hub_box._Progress, "show", ended)
        hub.pauses["model.safetensors"] = 12 << 20
        with pytest.raises(Interrupted):
            find_model(NAME, os.environ)
    assert cached_snapshot(NAME) is None
    hub.resume.set()
    hub.served.clear()
    folder = find_model(NAME, os.environ)
    assert pathlib.Path(folder, "model.safetensors").read_bytes() == data
    assert [begin > 0 for name, begin in hub.served if name == "model.safetensors"] == [True]
    assert not (store() / ".carrel").exists()


# --- a hub that lies ---

@pytest.mark.parametrize("name", ["../../escaped", "/etc/escaped", "a/../../escaped", "a//b", "a\\..\\b", ".cache/huggingface/x", "a\nb", "a\x9bb", "x" * 300, "", ".."])
def test_a_name_that_leads_out_is_refused(hub, tmp_path, name):
    hub.change = lambda listed: [*listed, {**listed[0], "rfilename": name}]
    before = tree(tmp_path)
    with pytest.raises(ModelUnavailable, match="outside of the model's directory"):
        find_model(NAME, os.environ)
    assert nothing_came() and not hub.served
    assert {k: v for k, v in tree(tmp_path).items() if k in before} == before and not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize("lie,words", [
    ({"size": 1000}, "and the hub's list says 1000"), ({"size": (3 << 20) + 5}, "did not arrive whole"), ({"size": -1}, "gives model.safetensors the size"),
    ({"size": "many"}, "gives model.safetensors the size"), ({"lfs": {"sha256": "0" * 64, "size": 3 << 20, "pointerSize": 1}}, "its sha256 is")])
def test_a_file_that_is_not_the_promised_one_is_refused(hub, lie, words):
    hub.change = lambda listed: [{**f, **lie} if f["rfilename"] == "model.safetensors" else f for f in listed]
    with pytest.raises(ModelUnavailable, match=words):
        find_model(NAME, os.environ)
    assert cached_snapshot(NAME) is None and not list((store() / "blobs").glob("*"))
    hub.change = lambda listed: listed
    assert find_model(NAME, os.environ)         # and an honest answer is taken


def test_a_commit_that_is_a_path_is_refused(hub):
    hub.commit = "../../../escaped"
    with pytest.raises(ModelUnavailable, match="no list of files of a commit"):
        find_model(NAME, os.environ)
    assert nothing_came()


def test_a_file_that_is_also_a_directory_is_refused(hub):
    hub.change = lambda listed: [*listed, {**listed[0], "rfilename": "config.json/x"}]
    with pytest.raises(ModelUnavailable, match="as a file and as a directory"):
        find_model(NAME, os.environ)


# --- a hub that has taken over the program in the box ---

LISTED = """
import json, os, sys
asked = json.loads(sys.stdin.readline())
def tell(**words): print(json.dumps(words), flush=True)
if asked["do"] == "list":
    tell(commit=%r, files=[{"name": "config.json", "size": 2, "blob": None, "sha256": None}, {"name": "sub/model.safetensors", "size": 2, "blob": None,
                                                                                         "sha256": None}])
    sys.exit()
stage = asked["folder"]
os.makedirs(stage + "/sub", exist_ok=True)
def put(name, text="{}"): open(os.path.join(stage, name), "w").write(text)
""" % COMMIT


def taken_over(monkeypatch, code):
    evil = types.ModuleType("evil")
    monkeypatch.setattr(hub_box, "hub_worker", evil)
    monkeypatch.setattr(hub_box.inspect, "getsource", lambda module: LISTED + textwrap.dedent(code) + "\ntell(got=2)\n")


def test_plain_files_of_such_a_program_are_taken(hub, monkeypatch):
    """So that the refusals below are not for another reason."""
    taken_over(monkeypatch, "put('config.json')\nput('sub/model.safetensors')")
    folder = find_model(NAME, os.environ)
    assert pathlib.Path(folder, "sub/model.safetensors").read_text() == "{}"


@pytest.mark.parametrize("code", [
    "put('config.json')\nos.symlink({victim!r}, stage + '/sub/model.safetensors')",
    "put('config.json')\nos.rmdir(stage + '/sub')\nos.symlink({folder!r}, stage + '/sub')",
    "put('config.json')\nos.mkfifo(stage + '/sub/model.safetensors')",
    "put('config.json')\nos.mkdir(stage + '/sub/model.safetensors')",
    "put('config.json')\nos.link(stage + '/config.json', stage + '/sub/model.safetensors')",
    "put('config.json')\nimport socket\nsocket.socket(socket.AF_UNIX).bind(stage + '/sub/model.safetensors')",
])
def test_links_and_devices_are_refused_and_change_nothing(hub, tmp_path, monkeypatch, code):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "model.safetensors").write_text("a file of the user's")
    (outside / "model.safetensors").chmod(0o600)
    taken_over(monkeypatch, code.format(victim=str(outside / "model.safetensors"), folder=str(outside)))
    with pytest.raises(ModelUnavailable, match="no plain file"):
        find_model(NAME, os.environ)
    assert (outside / "model.safetensors").read_text() == "a file of the user's" and (outside / "model.safetensors").stat().st_mode & 0o777 == 0o600
    assert nothing_came()


def test_a_box_that_fetches_sees_nothing_of_the_user_and_reaches_nothing_else(hub, tmp_path, monkeypatch):
    (tmp_path / "private").write_text("private")
    taken_over(monkeypatch, f"""
        found = {{"private": os.path.exists({str(tmp_path / 'private')!r}), "cache": os.path.exists({hub_cache()!r}), "environment": dict(os.environ)}}
        import socket
        try:
            socket.create_connection(("other.carrel.internal", {hub.server_address[1]}), 5)
            found["connected"] = True
        except OSError as e:
            found["connected"] = False
        put("config.json", json.dumps(found))
        tell(error={{"kind": "Seen", "said": json.dumps(found)}})
        sys.exit()""")
    with pytest.raises(ModelUnavailable) as failed:
        find_model(NAME, {**os.environ, "HF_TOKEN": TOKEN})
    assert "other.carrel.internal" in str(failed.value)
    found = json.loads(next(store().rglob("config.json")).read_text())
    assert (found["private"], found["cache"], found["connected"]) == (False, False, False) and TOKEN not in json.dumps(found)


def test_a_box_that_writes_without_end_is_ended(hub, monkeypatch):
    monkeypatch.setattr("carrel.environment.hub._SLACK", 1 << 20)
    taken_over(monkeypatch, """
        with open(stage + "/endless", "wb") as file:
            for _ in range(10000):
                if file.tell() < 200 << 20:
                    file.write(bytes(1 << 20))
                    file.flush()
                else:
                    import select
                    select.select([], [], [], 0.1)""")
    with pytest.raises(ModelUnavailable, match="more than the model has; it was ended"):
        find_model(NAME, os.environ)
    assert cached_snapshot(NAME) is None


def test_words_of_such_a_program_are_no_commands_for_a_terminal(hub, monkeypatch):
    taken_over(monkeypatch, 'tell(error={"kind": "X", "said": "\\x1b]0;owned\\x07 words"})\nsys.exit()')
    with pytest.raises(ModelUnavailable) as failed:
        find_model(NAME, os.environ)
    assert "\x1b" not in str(failed.value) and "words" in str(failed.value)


@pytest.mark.parametrize("code,words", [("print('[' * 100000)\nos._exit(0)", "ok"), ("os._exit(3)", "error"), ("tell(error='x')\nos._exit(0)", "cannot be read"),
                                        ("os.kill(os.getpid(), 9)", "killed|error")])
def test_an_answer_that_is_none_is_an_error_in_words(hub, monkeypatch, code, words):
    taken_over(monkeypatch, code)
    with pytest.raises(ModelUnavailable, match="cannot fetch"):
        find_model(NAME, os.environ)
    assert cached_snapshot(NAME) is None


def test_progress_is_a_line_for_each_tenth_where_no_terminal_is(capsys):
    shown = hub_box._Progress(1000, is_quiet=False)
    for size in (0, 50, 120, 130, 990, 5000, -3):
        shown.show(size)
    shown.end()
    assert capsys.readouterr().err == "carrel: 120 bytes of 1 kB\ncarrel: 990 bytes of 1 kB\ncarrel: 1 kB of 1 kB\n"
    hub_box._Progress(1000, is_quiet=True).show(500)
    assert capsys.readouterr().err == ""


# --- what cannot be had ---

def test_a_box_that_cannot_be_made_says_so_and_what_to_do(hub, tmp_path, monkeypatch):
    from carrel.errors import Unavailable

    def none():
        raise Unavailable("the private server did not start: user namespaces are off")
    monkeypatch.setattr("carrel.environment.hub.scoped_server", none)
    with pytest.raises(ModelUnavailable, match="(?s)user namespaces are off.*hf download.*CARREL_MODELS"):
        find_model(NAME, os.environ)
    assert hub.asked == []


def test_a_disk_that_fills_up_says_so(hub, monkeypatch):
    taken_over(monkeypatch, 'tell(error={"kind": "OSError", "said": "No space left on device", "no_space": True})\nsys.exit()')
    with pytest.raises(ModelUnavailable, match="(?s)the disk is full.*make room"):
        find_model(NAME, os.environ)


def test_an_abandoned_stage_of_another_commit_goes(hub):
    old = store() / ".carrel/deadbeef"
    old.mkdir(parents=True)
    (old / "closed").mkdir(mode=0)
    find_model(NAME, os.environ)
    assert not (store() / ".carrel").exists()


def test_a_tree_that_is_deep_and_closed_is_measured_and_removed(tmp_path):
    top = at = tmp_path / "tree"
    at.mkdir()
    os.symlink(tmp_path, at / "out")
    (tmp_path / "kept").write_text("kept")
    descriptor = os.open(at, os.O_RDONLY)
    for _ in range(1500):       # deeper than Python recurses
        os.mkdir("d", dir_fd=descriptor)
        deeper = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = deeper
    os.close(descriptor)
    (at / "closed").mkdir()
    (at / "closed/file").write_text("x")
    (at / "closed").chmod(0)
    assert taken(str(top))[1] >= 1500
    discard(str(top))
    assert not top.exists() and (tmp_path / "kept").read_text() == "kept"


def test_what_is_no_list_of_files_is_refused():
    ok = {"commit": COMMIT, "files": [{"name": "a/b.json", "size": None, "blob": "../x", "sha256": "Z"}]}
    assert landing.checked_list(ok) == (COMMIT, [{"name": "a/b.json", "size": None, "sha256": None, "blob": None}])
    for told in (None, [], {}, {"commit": COMMIT}, {"commit": 3, "files": []}, {"commit": COMMIT, "files": [3]}, {"commit": COMMIT, "files": [{}] * 30000}):
        with pytest.raises(landing.Refused):
            landing.checked_list(told)

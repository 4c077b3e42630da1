"""Models in a volume of a running server: fetched once by its owner, read-only in sandboxes of all with whom it is shared."""
import json
import os
import subprocess
import sys
import textwrap

import pytest
from hub_server import Hub
from test_hub import LISTED

from carrel import Carrel
from carrel.environment import ConfigError, ModelConfig, Sandbox, SandboxConfig, ScopedSandbox, hub_box
from carrel.environment.hub import ModelUnavailable, hub_cache
from carrel.errors import Unavailable
from support import SDK
from support.server import Server
from support.users import ORDINARY, make_user, user_command

pytestmark = pytest.mark.skipif(os.geteuid() == 0 and not os.access("/dev/loop-control", os.R_OK), reason="root's volumes need loop devices")
NAME = "google/gemma-2-9b"
TOKEN = "hf_0123456789abcdefghij"


@pytest.fixture(scope="module")
def server():
    made = Server("--set", f"templates.python.python={sys.executable}")
    yield made
    made.stop()


@pytest.fixture
def carrel(server, monkeypatch):
    monkeypatch.setenv("CARREL_URL", server.url)
    it = Carrel()
    it.create_volume("models", size="64M")
    yield it
    for box in it.list():
        box.delete()
    for volume in it.volumes():
        volume.delete()


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
    it = Hub({NAME: weights})
    monkeypatch.setenv("HF_ENDPOINT", it.url)
    yield it
    it.end()


def config(**more):
    return SandboxConfig(models=[ModelConfig(NAME)], model_cache="volume:models", **more)


def in_volume(carrel, line):
    with carrel.create(template=None, volumes={"models": "/models:ro"}) as box:
        return box.exec(line, check=True).stdout.split()


def test_a_model_is_fetched_into_the_volume_once_and_read_only(carrel, hub, weights, tmp_path, server, monkeypatch):
    hub.gated = TOKEN
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with Sandbox(config()) as sandbox:
        [handle] = sandbox.model_handles
        assert handle.volume_path == f"/models/{NAME}"
        inside = sandbox.exec(f"sha256sum <{handle.volume_path}/model.safetensors; touch {handle.volume_path}/x 2>&1 || true")
        assert inside.split()[0] == hub_sha(weights) and "Read-only" in inside
        assert [v.name for v in carrel.volumes()] == ["models"]         # that of the download is gone
        hub.asked.clear()
        with Sandbox(config()) as second:
            assert second.exec(f"ls {handle.volume_path}").split() == ["config.json", "model.safetensors"]
    assert hub.asked == [] and not os.path.exists(hub_cache()) and carrel.list() == []
    assert in_volume(carrel, "ls -A /models") in (["google", "lost+found"], ["google"])
    found = subprocess.run(["grep", "-rlF", "--devices=skip", TOKEN, server.folder, tmp_path], capture_output=True, text=True, check=False)
    assert found.stdout == "", found


def hub_sha(folder):
    return subprocess.run(["sha256sum", folder / "model.safetensors"], capture_output=True, text=True, check=True).stdout.split()[0]


def test_functions_of_a_scoped_sandbox_read_it_and_a_session_calls_them(carrel, hub, tmp_path, monkeypatch):
    from carrel.execution import create_local_session
    from carrel.workspace import Workspace
    monkeypatch.setenv("CARREL_MODELS", "volume:models")
    (tmp_path / "interface.py").write_text(textwrap.dedent(f"""
        import json
        path = get_model_path({NAME!r})

        @expose
        def layers() -> int:
            return json.load(open(path + "/config.json"))["num_hidden_layers"]
        """))
    (tmp_path / "work").mkdir()
    with ScopedSandbox(SandboxConfig(models=[ModelConfig(NAME)])) as scoped:
        tools = scoped.serve(tmp_path / "interface.py", expose_as="library", name="model_tools")
        with create_local_session(Workspace(libraries=[tools]), workspace_dir=tmp_path / "work") as session:
            assert session.exec("import model_tools; model_tools.layers()", check=True).text == "2"
        done = subprocess.run([sys.executable, "-c", "import model_tools; print(model_tools.layers())"], cwd=tmp_path / "work", capture_output=True, text=True)
        assert done.stdout == "2\n", done.stderr
    assert carrel.list() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to be two users")
def test_another_identity_reads_it_and_fetches_nothing(carrel, hub, tmp_path):
    make_user()
    with Sandbox(config()):
        pass
    hub.asked.clear()
    story = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(SDK)!r})
        from carrel.environment import *
        def run(model):
            try:
                with Sandbox(SandboxConfig(models=[ModelConfig(model)], model_cache="volume:uid:0/models")) as sandbox:
                    path = sandbox.model_handles[0].volume_path
                    print(sandbox.exec("cat " + path + "/config.json; touch " + path + "/x 2>&1 || true"))
            except ModelUnavailable as e:
                print(e)
        run({NAME!r})
        run("google/other")
        """)
    environment = {"CARREL_URL": os.environ["CARREL_URL"], "HF_ENDPOINT": hub.url, "CARREL_BIN": os.environ["CARREL_BIN"]}

    def as_other():
        words = [*user_command(ORDINARY), "env", *(f"{k}={v}" for k, v in environment.items()), sys.executable, "-B", "-c", story]
        done = subprocess.run(words, capture_output=True, text=True, cwd="/", timeout=90)
        assert done.returncode == 0, done.stderr
        return done.stdout
    assert "there is no volume" in as_other()
    carrel.volume("models").share("all")
    said = as_other()
    assert '{"num_hidden_layers": 2}' in said and "Read-only" in said and "only its owner" in said
    assert hub.asked == []


def taken_over(monkeypatch, code):
    source = hub_box.inspect.getsource
    monkeypatch.setattr(hub_box.inspect, "getsource",
                        lambda module: LISTED + code + "\ntell(got=2)\n" if module is hub_box.hub_worker else source(module))


@pytest.mark.parametrize("code", ["put('config.json')\nos.symlink('/models/google', stage + '/sub/model.safetensors')",
                                  "put('config.json')\nput('sub/model.safetensors', 'too long')"])
def test_what_a_hostile_download_left_does_not_come_into_the_volume(carrel, hub, monkeypatch, code):
    with Sandbox(config()):
        pass
    before = in_volume(carrel, "find /models ! -name lost+found | sort")
    taken_over(monkeypatch, code)
    with pytest.raises(ModelUnavailable, match="Nothing of it was kept"):
        Sandbox(SandboxConfig(models=[ModelConfig("google/evil")], model_cache="volume:models")).start()
    assert in_volume(carrel, "find /models ! -name lost+found | sort") == before and [v.name for v in carrel.volumes()] == ["models"]


def test_a_box_that_fetches_does_not_see_other_models(carrel, hub, monkeypatch):
    taken_over(monkeypatch, 'tell(error={"kind": "X", "said": repr(sorted(os.listdir("/models") if os.path.exists("/models") else ["none"]))})\nsys.exit()')
    with pytest.raises(ModelUnavailable, match="none"):
        Sandbox(config()).start()


def test_an_interrupted_download_goes_on(carrel, hub, weights, monkeypatch):
    (weights / "model.safetensors").write_bytes(os.urandom(1 << 20) * 20)

    class Interrupted(BaseException):
        pass

    def ended(self, size):
        if size >= 8 << 20:
            raise Interrupted
    with monkeypatch.context() as m:
        m.setattr(hub_box._Progress, "show", ended)
        hub.pauses["model.safetensors"] = 12 << 20
        with pytest.raises(Interrupted):
            Sandbox(config()).start()
    hub.resume.set()
    hub.served.clear()
    with Sandbox(config()):
        assert [begin > 0 for name, begin in hub.served if name == "model.safetensors"] == [True]
    assert [v.name for v in carrel.volumes()] == ["models"]


def test_a_model_larger_than_the_volume_says_how_to_make_room(carrel, hub, weights):
    (weights / "model.safetensors").write_bytes(os.urandom(1 << 20) * 70)
    if carrel.volume("models").raw["size_is_enforced"]:
        with pytest.raises(ModelUnavailable, match="carrel volume resize models"):
            Sandbox(config()).start()
        carrel.volume("models").resize("128M")
        hub.served.clear()
    with Sandbox(config()) as sandbox:
        assert sandbox.exec(f"stat -c %s /models/{NAME}/model.safetensors") == f"{70 << 20}\n"
    assert in_volume(carrel, "ls -A /models") in (["google", "lost+found"], ["google"])


def test_what_cannot_be_had_is_refused_in_words(carrel, hub, monkeypatch):
    with pytest.raises(ModelUnavailable, match="(?s)no volume 'nosuch'.*carrel volume create nosuch"):
        Sandbox(SandboxConfig(models=[ModelConfig(NAME)], model_cache="volume:nosuch")).start()
    with pytest.raises(ConfigError, match="hidden=True"):
        Sandbox(SandboxConfig(models=[ModelConfig(NAME, hidden=True)], model_cache="volume:models")).start()
    for cache in ("models", "volume:", "volume:../x", "volume:a/b/c", 3):
        with pytest.raises(ConfigError, match="volume:NAME"):
            Sandbox(SandboxConfig(model_cache=cache))
    with pytest.raises(ModelUnavailable, match="has no model google/nosuch"):
        Sandbox(SandboxConfig(models=[ModelConfig("google/nosuch")], model_cache="volume:models")).start()
    monkeypatch.setenv("CARREL_URL", "http://127.0.0.1:9")
    with pytest.raises(Unavailable, match="must be this machine's"):
        Sandbox(config()).start()


def test_a_volume_without_a_running_server_is_refused(monkeypatch):
    monkeypatch.delenv("CARREL_URL", raising=False)
    monkeypatch.setattr("carrel.environment.server.running_server", lambda: None)
    with pytest.raises(Unavailable, match="volumes are kept by a server that stays"):
        Sandbox(config()).start()


def test_a_model_that_the_user_put_there_is_used(carrel, hub):
    with carrel.create(template=None, volumes={"models": "/models"}) as box:
        box.exec(f"mkdir -p /models/{NAME} && echo '{{}}' >/models/{NAME}/config.json", check=True)
    with Sandbox(config()) as sandbox:
        assert sandbox.exec(f"cat /models/{NAME}/config.json") == "{}\n"
    assert hub.asked == []

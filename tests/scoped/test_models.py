"""Where a model comes from, with the real huggingface_hub against a hub on loopback."""
import json
import os
import pathlib
import shutil

import pytest
from hub_server import COMMIT, Hub

from carrel.environment import ConfigError, ModelConfig
from carrel.environment.hub import ModelUnavailable
from carrel.environment.models import cached_snapshot, find_model, provide_models

NAME = "google/gemma-2-9b"


@pytest.fixture
def weights(tmp_path):
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"_name_or_path": NAME, "num_hidden_layers": 2}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(os.urandom(1 << 20) * 25)
    (folder / "pytorch_model.bin").write_bytes(b"the same again")
    return folder


@pytest.fixture
def hub(weights, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    it = Hub({NAME: weights})
    monkeypatch.setenv("HF_ENDPOINT", it.url)
    yield it
    it.end()


def test_a_model_is_fetched_once_into_the_cache_of_all(hub, weights):
    folder = find_model(NAME, os.environ)
    assert sorted(os.listdir(folder)) == ["config.json", "model.safetensors", "tokenizer.json"]      # not the same weights again
    assert pathlib.Path(folder, "model.safetensors").read_bytes() == (weights / "model.safetensors").read_bytes()
    hub.asked.clear()
    assert find_model(NAME, os.environ) == folder == cached_snapshot(NAME)
    assert hub.asked == []
    import huggingface_hub
    assert huggingface_hub.hf_hub_download(NAME, "model.safetensors", cache_dir=os.environ["HF_HOME"] + "/hub",
                                           local_files_only=True) == folder + "/model.safetensors"


def test_a_download_that_broke_is_resumed(hub):
    hub.breaks["model.safetensors"] = 15 << 20
    folder = find_model(NAME, os.environ)
    assert os.path.getsize(folder + "/model.safetensors") == 25 << 20
    assert [begin for name, begin in hub.served if name == "model.safetensors"][-1] > 0


def test_a_partial_snapshot_is_no_model(hub):
    """Only config.json is there: the original takes that for the whole."""
    folder = find_model(NAME, os.environ)
    os.unlink(folder + "/model.safetensors")
    assert cached_snapshot(NAME) is None
    assert os.path.isfile(find_model(NAME, os.environ) + "/model.safetensors")


def test_a_snapshot_without_a_part_that_its_index_names_is_no_model(hub):
    folder = find_model(NAME, os.environ)
    pathlib.Path(folder, "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors"}}))
    assert cached_snapshot(NAME) is None


def test_an_adapter_in_the_cache_is_not_fetched_again(hub, weights):
    (weights / "config.json").rename(weights / "adapter_config.json")
    folder = find_model(NAME, os.environ)
    assert cached_snapshot(NAME) == folder


def test_a_gated_model_says_what_the_hub_says_and_what_to_do(hub, monkeypatch):
    hub.gated = "hf_secret"
    with pytest.raises(ModelUnavailable) as failed:
        find_model(NAME, os.environ)
    assert "is gated" in str(failed.value) and "restricted" in str(failed.value) and f"{hub.url}/{NAME}" in str(failed.value) and "HF_TOKEN" in str(failed.value)
    assert find_model(NAME, {**os.environ, "HF_TOKEN": "hf_secret"})


def test_a_model_that_is_not_there_says_so(hub):
    with pytest.raises(ModelUnavailable, match="has no model google/nosuch"):
        find_model("google/nosuch", os.environ)


def test_a_hub_that_is_not_there_says_so(hub, monkeypatch):
    monkeypatch.setattr("carrel.environment.hub._TRIES", 1)
    with pytest.raises(ModelUnavailable, match="HF_ENDPOINT"):
        find_model(NAME, {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9"})


def test_a_model_larger_than_the_disk_is_not_begun(hub):
    hub.sizes["model.safetensors"] = 10 ** 18
    with pytest.raises(ModelUnavailable, match="free"):
        find_model(NAME, os.environ)
    assert hub.served == []


@pytest.mark.parametrize("setting", ["folder", "mapping", "json"])
def test_a_directory_that_the_user_named_comes_first(weights, tmp_path, setting, monkeypatch):
    place = tmp_path / "models" / NAME
    shutil.copytree(weights, place)
    value = {"folder": str(tmp_path / "models"), "mapping": f"x=/nosuch,{NAME}={place}", "json": json.dumps({NAME: str(place)})}[setting]
    assert find_model(NAME, {"CARREL_MODELS": value}) == str(place)


def test_a_hidden_model_has_its_name_nowhere(hub):
    find_model(NAME, os.environ)
    models = provide_models([ModelConfig(name=NAME, hidden=True)], os.environ)
    [mount] = models.mounts
    assert "gemma" not in mount["target"] and COMMIT not in mount["target"] and "gemma" not in mount["source"]
    assert sorted(os.listdir(mount["source"])) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert not any(os.path.islink(os.path.join(mount["source"], f)) for f in os.listdir(mount["source"]))
    assert "gemma" not in pathlib.Path(mount["source"], "config.json").read_text()
    models.close()
    assert not os.path.exists(mount["source"])


def test_hiding_a_name_does_not_change_what_the_model_is(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = tmp_path / "models/org/llama"
    place.mkdir(parents=True)
    (place / "config.json").write_text(json.dumps({"model_type": "llama", "_name_or_path": "org/llama", "architectures": ["LlamaModel"], "note": "of org/llama"}))
    (place / "README.md").write_text("# org/llama")
    (place / "merges.txt").write_text("llama org\n")
    models = provide_models([ModelConfig(name="org/llama", hidden=True)], {"CARREL_MODELS": str(tmp_path / "models")})
    made = pathlib.Path(models.mounts[0]["source"])
    assert json.loads((made / "config.json").read_text()) == {"model_type": "llama", "_name_or_path": "model", "architectures": ["LlamaModel"], "note": "of model"}
    assert (made / "merges.txt").read_text() == "llama org\n" and not (made / "README.md").exists()
    models.close()


def test_what_a_killed_program_left_of_a_hidden_model_is_removed(hub):
    find_model(NAME, os.environ)
    left = pathlib.Path(os.environ["XDG_CACHE_HOME"], "carrel/hidden/.carrel-4194305-aa")
    left.mkdir(parents=True)
    provide_models([ModelConfig(name=NAME, hidden=True)], os.environ).close()
    assert not left.exists()


def test_names_that_differ_do_not_meet(hub, weights):
    """a/b-c and a-b/c were one variable of the environment in the original."""
    hub.models.update({"a/b-c": weights, "a-b/c": weights})
    models = provide_models([ModelConfig(name="a/b-c"), ModelConfig(name="a-b/c", var_name="other")], os.environ)
    assert len(set(models.paths.values())) == 2


@pytest.mark.parametrize("name", ["../x", "a/b/c", "a/../b", "", "a b", 'x"); import os', "-x/y"])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(ConfigError):
        ModelConfig(name=name)


def test_an_adapter_needs_its_base():
    with pytest.raises(ConfigError, match="base_model"):
        ModelConfig(name="a/b", is_peft=True)

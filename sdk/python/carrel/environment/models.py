"""The place of a model: a directory that the user named, a complete snapshot in the hub's cache, or a new download."""
from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping

from .cache import cache_dir
from .config import ConfigError, ModelConfig, ModelHandle
from .hub import ModelUnavailable, fetch_model, hub_cache
from .model_volume import ModelVolume

_WEIGHTS = (".safetensors", ".bin", ".gguf", ".pt", ".pth", ".h5", ".msgpack", ".onnx")
_KINDS = ("model_type", "architectures", "tokenizer_class", "auto_map")     # names by which code looks it up
_SMALL = 1_000_000      # bytes; texts up to here are searched for a hidden model's name


def named_directory(name: str, setting: str | None) -> str | None:
    """The entry of a model in CARREL_MODELS: NAME=DIR,NAME=DIR or JSON or a folder that contains NAME."""
    if not setting:
        return None
    if setting.lstrip().startswith("{"):
        try:
            mapping = json.loads(setting)
        except ValueError as e:
            raise ModelUnavailable(f"CARREL_MODELS is not JSON: {e}") from None
    elif "=" in setting:
        mapping = dict(part.split("=", 1) for part in setting.replace("\n", ",").split(",") if "=" in part)
    else:
        place = os.path.join(setting, name)
        return os.path.abspath(place) if os.path.isdir(place) else None
    found: str | None = mapping.get(name)
    if found is None:
        return None
    if not os.path.isdir(found):
        raise ModelUnavailable(f"CARREL_MODELS says that {name} is in {found}, and there is no such directory")
    return os.path.abspath(found)


def is_complete(folder: str) -> bool:
    """Whether a snapshot has all files of its own lists. A file without its blob, or a missing part of the weights, makes it incomplete."""
    try:
        names = [os.path.join(base, f) for base, _, files in os.walk(folder) for f in files]
    except OSError:
        return False
    if not names or not all(os.path.isfile(n) for n in names):
        return False
    if not any(os.path.basename(n) in ("config.json", "adapter_config.json") for n in names):
        return False
    weights = [n for n in names if n.endswith(_WEIGHTS)]
    for index in (n for n in names if n.endswith(".index.json")):
        try:
            with open(index, encoding="utf-8") as file:
                parts = set(json.load(file)["weight_map"].values())
        except (OSError, ValueError, KeyError, AttributeError):
            return False
        if not all(os.path.isfile(os.path.join(os.path.dirname(index), part)) for part in parts):
            return False
    return bool(weights)


def cached_snapshot(name: str) -> str | None:
    """A complete snapshot of the revision that is called main."""
    store = os.path.join(hub_cache(), "models--" + name.replace("/", "--"))
    try:
        with open(os.path.join(store, "refs", "main"), encoding="ascii") as file:
            commit = file.read().strip()
        partial = any(f.endswith(".incomplete") for f in os.listdir(os.path.join(store, "blobs")))
    except (OSError, ValueError):
        return None
    folder = os.path.join(store, "snapshots", commit)
    return folder if commit.isalnum() and not partial and is_complete(folder) else None


def find_model(name: str, environment: Mapping[str, str]) -> str:
    """The directory with the model's files; downloaded if necessary."""
    found = named_directory(name, environment.get("CARREL_MODELS")) or cached_snapshot(name)
    return found or fetch_model(name, environment)


@dataclass
class Models:
    """Models for a sandbox: their mounts and handles. close() removes the files made for it."""

    mounts: List[Dict[str, Any]] = field(default_factory=list)
    handles: List[ModelHandle] = field(default_factory=list)
    paths: Dict[str, str] = field(default_factory=dict)
    volumes: Dict[str, str] = field(default_factory=dict)
    _made: List[str] = field(default_factory=list)

    def close(self) -> None:
        while self._made:
            shutil.rmtree(self._made.pop(), ignore_errors=True)

    def _mount(self, name: str, folder: str, hidden: List[str]) -> str:
        """hidden: names that must not be seen."""
        if name in self.paths:
            return self.paths[name]
        if hidden:
            folder = _anonymous_copy(folder, hidden)
            self._made.append(folder)
            source, target, inside = folder, f"/models/{secrets.token_hex(8)}", ""
        else:
            source, inside = _whole(folder)
            target = f"/models/{name.replace('/', '--')}"
        self.mounts.append({"source": source, "target": target, "writable": False})
        self.paths[name] = os.path.join(target, inside) if inside else target
        return self.paths[name]

    def add_from(self, volume: ModelVolume, model: ModelConfig, environment: Mapping[str, str]) -> None:
        """A model of a volume, which the box mounts as a whole."""
        if model.hidden:
            raise ConfigError(f"ModelConfig(name={model.name!r}, hidden=True) cannot be had from a volume, where directories have the models' names; "
                              "leave CARREL_MODELS or model_cache out")
        self.volumes = volume.mount
        for name in [model.name, *([model.base_model] if model.base_model else [])]:
            if name not in self.paths:
                self.paths[name] = volume.provide(name, environment)
        base = self.paths[model.base_model] if model.base_model else None
        self.handles.append(ModelHandle(model.name, self.paths[model.name], model.var_name, False, model.is_peft, model.base_model, base, model.load_as_peft))

    def add(self, model: ModelConfig, environment: Mapping[str, str]) -> None:
        names = [model.name, *([model.base_model] if model.base_model else [])]
        hidden = names if model.hidden else []
        path = self._mount(model.name, find_model(model.name, environment), hidden)
        base = None
        if model.base_model:
            base = self._mount(model.base_model, find_model(model.base_model, environment), hidden)
        self.handles.append(ModelHandle(model.name, path, model.var_name, model.hidden, model.is_peft, model.base_model, base, model.load_as_peft))


def _whole(folder: str) -> tuple[str, str]:
    """The mounts that the snapshot's links need, and the snapshot below them."""
    store = os.path.dirname(os.path.dirname(folder))
    if os.path.basename(os.path.dirname(folder)) == "snapshots" and os.path.isdir(os.path.join(store, "blobs")):
        return store, os.path.relpath(folder, store)
    return folder, ""


def _words(names: List[str]) -> List[str]:
    """The texts that reveal a name: all of it, then its parts, the longest first."""
    parts = {part for name in names for part in (name, *name.split("/"), name.replace("/", "--")) if len(part) > 2}
    return sorted(parts, key=len, reverse=True)


def _neutral_place(real: str, names: List[str]) -> str:
    """A directory of the same file system, so that data need not be copied, whose path does not reveal a name: a box can see the sources of its mounts."""
    candidates = [cache_dir("hidden")]
    above = os.path.dirname(real)
    while above != "/":
        candidates.append(above)
        above = os.path.dirname(above)
    device = os.stat(real).st_dev
    for place in candidates:
        if os.stat(place).st_dev == device and os.access(place, os.W_OK) and not any(word in place for word in _words(names)):
            return place
    return candidates[0]


def _anonymous_copy(folder: str, names: List[str]) -> str:
    """The model's files in a directory whose path does not reveal its name: links to the same data, and small texts without the name."""
    home = _neutral_place(os.path.realpath(folder), names)
    _remove_abandoned(home)
    made = os.path.join(home, f".carrel-{os.getpid()}-{secrets.token_hex(8)}")
    os.mkdir(made, 0o755)
    try:
        for base, _, files in os.walk(folder):
            to = os.path.join(made, os.path.relpath(base, folder))
            os.makedirs(to, exist_ok=True)
            for file in files:
                _anonymous_file(os.path.realpath(os.path.join(base, file)), os.path.join(to, file), names)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return made


def _remove_abandoned(home: str) -> None:
    """Those of programs that were killed."""
    for name in os.listdir(home):
        parts = name.split("-")
        if name.startswith(".carrel-") and len(parts) == 3 and parts[1].isdigit() and not os.path.exists(f"/proc/{parts[1]}"):
            shutil.rmtree(os.path.join(home, name), ignore_errors=True)


def _anonymous_text(data: bytes, names: List[str], is_json: bool) -> bytes:
    """Removes the names. In JSON only from values that name a model's origin: a kind of model may share a part of the name."""
    if is_json:
        try:
            return json.dumps(_anonymous_value(json.loads(data), names), ensure_ascii=False).encode()
        except ValueError:
            pass
    for name in names:
        data = data.replace(name.encode(), b"model").replace(name.replace("/", "--").encode(), b"model")
    return data


def _anonymous_value(value: Any, names: List[str], key: str = "") -> Any:
    if isinstance(value, dict):
        return {k: _anonymous_value(v, names, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_anonymous_value(v, names, key) for v in value]
    if not isinstance(value, str) or key in _KINDS:
        return value
    if key.endswith("name_or_path"):
        return "model"
    return without_names(value, names)


def without_names(text: str, names: List[str]) -> str:
    """A part of a name is a word of its own if it looks like one: gemma-2-9b, but not bert."""
    for name in names:
        for word in (name, name.replace("/", "--"), *(part for part in name.split("/") if "-" in part or any(c.isdigit() for c in part))):
            text = text.replace(word, "model")
    return text


def _anonymous_file(source: str, target: str, names: List[str]) -> None:
    status = os.stat(source)
    if not stat.S_ISREG(status.st_mode):
        return
    if os.path.basename(target).lower().endswith((".md", ".gitattributes")) or os.path.basename(target).upper().startswith(("README", "LICENSE", "NOTICE")):
        return      # words about the model, for people
    if status.st_size <= _SMALL and not source.endswith(_WEIGHTS):
        with open(source, "rb") as file:
            data = _anonymous_text(file.read(), names, is_json=target.endswith(".json"))
        with open(target, "wb") as out:
            out.write(data)
        return
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        os.chmod(target, 0o644)


def provide_models(models: List[ModelConfig], environment: Mapping[str, str], volume: ModelVolume | None = None) -> Models:
    """Those of the volume, or of this machine's directories and caches."""
    made = Models()
    try:
        for model in models:
            if volume is not None:
                made.add_from(volume, model, environment)
            else:
                made.add(model, environment)
    except BaseException:
        made.close()
        raise
    return made

"""Models in a volume of a running server: fetched once by its owner, read-only in sandboxes of all with whom it is
shared.

Three kinds of boxes: one that looks; those that reach the hub and write into a volume of the download's own; and one
without network that checks the files there and copies them. So a hub never has a box that can change another model."""
from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import sys
from typing import Any, Dict, List, Mapping

from ..client import Box, Carrel
from ..errors import CarrelError, Conflict, NotFound
from ..volumes import Volume
from . import landing
from .cache import human
from .hub import wanted
from .hub_box import HubBox, ModelUnavailable, plain
from .landing import File

PREFIX = "volume:"
PLACE = "/models"           # of the volume in a sandbox
_STEP, _ROOM = 16 << 20, 64 << 20
_LOOK = 'test -e "$1/config.json" || test -e "$1/adapter_config.json"'
_TRIES = 5
Raw = Dict[str, Any]


def volume_name(setting: str | None) -> str | None:
    """The name of a volume in CARREL_MODELS or SandboxConfig(model_cache=...); None if it names something else."""
    return setting[len(PREFIX):] if setting and setting.startswith(PREFIX) else None


class ModelVolume:
    """A volume with a directory for each model, by its name: google/gemma-2-9b. A directory is complete or missing."""

    def __init__(self, name: str, carrel: Carrel):
        self.name, self._carrel = name, carrel
        try:
            self._volume = carrel.volume(name)
        except NotFound as e:
            raise ModelUnavailable(
                f"models are to be in {PREFIX}{name}: {e}\nWhat to do: carrel volume create {name} --size 100G, or, for one "
                "that another identity shares, name it OWNER/NAME") from None

    @property
    def mount(self) -> Dict[str, str]:
        """For the boxes of sandboxes."""
        return {self.name: f"{PLACE}:ro"}

    def provide(self, model: str, environment: Mapping[str, str]) -> str:
        """The model's directory in a sandbox; it is fetched if it is not there."""
        if not self._has(model):
            owner = str(self._volume.raw["owner"])
            if owner != self._carrel.me()["identity"]:
                raise ModelUnavailable(
                    f"the volume {self.name} has no model {model}, and it is {owner}'s: only its owner can have the model "
                    "fetched into it; without the volume it is fetched for you")
            with HubBox(model, environment, lambda: self._carrel, own=False, tries=_TRIES) as boxes:
                commit, files = boxes.list()
                _Fetch(self, model, commit, wanted(files)).run(boxes)
        return f"{PLACE}/{model}"

    def _has(self, model: str) -> bool:
        with self._carrel.create(template=None, volumes=self.mount) as box:
            return box.exec(["sh", "-c", _LOOK, "sh", f"{PLACE}/{model}"]).ok

    def box(self, staging: str) -> Box:
        """The one that copies: without network, and the only one that writes to the volume."""
        return self._carrel.create(volumes={staging: "/staging:ro", self.name: PLACE})

    def staging(self, name: str, size: int) -> Volume:
        """A volume for a download; that of one which was interrupted, if it is there."""
        try:
            return self._carrel.create_volume(name, size=size)
        except Conflict:
            return self._carrel.volume(name)

    def python(self) -> str:
        """The interpreter of the copying box."""
        return str(next(t["python"] for t in self._carrel.info()["templates"] if t["name"] == "python"))


class _Fetch:
    """One download into a volume of its own, and from there into the models' volume."""

    def __init__(self, volume: ModelVolume, model: str, commit: str, files: List[File]):
        self.volume, self.model, self.commit, self.files = volume, model, commit, files
        mark = hashlib.sha256(f"{volume.name}\n{model}\n{commit}".encode()).hexdigest()[:20]
        self.mark = f"fetch-{mark}"

    def run(self, boxes: HubBox) -> None:
        total = sum(f["size"] or 0 for f in self.files)
        words = f"carrel: fetching {self.model}, {human(total)}, into the volume {self.volume.name}"
        print(words, file=sys.stderr, flush=True)
        size = (total + total // 10 + _ROOM) // _STEP * _STEP + _STEP
        try:
            staging = self.volume.staging(self.mark, size)
            boxes.get(self.commit, self.files, volumes={self.mark: "/staging"})
            with self.volume.box(self.mark) as box:
                answer = self._land(box)
        except CarrelError as e:
            raise ModelUnavailable(f"cannot fetch {self.model} into the volume {self.volume.name}: {e}") from e
        silent = {"said": "the box that copies it ended without an answer"}
        error = answer.get("error") or ({} if answer.get("landed") else silent)
        if error.get("kind") != "Incomplete" and not error.get("no_space"):
            with contextlib.suppress(CarrelError):
                staging.delete()
        if error:
            raise self._failed(error)

    def _land(self, box: Box) -> Raw:
        asked = {"stage": "/staging", "files": self.files, "target": f"{PLACE}/{self.model}",
                 "fresh": f"{PLACE}/.{self.mark}"}
        done = box.exec([self.volume.python(), "-I", "-c", inspect.getsource(landing)], stdin=json.dumps(asked) + "\n")
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            return {"error": {"said": done.stderr.strip() or done.reason}}
        return answer if isinstance(answer, dict) else {}

    def _failed(self, error: Raw) -> ModelUnavailable:
        if error.get("no_space"):
            size = human(sum(f["size"] or 0 for f in self.files))
            name = self.volume.name
            return ModelUnavailable(f"{self.model} needs {size}, and the volume {name} is full\nWhat to do: carrel volume "
                                    f"resize {name} SIZE, while no box has it; what was fetched is used then")
        again = "try again, what is there is used" if error.get("kind") == "Incomplete" else "Nothing of it was kept"
        return ModelUnavailable(f"{self.model}: {plain(str(error.get('said')))}. {again}")

"""Named secrets of a server: values that processes in boxes get and that no answer, record or log has."""
from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Sequence, Union
from urllib.parse import quote

from .errors import CarrelError

if TYPE_CHECKING:
    from .client import Carrel

Raw = Dict[str, Any]
Secrets = Union[Mapping[str, str], Sequence[Union[str, Mapping[str, str]]]]
Keys = Sequence[Union[str, Mapping[str, str]]]


def _use(name: str, place: str) -> Raw:
    if not name or not place:
        raise ValueError(f"a secret is NAME=VARIABLE or NAME=/run/secrets/FILE, not {name}={place}")
    return {"name": name, "file" if place.startswith("/") else "env": place}


def secrets_body(uses: Secrets | None) -> List[Raw] | None:
    """{"hf": "HF_TOKEN", "cert": "/run/secrets/cert"}, ["hf=HF_TOKEN"], or the API's form, in the API's form."""
    if not uses:
        return None
    if isinstance(uses, str):
        raise TypeError("secrets is a mapping or a list, as in secrets={\"hf\": \"HF_TOKEN\"}")
    if isinstance(uses, Mapping):
        return [_use(str(name), place) for name, place in uses.items()]
    return [_use(*use.split("=", 1)) if isinstance(use, str) and "=" in use else dict(use) if isinstance(use, Mapping) else _use(str(use), "")
            for use in uses]


def _key(text: str) -> Raw:
    """NAME[=SECRET]@HOST[:HEADER], as with --key. The server checks the parts."""
    variable, at, place = text.partition("@")
    name, equals, secret = variable.partition("=")
    host, colon, header = place.partition(":")
    if not name or not host or (equals and not secret):
        raise ValueError(f"a key is NAME@HOST, NAME=SECRET@HOST or NAME@HOST:HEADER, as in 'OPENAI_API_KEY=openai@api.openai.com', not {text!r}")
    return {"secret": secret or name, "name": name, "host": host, **({"header": header} if colon else {})}


def keys_body(keys: Keys | None) -> List[Raw] | None:
    """["OPENAI_API_KEY=openai@api.openai.com"], or the API's form, in the API's form. None: the template's."""
    if keys is None:
        return None
    if isinstance(keys, (str, Mapping)):
        raise TypeError('keys is a list, as in keys=["OPENAI_API_KEY=openai@api.openai.com"]')
    return [_key(key) if isinstance(key, str) else dict(key) for key in keys]


def layer_path(layer: str) -> str:
    if layer in ("", ".", "..") or "/" in layer:
        raise ValueError(f"{layer!r} is not the id of a layer")
    return "/v1/layers/" + quote(layer, safe="")


def secret_path(name: str) -> str:
    if name in ("", ".", "..") or "/" in name:
        raise ValueError(f"{name!r} is not the name of a secret")
    return "/v1/secrets/" + quote(name, safe="")


def secret_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


class LentSecrets:
    """Values of this process that a server keeps for some boxes, under names that are used once, until drop()."""

    def __init__(self, server: "Carrel", values: Mapping[str, str]):
        self._server = server
        self.uses: List[Raw] = []
        mark = secrets.token_hex(8)
        try:
            for variable, value in values.items():
                name = f"lent-{mark}-{len(self.uses)}"
                server.create_secret(name, value)
                self.uses.append({"name": name, "env": variable})
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        while self.uses:
            with contextlib.suppress(CarrelError):
                self._server.delete_secret(self.uses[-1]["name"])
            self.uses.pop()

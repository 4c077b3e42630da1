"""Files of environment variables: NAME=VALUE, one by line, as shells and python-dotenv read them."""
from __future__ import annotations

import os
import re
from typing import Dict, Mapping

_LINE = re.compile(r"""
    [ \t]* (?:export[ \t]+)?
    (?: '(?P<quoted>[^'\n]+)' | (?P<name>[^=\#\s]+) ) [ \t]*
    (?: =[ \t]* (?: (?: '(?P<single>(?:\\'|[^'])*)' | "(?P<double>(?:\\"|[^"])*)" ) [ \t]* (?:\#[^\n]*)? | (?P<bare>(?!['"])[^\n]*) )
      | (?:\#[^\n]*)? )
    (?:\n|\Z)
""", re.X)
_BLANK = re.compile(r"[ \t]*(?:\#[^\n]*)?(?:\n|\Z)")
_ESCAPE = re.compile(r"\\[\\'\"abfnrtv]")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_REFERENCE = re.compile(r"\$\{(?P<name>[^}:]*)(?::-(?P<default>[^}]*))?\}")


def parse_dotenv(text: str, environment: Mapping[str, str] | None = None, source: str = "the environment file") -> Dict[str, str]:
    """The variables of a text. ${NAME} and ${NAME:-DEFAULT} mean an earlier variable of the text, or one of `environment`."""
    known: Dict[str, str] = dict(os.environ if environment is None else environment)
    found: Dict[str, str] = {}
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    position = 0
    while position < len(text):
        blank = _BLANK.match(text, position)
        if blank:
            position = blank.end()
            continue
        line = _LINE.match(text, position)
        if not line:
            raise ValueError(f"{source}, line {text.count(chr(10), 0, position) + 1}: not NAME=VALUE")
        position = line.end()
        value = _value(line)
        if value is None:
            continue                # a name alone has no value
        name = line["quoted"] or line["name"]
        known[name] = found[name] = _REFERENCE.sub(lambda m: known.get(m["name"], m["default"] or ""), value)
    return found


def _value(line: "re.Match[str]") -> str | None:
    if line["single"] is not None:
        return re.sub(r"\\([\\'])", r"\1", line["single"])
    if line["double"] is not None:
        return _ESCAPE.sub(lambda m: _ESCAPES.get(m[0][1], m[0][1]), line["double"])
    if line["bare"] is not None:
        return re.sub(r"\s+#.*", "", line["bare"]).rstrip()
    return None


def read_dotenv(path: str | os.PathLike[str]) -> Dict[str, str]:
    with open(path, encoding="utf-8") as file:
        return parse_dotenv(file.read(), source=os.fspath(path))

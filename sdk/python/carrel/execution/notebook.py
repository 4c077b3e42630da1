"""A notebook file that is written while its cells run: Jupyter's format 4.5, one writer at a time, never half of a file."""
from __future__ import annotations

import fcntl
import json
import os
import secrets
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List, TypeVar


Raw = Dict[str, Any]
T = TypeVar("T")
_PAUSE = 0.5        # seconds between two writings of one running cell; else a talkative one would be written once per line


def _lines(text: str) -> List[str]:
    return text.splitlines(keepends=True)


class NotebookFile:
    """Any process with the path can add cells, so it is read, changed and replaced under a lock."""

    def __init__(self, path: str):
        self.path = path

    @classmethod
    def create(cls, folder: str, name: str) -> "NotebookFile":
        os.makedirs(folder, exist_ok=True)
        stem = os.path.join(os.path.abspath(folder), f"{time.strftime('%Y-%m-%d-%H-%M')}_{name.replace('/', '-')}")
        for number in range(1000):
            path = f"{stem}.ipynb" if number == 0 else f"{stem}-{number}.ipynb"
            try:
                with open(path, "x", encoding="utf-8") as file:
                    json.dump(_empty(), file)
                return cls(path)
            except FileExistsError:
                continue
        raise FileExistsError(f"{stem}.ipynb and its like are all taken")

    def read(self) -> Raw:
        with open(self.path, encoding="utf-8") as file:
            notebook: Raw = json.load(file)
        return notebook

    def change(self, how: Callable[[List[Raw]], T]) -> T:
        """Applies how() to the cells."""
        folder = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            notebook = self.read()
            result = how(notebook["cells"])
            descriptor, made = tempfile.mkstemp(prefix=".notebook-", dir=os.path.dirname(self.path))
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(notebook, file, indent=1, ensure_ascii=False)
            os.chmod(made, 0o644)
            os.replace(made, self.path)
            return result
        finally:
            os.close(folder)

    def add_code(self, code: str) -> str:
        """A new cell, not run yet; its id."""
        cell = {"cell_type": "code", "id": secrets.token_hex(4), "metadata": {"execution_status": "pending"}, "source": _lines(code),
                "execution_count": None, "outputs": []}
        self.change(lambda cells: cells.append(cell))
        return str(cell["id"])

    def add_markdown(self, text: str) -> int:
        """A new cell; its number."""
        cell = {"cell_type": "markdown", "id": secrets.token_hex(4), "metadata": {}, "source": _lines(text)}

        def add(cells: List[Raw]) -> int:
            cells.append(cell)
            return len(cells)
        return self.change(add)

    def edit_code(self, index: int, code: str) -> str:
        """Replaces the code of a code cell (-1: the last one); its id."""
        def edit(cells: List[Raw]) -> str:
            codes = [c for c in cells if c["cell_type"] == "code"]
            if not -len(codes) <= index < len(codes):
                raise ValueError(f"there is no code cell {index}; there are {len(codes)}")
            codes[index].update(source=_lines(code), outputs=[], execution_count=None)
            codes[index]["metadata"]["execution_status"] = "pending"
            return str(codes[index]["id"])
        return self.change(edit)

    def update(self, cell_id: str, status: str, outputs: List[Raw], count: int | None) -> None:
        def put(cells: List[Raw]) -> None:
            for cell in cells:
                if cell["id"] == cell_id:
                    cell["metadata"]["execution_status"] = status
                    cell.update(outputs=outputs, execution_count=count)
        self.change(put)


class CellOutputs:
    """The outputs of a running cell, as the notebook has them. write() keeps the file up to date, but not for each line."""

    def __init__(self, notebook: NotebookFile, cell_id: str, count: int | None = None):
        self._notebook = notebook
        self._id = cell_id
        self._outputs: List[Raw] = []
        self._shown: Dict[str, List[Raw]] = {}
        self._count = count
        self._written = 0.0         # so that the first words are there at once
        self._clear = False
        notebook.update(cell_id, "running", [], None)

    def take(self, event: Raw) -> None:
        kind = event.get("type")
        if self._clear and kind in ("stdout", "stderr", "display", "result", "error"):
            self._clear = False
            self._outputs.clear()
        if kind in ("stdout", "stderr"):
            self._text(str(kind), str(event.get("text", "")))
        elif kind in ("display", "result"):
            self._rich(str(kind), event)
        elif kind == "update_display":
            for shown in self._shown.get(str((event.get("transient") or {}).get("display_id")), []):
                shown.update(data=event.get("data") or {}, metadata=event.get("metadata") or {})
        elif kind == "clear_output":
            self._clear = bool(event.get("wait"))
            if not self._clear:
                self._outputs.clear()
        elif kind == "error":
            self._outputs.append({"output_type": "error", "ename": str(event.get("name")), "evalue": str(event.get("value", "")),
                                  "traceback": [str(t) for t in event.get("traceback") or []]})
        elif kind == "outcome":
            self._count = event.get("execution_count")
            self.end("complete" if event.get("outcome") == "ok" else "error")
            return
        if time.monotonic() - self._written > _PAUSE:
            self._write("running")

    def _text(self, stream: str, text: str) -> None:
        last = self._outputs[-1] if self._outputs else None
        if last is not None and last["output_type"] == "stream" and last["name"] == stream:
            last["text"] += text
        else:
            self._outputs.append({"output_type": "stream", "name": stream, "text": text})

    def _rich(self, kind: str, event: Raw) -> None:
        shown: Raw = {"output_type": "display_data", "data": event.get("data") or {}, "metadata": event.get("metadata") or {}}
        if kind == "result":
            shown = {**shown, "output_type": "execute_result", "execution_count": event.get("execution_count")}
        self._outputs.append(shown)
        self._shown.setdefault(str((event.get("transient") or {}).get("display_id")), []).append(shown)

    def end(self, status: str) -> None:
        self._write(status)

    def _write(self, status: str) -> None:
        self._written = time.monotonic()
        outputs = [{**o, "text": _lines(o["text"])} if o["output_type"] == "stream" else o for o in self._outputs]
        for output in outputs:
            if output["output_type"] == "execute_result" and output["execution_count"] is None:
                output["execution_count"] = self._count
        self._notebook.update(self._id, status, outputs, self._count)


def _empty() -> Raw:
    return {"cells": [], "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                                      "language_info": {"name": "python", "version": ".".join(map(str, sys.version_info[:3]))}},
            "nbformat": 4, "nbformat_minor": 5}

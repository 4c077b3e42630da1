"""Cells that other clients run in a session's kernel, written into its notebook.

An MCP client runs its cells through the server, where this program does not see them. But it may listen to the kernel, as any Jupyter client
may, and the server's requests for an MCP client have a session of that name."""
from __future__ import annotations

import json
import threading
from typing import Any, Dict, List

from ..gateway import Gateway
from ..ws import WebSocket, WebSocketError
from .notebook import CellOutputs, NotebookFile

Raw = Dict[str, Any]
_SESSION = "mcp"        # as src/doors/mcp has it
_AGAIN = 0.2            # seconds until the server is tried again
_LOOK = 1.0             # seconds after which a silent connection looks whether it is still wanted


class Follower:
    """Listens from its creation until stop(). A cell that is lost, because the server or the box ended, counts as failed."""

    def __init__(self, url: str, kernel_id: str, notebook: NotebookFile):
        self._gateway = Gateway(url)
        self._kernel = kernel_id
        self._notebook = notebook
        self._cells: Dict[str, CellOutputs] = {}
        self._failed: List[str] = []
        self._stopped = threading.Event()
        first = self._connect()         # before any client can run anything
        self._thread = threading.Thread(target=self._follow, args=(first,), name="carrel-notebook", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(5)

    def _connect(self) -> WebSocket:
        return WebSocket(self._gateway.ws_url(self._kernel), headers=self._gateway.ws_fields(), unix=self._gateway.address.unix)

    def _follow(self, first: WebSocket) -> None:
        connection: WebSocket | None = first
        while not self._stopped.is_set():
            try:
                with connection or self._connect() as ws:
                    self._listen(ws)
            except WebSocketError:
                self._give_up()
                self._stopped.wait(_AGAIN)
            connection = None
        self._give_up()

    def _listen(self, ws: WebSocket) -> None:
        while not self._stopped.is_set():
            try:
                message = json.loads(ws.recv(timeout=_LOOK))
            except TimeoutError:
                continue
            if message.get("channel") == "iopub" and (message.get("parent_header") or {}).get("session") == _SESSION:
                self._take(str(message["parent_header"].get("msg_id")), str(message["header"].get("msg_type")), message.get("content") or {})

    def _take(self, request: str, kind: str, content: Raw) -> None:
        if kind == "execute_input":
            cell = self._notebook.add_code(str(content.get("code", "")))
            self._cells[request] = CellOutputs(self._notebook, cell, content.get("execution_count"))
        elif request in self._cells and kind == "status" and content.get("execution_state") == "idle":
            self._cells.pop(request).end("error" if request in self._failed else "complete")
            self._failed.clear()
        elif request in self._cells:
            if kind == "error":
                self._failed.append(request)
            self._cells[request].take(_event(kind, content))

    def _give_up(self) -> None:
        while self._cells:
            self._cells.popitem()[1].end("error")
        self._failed.clear()


def _event(kind: str, content: Raw) -> Raw:
    """Converts a kernel's message to an event of the API's runs."""
    if kind == "stream":
        return {"type": content.get("name"), "text": content.get("text", "")}
    if kind == "error":
        return {"type": "error", "name": content.get("ename"), "value": content.get("evalue", ""), "traceback": content.get("traceback")}
    names = {"display_data": "display", "execute_result": "result", "update_display_data": "update_display"}
    return {**content, "type": names.get(kind, kind)}

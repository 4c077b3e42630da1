"""Requests to a Jupyter gateway: a Carrel server, or a Jupyter Enterprise Gateway or Kernel Gateway."""
from __future__ import annotations

import asyncio
import http.client
import json
from typing import Any, Dict
from urllib.parse import quote

from .aio import AsyncTransport
from .errors import Unavailable
from .net import Address, parse_address
from .within import within


class Reply(Exception):
    """An answer that is none of those that were expected."""

    def __init__(self, status: int, body: bytes):
        super().__init__(f"{status}\n{body[:4000].decode('utf-8', 'replace')}")
        self.status = status
        self.body = body


class Gateway:
    """Where the gateway is, and how it is spoken to."""

    def __init__(self, host: str, token: str | None = None):
        self.host = host
        self.address: Address = parse_address(host)
        self._fields = {"Authorization": f"token {token}"} if token else {}
        self._transport = AsyncTransport(host, token, default_port=80, scheme="token")

    def ws_url(self, kernel_id: str) -> str:
        address = self.address
        return f"{'wss' if address.tls else 'ws'}://{address.authority}{address.base}/api/kernels/{quote(kernel_id, safe='')}/channels"

    def ws_fields(self) -> Dict[str, str]:
        fields = self.address.fields()
        fields.pop("Host")
        return {**fields, **self._fields}

    def call(self, method: str, path: str, body: Any = None, timeout: float = 60) -> Any:
        """A request with a JSON answer."""
        sock = None
        connection = http.client.HTTPConnection(self.address.host, timeout=timeout)
        try:
            sock = connection.sock = self.address.connect(timeout)
            fields = {**self.address.fields(), **self._fields}
            data = None
            if body is not None:
                data, fields["Content-Type"] = json.dumps(body).encode(), "application/json"
            connection.request(method, self.address.base + path, body=data, headers=fields)
            response = connection.getresponse()
            return self._judge(response.status, response.read())
        except (OSError, http.client.HTTPException) as e:
            raise Unavailable(f"cannot reach the gateway at {self.host}: {e or type(e).__name__}") from e
        finally:
            connection.close()
            if sock is not None:
                sock.close()

    async def acall(self, method: str, path: str, body: Any = None, timeout: float = 60) -> Any:
        async def ask() -> Any:
            data = None if body is None else json.dumps(body).encode()
            fields = {"Content-Type": "application/json"} if body is not None else {}
            answer = await self._transport.open(method, path, body=data, headers=fields, check=False)
            return self._judge(answer.status, await answer.all())
        try:
            return await within(timeout, ask())
        except asyncio.TimeoutError:
            raise Unavailable(f"cannot reach the gateway at {self.host}: no answer in {timeout:.0f} seconds") from None

    async def aclose(self) -> None:
        await self._transport.aclose()

    @staticmethod
    def _judge(status: int, data: bytes) -> Any:
        if not 200 <= status < 300:
            raise Reply(status, data)
        return json.loads(data) if data.strip() else None

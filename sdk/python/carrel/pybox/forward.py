"""From this machine to the ports of a pod, through the API server: a local listener for each port, a WebSocket for each connection.

Nothing of the pod's network has to be reachable from here, and no name has to resolve."""
from __future__ import annotations

import contextlib
import logging
import socket
import threading
from typing import Any, Dict, Sequence

logger = logging.getLogger(__name__)

_PIECE = 65536


class Forward:
    """`ports` maps a port of the pod to the one of 127.0.0.1 that leads there."""

    def __init__(self, configuration: Any, pod: str, namespace: str, ports: Sequence[int]):
        self._configuration = configuration
        self._pod, self._namespace = pod, namespace
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        self.ports: Dict[int, int] = {}
        self._listeners = []
        for port in ports:
            listener = socket.create_server(("127.0.0.1", 0))
            self._listeners.append(listener)
            self.ports[port] = listener.getsockname()[1]
            threading.Thread(target=self._accept, args=(listener, port), daemon=True, name=f"forward-{port}").start()

    def _accept(self, listener: socket.socket, port: int) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return          # closed
            threading.Thread(target=self._serve, args=(connection, port), daemon=True).start()

    def _serve(self, near: socket.socket, port: int) -> None:
        try:
            far = self._dial(port)
        except Exception as e:  # noqa: BLE001: the client's own errors; ZeroMQ connects again
            logger.debug("port %d of pod %s: %s", port, self._pod, e)
            near.close()
            return
        with self._lock:
            if self._closed:
                near.close()
                far.close()
                return
            self._open |= {near, far}
        back = threading.Thread(target=self._pump, args=(far, near), daemon=True)
        back.start()
        self._pump(near, far)
        back.join()
        with self._lock:
            self._open -= {near, far}
        near.close()
        far.close()

    def _dial(self, port: int) -> Any:
        from kubernetes import client
        from kubernetes.stream import portforward

        # A client of its own: portforward() changes the client that it is given while it connects.
        api = client.CoreV1Api(client.ApiClient(self._configuration))
        forward = portforward(api.connect_get_namespaced_pod_portforward, self._pod, self._namespace, ports=str(port))
        far = forward.socket(port)
        far.setblocking(True)
        return far

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                data = source.recv(_PIECE)
                if not data:
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            open_now = list(self._open)
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for end in open_now:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

"""From this machine to the ports of a pod, through the API server: a local listener for each port, a WebSocket for each connection.

Nothing of the pod's network has to be reachable from here, and no name has to resolve."""
from __future__ import annotations

import atexit
import contextlib
import logging
import socket
import threading
from typing import Any, Dict, Sequence

logger = logging.getLogger(__name__)

_PIECE = 65536
_PATIENCE = 2.0         # for a thread to end when its sockets are closed


class Forward:
    """`ports` maps a port of the pod to the one of 127.0.0.1 that leads there."""

    def __init__(self, configuration: Any, pod: str, namespace: str, ports: Sequence[int]):
        self._configuration = configuration
        self._pod, self._namespace = pod, namespace
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._closed = False
        # A thread in the middle of a system call when the interpreter ends may abort the process.
        atexit.register(self.close)
        self.ports: Dict[int, int] = {}
        self._listeners = []
        for port in ports:
            listener = socket.create_server(("127.0.0.1", 0))
            self._listeners.append(listener)
            self.ports[port] = listener.getsockname()[1]
            self._start(self._accept, listener, port)

    def _start(self, work: Any, *args: Any) -> threading.Thread:
        thread = threading.Thread(target=work, args=args, daemon=True, name="carrel-forward")
        with self._lock:
            self._threads = {t for t in self._threads if t.is_alive()} | {thread}
            thread.start()
        return thread

    def _accept(self, listener: socket.socket, port: int) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return          # closed
            self._start(self._serve, connection, port)

    def _serve(self, near: socket.socket, port: int) -> None:
        try:
            far = self._dial(port)
        except Exception as e:  # noqa: BLE001: the client's own errors; ZeroMQ connects again
            logger.debug("port %d of pod %s: %s", port, self._pod, e)
            near.close()
            return
        with self._lock:
            self._open.add(near)
            if self._closed:
                with contextlib.suppress(OSError):
                    near.shutdown(socket.SHUT_RDWR)
        back = self._start(self._bring, far, near)
        self._send(near, far)
        back.join()
        with self._lock:
            self._open.discard(near)
        near.close()
        far.close()

    def _dial(self, port: int) -> Any:
        from kubernetes import client
        from kubernetes.stream import portforward

        # A client of its own: portforward() changes the client that it is given while it connects.
        api = client.CoreV1Api(client.ApiClient(self._configuration))
        others = set(threading.enumerate())
        forward = portforward(api.connect_get_namespaced_pod_portforward, self._pod, self._namespace, ports=str(port))
        with self._lock:        # the client's own thread; another connection's may be among them, which is ours as well
            self._threads |= {t for t in set(threading.enumerate()) - others if t.name.startswith("Kubernetes port forward")}
        far = forward.socket(port)
        far.setblocking(True)
        return far

    @staticmethod
    def _send(near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(_PIECE):
                far.sendall(data)
        # The client's thread closes its end when it has read all. An end that is closed before that fails in it, with a traceback.
        with contextlib.suppress(OSError):
            far.shutdown(socket.SHUT_WR)

    @staticmethod
    def _bring(far: socket.socket, near: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(_PIECE):
                with contextlib.suppress(OSError):      # no longer wanted
                    near.sendall(data)
        with contextlib.suppress(OSError):
            near.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        atexit.unregister(self.close)
        with self._lock:
            self._closed = True
            open_now, threads = list(self._open), set(self._threads)
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for end in open_now:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in threads - {threading.current_thread()}:
            thread.join(_PATIENCE)

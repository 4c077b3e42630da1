"""The API that Anthropic's environment worker speaks, on loopback: one work item, whose session calls tools from a
script."""
import http.server
import json
import re
import threading

WORK = {
    "type": "work", "id": "work_1", "environment_id": "env_1", "created_at": "2026-01-01T00:00:00Z", "metadata": {},
    "state": "active", "data": {"type": "session", "id": "sesn_1"}
}
SESSION = {
    "type": "session", "id": "sesn_1", "status": "running", "resources": [],
    "agent": {"type": "agent", "id": "agent_1", "skills": [], "tools": []}, "created_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-01T00:00:00Z", "environment_id": "env_1", "metadata": {}
}


class WorkServer:
    """calls: (tool, arguments), one after the other; `results` are what came back: (is_error, text or blocks)."""

    def __init__(self, calls):
        self.calls, self.results, self.stopped, self.tokens = list(calls), [], threading.Event(), set()
        self._given = False
        self._answered = threading.Condition()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *words):
                pass

            def do_GET(self):
                outer.tokens.add(self.headers.get("Authorization"))
                path = self.path.split("?")[0]
                if path.endswith("/work/poll"):
                    item, outer._given = None if outer._given else WORK, True
                    self.answer(item)
                elif path.endswith("/events/stream"):
                    outer.stream(self)
                elif path.endswith("/events"):
                    self.answer({"data": [], "next_page": None})
                elif re.fullmatch("/v1/sessions/[^/]+", path):
                    self.answer(SESSION)
                else:
                    self.answer({"type": "error", "error": {"type": "not_found_error", "message": path}}, 404)

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
                path = self.path.split("?")[0]
                if path.endswith("/heartbeat"):
                    self.answer({
                        "type": "work_heartbeat", "last_heartbeat": "2026-01-01T00:00:01Z", "lease_extended": True,
                        "state": "active", "ttl_seconds": 60
                    })
                elif path.endswith("/events"):
                    for event in body["events"]:
                        outer.took(event)
                    self.answer({"data": body["events"]})
                else:
                    self.answer(WORK)
                    if path.endswith("/stop"):
                        outer.stopped.set()

            def answer(self, body, status=200):
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def took(self, event):
        with self._answered:
            content = event["content"]
            texts = [block["text"] for block in content if block["type"] == "text"]
            self.results.append((bool(event.get("is_error")), "\n".join(texts) if texts else content))
            self._answered.notify_all()

    def stream(self, handler):
        """One call, then the next when its result is here; at last the session ends."""
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True

        def send(event):
            handler.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            handler.wfile.flush()

        for number, (tool, arguments) in enumerate(self.calls):
            send({
                "type": "agent.tool_use", "id": f"call_{number}", "name": tool, "input": arguments,
                "evaluated_permission": "allow", "processed_at": "2026-01-01T00:00:00Z", "session_thread_id": None
            })
            with self._answered:
                if not self._answered.wait_for(lambda: len(self.results) > number, 120):
                    return
        send({"type": "session.status_terminated", "id": "end", "processed_at": "2026-01-01T00:00:00Z"})

    def close(self):
        self._server.shutdown()
        self._server.server_close()

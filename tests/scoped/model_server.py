"""A model on loopback that follows a script, for both wire formats: the Messages API and chat completions. Streams come in small pieces;
a fault before an answer is a refusal (429, 400, 500), a connection that ends in the middle, or nonsense."""
import http.server
import json
import sys
import threading


def text(words):
    return {"type": "text", "text": words}


def use(id, name, **given):
    return {"type": "tool_use", "id": id, "name": name, "input": given}


class Script:
    """Answers in order; what was asked is kept. An answer is a list of blocks, or a function of the request that gives one."""

    def __init__(self, answers=(), faults=(), say=None):
        self.answers = list(answers)
        self.faults = list(faults)
        self.say = say
        self.requests = []
        self.headers = []
        self.lock = threading.Lock()

    def take(self, request, headers):
        with self.lock:
            self.requests.append(request)
            self.headers.append(headers)
            if self.faults:
                fault = self.faults.pop(0)
                if fault is not None:
                    return fault, None
            if self.say is not None:
                return None, self.say(request)
            answer = self.answers.pop(0) if self.answers else [text("the script is over")]
            return None, answer(request) if callable(answer) else answer


def claude_events(blocks):
    uses = any(b["type"] == "tool_use" for b in blocks)
    yield "message_start", {"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": [], "stop_reason": None, "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1}}}
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            start, field, value = {"type": "text", "text": ""}, "text", block["text"]
            kind = "text_delta"
        elif block["type"] == "thinking":
            start, field, value = {"type": "thinking", "thinking": "", "signature": ""}, "thinking", block["thinking"]
            kind = "thinking_delta"
        else:
            start = {"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}
            field, value, kind = "partial_json", json.dumps(block["input"]) if block["input"] else "", "input_json_delta"
        yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": start}
        for at in range(0, len(value), 7):
            yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": {"type": kind, field: value[at:at + 7]}}
        if block["type"] == "thinking":
            yield "content_block_delta", {"type": "content_block_delta", "index": index,
                                          "delta": {"type": "signature_delta", "signature": block["signature"]}}
        yield "content_block_stop", {"type": "content_block_stop", "index": index}
    yield "message_delta", {"type": "message_delta", "delta": {"stop_reason": "tool_use" if uses else "end_turn", "stop_sequence": None},
                            "usage": {"output_tokens": 5}}
    yield "message_stop", {"type": "message_stop"}


def openai_chunks(blocks):
    def chunk(delta, finish=None):
        return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    yield chunk({"role": "assistant", "content": ""})
    number = 0
    for block in blocks:
        if block["type"] == "text":
            for at in range(0, len(block["text"]), 7):
                yield chunk({"content": block["text"][at:at + 7]})
        elif block["type"] == "tool_use":
            given = block.get("raw", json.dumps(block["input"]))
            yield chunk({"tool_calls": [{"index": number, "id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": ""}}]})
            for at in range(0, len(given), 5):
                yield chunk({"tool_calls": [{"index": number, "function": {"arguments": given[at:at + 5]}}]})
            number += 1
    yield chunk({}, "tool_calls" if number else "stop")
    yield {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "scripted", "choices": [],
           "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_claude = self.path.split("?")[0].endswith("/messages")
        if is_claude and not all(m["content"] and all(b != {"type": "text", "text": ""} for b in m["content"]) for m in request["messages"]):
            return self.refuse(400, "all messages must have non-empty content")
        wrong = unanswered(request) if is_claude else None
        if wrong:
            return self.refuse(400, f"tool_use ids without tool_result: {wrong}")
        fault, blocks = self.server.script.take(request, dict(self.headers))
        if isinstance(fault, int):
            return self.refuse(fault, {429: "slow down", 401: "invalid x-api-key"}.get(fault, "no"))
        if isinstance(fault, bytes):
            return self.whole(200, fault, "text/event-stream")
        if fault == "nonsense":
            return self.whole(200, b"<html>not a model</html>", "text/html")
        if is_claude:
            pieces = [f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in claude_events(blocks or [text("a beginning")])]
        else:
            pieces = [f"data: {json.dumps(data)}\n\n" for data in openai_chunks(blocks or [text("a beginning")])] + ["data: [DONE]\n\n"]
        self.stream("".join(pieces), broken=fault == "disconnect")

    def refuse(self, status, words):
        self.whole(status, json.dumps({"type": "error", "error": {"type": "refused", "message": words}}).encode(), "application/json",
                   {"Retry-After": "0"} if status == 429 else {})

    def whole(self, status, body, kind, extra={}):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **extra}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def stream(self, body, broken):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        data = body.encode()
        data = data[:len(data) // 2] if broken else data
        for at in range(0, len(data), 61):      # in pieces that end in the middle of words and lines
            piece = data[at:at + 61]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        if broken:
            self.close_connection = True
            self.connection.shutdown(2)
        else:
            self.wfile.write(b"0\r\n\r\n")


def unanswered(request):
    """Calls that the following message does not answer, as the real server checks."""
    for message, after in zip(request["messages"], request["messages"][1:] + [None]):
        ids = {b["id"] for b in message["content"] if isinstance(b, dict) and b["type"] == "tool_use"}
        answered = {b["tool_use_id"] for b in after["content"] if b["type"] == "tool_result"} if after else set()
        if ids - answered:
            return sorted(ids - answered)
    return None


class ModelServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, script, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.script = script
        self.thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def end(self):
        self.shutdown()
        self.server_close()
        self.thread.join()


if __name__ == "__main__":      # model_server.py SCRIPT.json: prints its address, answers until its input ends
    server = ModelServer(Script(json.load(open(sys.argv[1]))))
    print(server.url, flush=True)
    sys.stdin.read()

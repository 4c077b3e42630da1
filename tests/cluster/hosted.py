"""usage: hosted.py ADDRESS PORT  A hosted model with two answers: code that fails, and, when it is shown the error, code that is right."""
import http.server
import json
import sys

WRONG = "```python\nprint(factorial(5))\n```"
RIGHT = "```python\nimport math\nprint('factorial:', math.factorial(5))\n```"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = RIGHT if "NameError" in asked["messages"][-1]["content"] else WRONG
        body = json.dumps({"id": "1", "object": "chat.completion", "created": 0, "model": asked["model"], "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()

"""A web server on the host's loopback, for boxes that are allowed a name below localhost."""
import contextlib
import http.server
import threading


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(HELLO)))
        self.end_headers()
        self.wfile.write(HELLO)

    def log_message(self, *_):
        pass


HELLO = b"hello from the host"


@contextlib.contextmanager
def hello_server():
    """Yields the port at which every GET is answered with HELLO."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made.server_address[1]
        made.shutdown()

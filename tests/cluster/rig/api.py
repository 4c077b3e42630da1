"""A small client of the API server: one request, one JSON object; watches that begin again by themselves."""
import base64
import http.client
import json
import os
import ssl
import tempfile
import time
import urllib.parse


class ApiError(Exception):
    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code


class Api:
    is_over = False             # the changes are no longer read

    def __init__(self, kubeconfig):
        with open(kubeconfig) as file:
            config = json.load(file)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.host = urllib.parse.urlsplit(cluster["server"]).netloc
        decode = lambda text: base64.b64decode(text).decode()
        self.tls = ssl.create_default_context(cadata=decode(cluster["certificate-authority-data"]))
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as both:  # the ssl module reads a key from a file only
            both.write(decode(user["client-certificate-data"]) + decode(user["client-key-data"]))
            both.flush()
            self.tls.load_cert_chain(both.name)
        self.connection = None

    def connect(self, timeout):
        return http.client.HTTPSConnection(self.host, context=self.tls, timeout=timeout)

    def call(self, method, path, body=None, content="application/json", timeout=30):
        """The answer to one request; ApiError if it is not a success. The connection is kept; a broken one is replaced once."""
        for last in (False, True):
            if self.connection is None:
                self.connection = self.connect(timeout)
            try:
                self.connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": content})
                response = self.connection.getresponse()
                answer = response.read()
                break
            except (OSError, http.client.HTTPException):
                self.connection.close()
                self.connection = None
                if last or method == "POST":
                    raise
        if response.status >= 300:
            raise ApiError(response.status, answer[:500].decode(errors="replace"))
        kind = response.headers.get("Content-Type", "")
        return json.loads(answer) if kind.startswith("application/json") else answer.decode()

    def get(self, path):
        return self.call("GET", path)

    def find(self, path):
        """The object, or None if there is none."""
        try:
            return self.call("GET", path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def changes(self, path):
        """Every object below a path, and then each change, until the caller ends it: (type, object)."""
        while not self.is_over:
            try:
                listed = self.get(path)
                for item in listed["items"]:
                    yield "ADDED", item
                connection = self.connect(timeout=None)
                connection.request("GET", f"{path}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}&timeoutSeconds=600")
                for line in connection.getresponse():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    yield event["type"], event["object"]
                connection.close()
            except (OSError, http.client.HTTPException, ApiError, ValueError, KeyError) as error:
                if not self.is_over:
                    print(f"watch {path}: {error!r}", flush=True)
                    time.sleep(0.2)


def wait_for(what, seconds, condition):
    """Polls until the condition holds; returns its value. An exception counts as no."""
    deadline, last = time.monotonic() + seconds, None
    while True:
        try:
            value = condition()
            if value:
                return value
        except (OSError, http.client.HTTPException, ApiError, ValueError, LookupError, TypeError) as error:
            last = error
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s" + (f" ({last})" if last else ""))
        time.sleep(0.05)


def default_kubeconfig():
    return os.environ["KUBECONFIG"]

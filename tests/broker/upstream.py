"""An upstream of the broker's tests: TLS, HTTP/1.1, behaviour by path. It notes each request as it came, for the tests to read."""

import asyncio
import base64
import gzip
import hashlib
import json
import pathlib
import random
import ssl
import sys
import urllib.parse

ADDRESS = "203.0.113.20"
folder = pathlib.Path(sys.argv[1])
notes = open(folder / "notes", "a", buffering=1)


class Closed(Exception):
    pass


async def read_body(reader, fields):
    body, sizes = b"", []
    if fields.get("transfer-encoding") == "chunked":
        while size := int((await reader.readline()).split(b";")[0], 16):
            body += (await reader.readexactly(size + 2))[:-2]
            sizes.append(size)
        while (await reader.readline()).strip():
            pass
    elif length := int(fields.get("content-length", 0)):
        digest = hashlib.sha256()
        while length:
            piece = await reader.read(min(length, 1 << 20))
            if not piece:
                raise Closed
            digest.update(piece)
            body = (body + piece)[: 1 << 16]
            length -= len(piece)
        return body, digest.hexdigest()
    return body, hashlib.sha256(body).hexdigest()


def plain(text, status="200 OK", more=""):
    body = text.encode() if isinstance(text, str) else text
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n" % (status.encode(), len(body), more.encode()) + body


ANSWERS = [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.0 200\r\n\r\n",
           b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", b"0\r\nX: a\r\n\r\n", b"ffffffffffffffff\r\n", b"Connection: close\r\n",
           b"Content-Length: 99999999999999999\r\n", b"\r\n", b"\n", b"\0", b"HTTP/2 200\r\n"]  # fmt: skip


def anything(random, key):
    """Parts of answers, cut and spoiled."""
    out = b"".join(random.choice([*ANSWERS, key.encode(), random.randbytes(random.randrange(50))]) for _ in range(random.randrange(1, 8)))
    for _ in range(random.randrange(4)):
        at = random.randrange(len(out) + 1)
        out = out[:at] + random.choice([b"", b"\r\n", random.randbytes(2)]) + out[at + random.randrange(3) :]
    return out


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn", "stop_sequence": None,
           "content": [{"type": "text", "text": "hello"}], "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip
COMPLETION = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m",
              "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}]}  # fmt: skip


def completion(asked):
    """A model called "coder" writes code."""
    words = "```python\nprint(6 * 7)\n```" if asked.get("model") == "coder" else "hello"
    return {**COMPLETION, "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": words}}]}


async def stream(writer, events, pause=0.0):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for event in events:
        writer.write(chunk(event))
        await writer.drain()
        await asyncio.sleep(pause)
    writer.write(b"0\r\n\r\n")


def completion_events():
    for word in ("hel", "lo"):
        piece = {**COMPLETION, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": word}}]}
        yield b"data: " + json.dumps(piece).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def message_events():
    def event(kind, **more):
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()

    yield event("message_start", message={**MESSAGE, "content": [], "stop_reason": None})
    yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for word in ("hel", "lo"):
        yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": word})
    yield event("content_block_stop", index=0)
    yield event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 1})
    yield event("message_stop")


# A request for /go?NAME lets the answer of that name go on.
gates = {}


def gate(name):
    return gates.setdefault(name, asyncio.Event())


async def reflect(writer, how, name, first, rest):
    """An answer in two pieces, the second one when the gate opens."""
    head = {"chunks": b"Transfer-Encoding: chunked\r\n", "length": b"Content-Length: %d\r\n" % len(first + rest), "close": b""}[how]
    cut = chunk if how == "chunks" else bytes
    writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + cut(first))
    await writer.drain()
    await gate(name).wait()
    del gates[name]
    writer.write(cut(rest) + (b"0\r\n\r\n" if how == "chunks" else b""))
    if how == "close":
        raise Closed


async def answer(reader, writer, path, fields, body, digest):
    query = path.partition("?")[2]
    key = fields.get("authorization", fields.get("x-api-key", "none")).split()[-1]
    match path.split("?")[0]:
        case "/hello":
            writer.write(plain("hello\n"))
        case "/echo":
            told = {"fields": fields, "size": fields.get("content-length"), "digest": digest, "body": body[:2000].decode("latin-1")}
            writer.write(plain(json.dumps(told)))
        case "/leak":
            writer.write(plain(f"your key is {key}!\n", more=f"X-Request-Key: {key}\r\n"))
        case "/leak-in-pieces":
            pieces = [b"start ", *(bytes([one]) for one in (key + " " + key[:10] + key).encode()), b" end"]
            await stream(writer, pieces)
        case "/leak-until-close":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + key.encode() + b" and " + key.encode()[:-1])
            raise Closed
        case "/leak-encoded":
            forms = [base64.b64encode(key.encode()).decode(), key.encode().hex(), urllib.parse.quote(key, safe="").replace("-", "%2D"), key.upper(), key[::-1], key[:-1]]
            writer.write(plain("\n".join(forms)))
        case "/compressed":
            writer.write(plain(gzip.compress(f"your key is {key}!\n".encode()), more=f"Content-Encoding: {query}\r\n"))
        case "/reflect":
            await reflect(writer, *query.split(","), body, b" rest")
        case "/leak-late":
            await reflect(writer, "chunks", query, b"x" * (16 << 20) + key.encode()[:20], key.encode()[20:])
        case "/go":
            gate(query).set()
            writer.write(plain("hello\n"))
        case "/redirect":
            writer.write(plain("", "302 Found", "Location: https://other.keys.test/echo\r\n"))
        case "/sse":
            await stream(writer, [b"data: %d\n\n" % i for i in range(5)], 0.2)
        case "/v1/chat/completions":
            if json.loads(body).get("stream"):
                await stream(writer, completion_events())
            else:
                writer.write(plain(json.dumps(completion(json.loads(body))), more="Content-Type: application/json\r\n"))
        case "/v1/messages":
            if json.loads(body).get("stream"):
                await stream(writer, message_events())
            else:
                writer.write(plain(json.dumps(MESSAGE), more="Content-Type: application/json\r\n"))
        case "/stall":
            await asyncio.sleep(3600)
        case "/close":
            raise Closed
        case "/cut":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")
            raise Closed
        case "/cut-until-close":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\nonly this")
            await writer.drain()
            writer.transport.abort()
            raise Closed
        case "/anything":
            writer.write(anything(random.Random(int(path.split("?")[1])), key))
            raise Closed
        case "/smuggle":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        case "/switch":
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
        case "/twice":
            writer.write(plain("hello\n") + plain("an answer to nothing\n"))
        case "/hints":
            writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + plain("hello\n", more="Alt-Svc: h3=\":443\"\r\n"))
        case "/bytes":
            left, piece = int(path.split("?")[1]), b"x" * (1 << 18)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % left)
            while left:
                writer.write(piece[:left])
                left -= min(left, len(piece))
                await writer.drain()
        case _:
            writer.write(plain("not here\n", "404 Not Found"))


async def serve(reader, writer):
    tls = writer.get_extra_info("ssl_object")
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            method, path, _ = lines[0].split(" ")
            fields = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines[1:] if one)}
            note = {"asked": getattr(tls, "asked", None), "alpn": tls and tls.selected_alpn_protocol(), "head": head.decode("latin-1")}
            notes.write(json.dumps(note) + "\n")
            if fields.get("expect") == "100-continue" and path != "/refuse":
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if path == "/refuse":
                writer.write(plain("too large\n", "413 Content Too Large", "Connection: close\r\n"))
                await writer.drain()
                raise Closed
            if method == "HEAD":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n")
                continue
            body, digest = await read_body(reader, fields)
            if body:
                notes.write(json.dumps({"body": body[:1000].decode("latin-1")}) + "\n")
            await answer(reader, writer, path, fields, body, digest)
            await writer.drain()
    except (Closed, ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
        pass
    writer.close()


async def plainly(_reader, writer):
    writer.write(plain("speak plainly\n", "400 Bad Request"))
    await writer.drain()
    writer.close()


async def silent(_reader, _writer):
    await asyncio.sleep(3600)


async def main():
    contexts = {}
    for name in ("api", "other", "untrusted", "misnamed"):
        contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        contexts[name].load_cert_chain(folder / f"{name}.pem")
        contexts[name].set_alpn_protocols(["h2", "http/1.1"] if name == "api" else ["http/1.1"])

    def choose(tls, name, _context):
        tls.asked = name
        tls.context = contexts.get((name or "api").split(".")[0], contexts["api"])

    contexts["api"].sni_callback = choose
    await asyncio.start_server(serve, ADDRESS, 443, ssl=contexts["api"], limit=1 << 20, backlog=1024)
    await asyncio.start_server(plainly, "203.0.113.21", 443)
    await asyncio.start_server(silent, "203.0.113.22", 443)
    await asyncio.start_server(serve, ADDRESS, 80)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())

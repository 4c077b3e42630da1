"""jupyter_client's Session, but its messages go to the link: no ZeroMQ, no signatures."""

import os
from datetime import datetime, timezone

from jupyter_client.session import Session, extract_header

from carrel_kernel import link as links
from carrel_kernel import pack, proto

VERSION = "5.3"
IOPUB = proto.IOPUB.encode("ascii")
# Leaves room for the other parts of a message.
CONTENT_MOST = links.MESSAGE_MOST - (1 << 20)


class Channel:
    """Stands where ipykernel has a socket or a stream."""

    def __init__(self, name):
        self.name = name
        self.bytes = name.encode("ascii")

    def flush(self, *_, **__):
        pass

    def __bool__(self):
        return True


def too_large(size):
    return "%.1f MiB are too large to be sent; the limit of a message is %d MiB" % (size / 2**20, links.MESSAGE_MOST >> 20)


def measure(value):
    """At least how many bytes the text in it takes. Cheap, so that a huge result is refused before it is copied thrice."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, dict):
        return sum(map(measure, value.values()))
    if isinstance(value, (list, tuple)) and len(value) < 1000:
        return sum(map(measure, value))
    return 0


def shrink(msg_type, content, size):
    """Replaces a content that is too large."""
    text = too_large(size)
    if "data" in content and msg_type in ("execute_result", "display_data", "update_display_data"):
        kept = {key: content[key] for key in ("execution_count", "transient") if key in content}
        return dict(kept, data={"text/plain": "<" + text + ">"}, metadata={})
    if msg_type == "execute_input":
        return {"code": content["code"][:10000] + "\n# ... " + text, "execution_count": content.get("execution_count")}
    if msg_type == "error" or msg_type.endswith("_reply"):
        kept = {"ename": str(content.get("ename", "MessageTooLarge"))[:200], "evalue": (str(content.get("evalue", ""))[:2000] + " ... " + text),
                "traceback": [str(line)[:2000] for line in content.get("traceback", [])[:20]]}
        if msg_type != "error":
            kept.update(status="error", payload=[], user_expressions={})
            if "execution_count" in content:
                kept["execution_count"] = content["execution_count"]
        return kept
    return None


class LinkSession(Session):
    link = None             # None: messages are made and dropped (before there is a client, and in forks)

    def begin(self, link):
        """A new identity: no ids of a sibling."""
        # Into the traits' own store: only Session itself observes them, and a notification takes fifty function calls.
        name = os.urandom(16).hex()
        self._trait_values.update(session=name, bsession=name.encode("ascii"))
        self.pid = os.getpid()
        self.message_count = 0
        self.link = link
        self._prefix = "%s_%d_" % (name, self.pid)
        self._name = name
        self._last_parent = (None, b"{}")

    def __init__(self, **kwargs):
        super().__init__(key=b"none", username="username", **kwargs)
        self.begin(None)

    def msg_header(self, msg_type):
        number = self.message_count
        self.message_count = number + 1
        return {
            "msg_id": self._prefix + str(number),
            "msg_type": msg_type,
            "username": "username",
            "session": self._name,
            "date": datetime.now(timezone.utc).isoformat().replace("+00:00", "Z"),
            "version": VERSION,
        }

    def msg(self, msg_type, content=None, parent=None, header=None, metadata=None):
        if header is None:
            header = self.msg_header(msg_type)
        return {
            "header": header,
            "msg_id": header["msg_id"],
            "msg_type": header["msg_type"],
            "parent_header": {} if parent is None else extract_header(parent),
            "content": {} if content is None else content,
            "metadata": {} if metadata is None else metadata,
        }

    def send(self, stream, msg_or_type, content=None, parent=None, ident=None, buffers=None, track=False, header=None, metadata=None):
        if isinstance(msg_or_type, dict):
            msg = msg_or_type
            buffers = buffers or msg.get("buffers")
        else:
            msg = self.msg(msg_or_type, content, parent, header, metadata)
        channel = getattr(stream, "bytes", None) or IOPUB
        parts = self._parts(msg, buffers or ())
        if parts is not None and self.link is not None:
            self.link.send(links.pack(channel, parts))
        return msg

    def _parts(self, msg, buffers):
        content, kind = msg["content"], msg["header"]["msg_type"]
        views = [memoryview(b).cast("B") for b in buffers]
        extra = sum(len(v) for v in views)
        size = extra + measure(content)
        packed = pack.dumps(content) if size <= CONTENT_MOST else b""
        if len(packed) + extra > CONTENT_MOST or not packed:
            content, views = shrink(kind, content, max(size, len(packed) + extra)), []
            if content is None:
                import sys

                sys.stderr.write("a message of type %s was dropped: %s\n" % (kind, too_large(max(size, len(packed) + extra))))
                return None
            packed = pack.dumps(content)
        metadata = msg["metadata"]
        return [pack.dumps(msg["header"]), self._parent(msg["parent_header"]), pack.dumps(metadata) if metadata else b"{}", packed, *views]

    def _parent(self, header):
        last, packed = self._last_parent
        if header is not last:
            packed = pack.dumps(header)
            self._last_parent = (header, packed)
        return packed

    def send_stream(self, channel, name, text, parent, depth=0):
        """A stream message, for which there is a shorter way."""
        if self.link is None:
            return
        content = pack.dumps({"name": name, "text": text})
        parts = [pack.dumps(self.msg_header("stream")), self._parent(parent), b"{}", content]
        self.link.send(links.pack(channel.bytes, parts), depth)


def parse(data):
    """(channel, message) in the form of ipykernel's handlers. ValueError if it is malformed."""
    channel, parts = links.unpack(data)
    header, parent, metadata, content = (pack.loads(part) for part in parts[:proto.PARTS])
    if not all(isinstance(part, dict) for part in (header, parent, metadata, content)):
        raise ValueError("message whose parts are no objects")
    header.setdefault("msg_id", "")
    header.setdefault("session", "")
    if not isinstance(header.get("msg_type"), str):
        raise ValueError("message without a type")
    return channel, {
        "header": header,
        "msg_id": header["msg_id"],
        "msg_type": header["msg_type"],
        "parent_header": parent,
        "metadata": metadata,
        "content": content,
        "buffers": parts[proto.PARTS:],
    }

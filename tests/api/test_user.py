"""A command as another user of the box."""


def test_a_user_of_its_own(alice, box):
    who = {"shell": "id -u; id -g; id -G; f=$(mktemp) && stat -c %u:%g $f"}
    for user, uid, gid in (("234:432", 234, 432), ("234", 234, 234), (77, 77, 77), ({"uid": 5, "gid": 6}, 5, 6)):
        answer = alice.post(box + "/exec", {**who, "user": user}).json
        assert answer["stdout"].split() == [str(uid), str(gid), str(gid), f"{uid}:{gid}"], answer
        assert answer["user"] == f"{uid}:{gid}"
    plain = alice.post(box + "/exec", who).json
    assert plain["stdout"].split()[:2] == ["1000", "1000"] and plain["user"] is None


def test_a_user_in_a_websocket(alice, box):
    ws = alice.websocket(box + "/exec/ws?argv=id&argv=-u&user=55&tty=true")
    out = b""
    while (message := ws.receive()) is not None:
        out += message if isinstance(message, bytes) else b""
    assert out.replace(b"\x01", b"").strip() == b"55"

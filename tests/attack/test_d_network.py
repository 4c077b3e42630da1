"""D. The boundary of the network, for a box without one."""
import socket
import subprocess

from harness import Box, attack_tests, world

globals().update(attack_tests("network"))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_a_listener_in_a_box_is_unreachable_from_the_host():
    with socket.socket() as held:       # no process listens there, and none can begin to
        held.bind(("", 0))
        port = held.getsockname()[1]
        box = Box(["/probe/probe", "bomb", "listen", str(port)], stdin=subprocess.PIPE, options=("-i",))
        assert b"listening" in box.readline()
        for address in ("127.0.0.1", "0.0.0.0"):
            with socket.socket() as client:
                assert client.connect_ex((address, port)) != 0
        assert b'"connections":0' in box.finish(b"\n").stdout


def test_two_boxes_use_the_same_port_without_meeting():
    port = free_port()
    first = Box(["/probe/probe", "bomb", "listen", str(port)], stdin=subprocess.PIPE, options=("-i",))
    assert b"listening" in first.readline()
    second = Box(["/probe/probe", "bomb", "listen", str(port)], stdin=subprocess.PIPE, options=("-i",))
    assert b"listening" in second.readline()
    assert second.finish(b"\n").status == 0
    assert first.finish(b"\n").status == 0


def test_a_port_of_the_host_is_free_inside():
    port = world().tcp.getsockname()[1]
    box = Box(["/probe/probe", "bomb", "listen", str(port)], stdin=subprocess.PIPE, options=("-i",))
    assert b"listening" in box.readline()
    assert box.finish(b"\n").status == 0

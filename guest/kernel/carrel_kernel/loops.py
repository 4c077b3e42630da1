"""An event loop without its descriptors: to make one takes a hundred functions, and a forked process cannot use another's descriptors.

Nothing public does it. Where the names are others than those we know, there is no such loop, and each process makes its own."""

import _socket
import asyncio
import selectors

KNOWN = ("_selector", "_add_reader", "_read_from_self", "_close_self_pipe", "_internal_fds", "_ssock", "_csock", "_ready", "_scheduled", "_closed")


def shut(loop):
    """True if it can be reopened; it must not run and must have nothing to do."""
    if type(loop) is not getattr(asyncio, "SelectorEventLoop", None) or not all(hasattr(loop, name) for name in KNOWN):
        return False
    if loop._ready or loop._scheduled or loop._closed:
        return False
    loop._close_self_pipe()
    loop._selector.close()
    loop._selector = None
    return True


def forget_timers(loop):
    for timer in list(getattr(loop, "_scheduled", ())):
        timer.cancel()
    if getattr(loop, "_scheduled", None):
        loop._scheduled.clear()
        loop._timer_cancelled_count = 0


def reopen(loop):
    loop._selector = selectors.DefaultSelector()
    loop._ssock, loop._csock = _socket.socketpair()     # as _make_self_pipe() does, with plainer sockets
    loop._ssock.setblocking(False)
    loop._csock.setblocking(False)
    loop._internal_fds += 1
    loop._add_reader(loop._ssock.fileno(), loop._read_from_self)

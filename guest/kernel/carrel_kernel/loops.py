"""An event loop without its descriptors: to make one takes a hundred functions, and a forked process cannot use another's descriptors.

Nothing public does it. Where the names are others than those we know, there is no such loop, and each process makes its own."""

import asyncio
import selectors

KNOWN = ("_selector", "_make_self_pipe", "_close_self_pipe", "_ready", "_scheduled", "_closed")


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


def reopen(loop):
    loop._selector = selectors.DefaultSelector()
    loop._make_self_pipe()

"""Makes a kernel, runs the startup files, and serves."""

import glob
import os
import sys
import types


def import_ipykernel():
    """Without its debugger, which takes a tenth of a second to import and cannot be reached here."""
    name = "ipykernel.debugger"
    absent = types.ModuleType(name)
    absent._is_debugpy_available = False
    absent.Debugger = object
    before = sys.modules.get(name)
    sys.modules[name] = absent
    import ipykernel.ipkernel

    def restore():
        if before is not None:
            sys.modules[name] = before
        elif sys.modules.get(name) is absent:
            del sys.modules[name]
        if getattr(ipykernel, "debugger", None) is absent:
            del ipykernel.debugger

    return restore


def enter_directory():
    """Where a gateway's client wants to be, if that is here: it may be a directory of the client's own machine."""
    wanted = os.environ.get("KERNEL_WORKING_DIR")
    if wanted:
        try:
            os.chdir(wanted)
        except OSError:
            pass


def make_kernel():
    """The kernel and its shell, in this process, without a client yet."""
    restore = import_ipykernel()
    from traitlets.config import Config

    from carrel_kernel import quick, start
    from carrel_kernel.kernel import IOPUB, BoxKernel, make_log
    from carrel_kernel.session import LinkSession
    from carrel_kernel.shell import MemoryStore, QuietProfile, ipython_dir
    from carrel_kernel.streams import Streams
    from threading import get_ident

    if "" not in sys.path and not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, "")
    session = LinkSession()
    session.main = get_ident()
    streams = Streams(session, IOPUB)
    config = Config()
    config.HistoryManager.enabled = False
    config.IPKernelApp.name = "carrel_kernel"       # libraries look for the section to know that they are in a notebook
    kernel = BoxKernel.instance(session=session, config=config, log=make_log(), iopub_socket=IOPUB,
                                profile_dir=QuietProfile(location=os.path.join(ipython_dir(), "profile_default")))
    kernel.streams = streams
    kernel._link = None
    kernel.shell.db = MemoryStore()
    kernel.shell.displayhook.pub_socket = kernel.shell.display_pub.pub_socket = IOPUB
    streams.install()
    os.register_at_fork(before=streams.flush, after_in_child=kernel.on_fork)
    quick.remember_signatures()
    start.replace_pdb()
    start.load_extensions(kernel.shell)
    restore()
    return kernel


def startup_files(directory):
    inner = os.path.join(directory, "startup")
    where = inner if os.path.isdir(inner) else directory
    return sorted(glob.glob(os.path.join(where, "*.py")) + glob.glob(os.path.join(where, "*.ipy")))


def run_startup(kernel, directory):
    """Before the first cell; failures are shown and skipped, as in IPython."""
    shell = kernel.shell
    if directory:
        for name in startup_files(directory):
            if name.endswith(".ipy"):
                shell.safe_execfile_ipy(name, shell_futures=True)
            else:
                shell.safe_execfile(name, shell.user_ns, shell_futures=True)
    shell.user_ns_hidden.update(shell.user_ns)


def open_link(kernel, fd):
    from carrel_kernel.link import Link

    link = Link(fd)
    kernel.session.begin(link)
    kernel._trait_values["ident"] = kernel.session._name
    kernel.streams.timer.begin()
    kernel.begin(link)
    return link


def serve(kernel):
    """Never returns."""
    from carrel_kernel.link import Closed

    status = 0
    try:
        kernel.run()
    except Closed:
        pass
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
        status = 1
    kernel.end(status)


# --- without a client: for getting warm ---

def run_quietly(kernel, kind, content):
    """One message through all steps of a shell message, without a receiver for the answers."""
    from carrel_kernel.kernel import SHELL

    loop = kernel._loop
    if loop is None:
        import asyncio

        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    header = {"msg_id": "warm", "msg_type": kind, "session": "warm", "username": "", "date": "", "version": "5.3"}
    msg = {"header": header, "msg_id": "warm", "msg_type": kind, "parent_header": {}, "metadata": {}, "content": content, "buffers": []}
    loop.run_until_complete(kernel._dispatch(SHELL, kernel.shell_handlers, msg))
    if kernel._loop is None:
        asyncio.set_event_loop(None)
        loop.close()
        kernel._io_loop = None


def nothing():
    pass


def rehearse(kernel):
    """A cell's whole way, with a client of our own: all is touched that the first one will touch. Needs Clean afterwards."""
    import asyncio
    import socket

    from carrel_kernel import link as links
    from carrel_kernel import loops, pack
    from carrel_kernel.kernel import SHELL

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fd = theirs.detach()
    link = open_link(kernel, fd)
    header = {"msg_id": "rehearsal", "msg_type": "execute_request", "session": "", "username": "", "date": "", "version": "5.3"}
    content = {"code": "1+1", "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False, "stop_on_error": True}
    message = links.pack(SHELL.bytes, [pack.dumps(header), b"{}", b"{}", pack.dumps(content)])
    ours.send(links.HEAD.pack(len(message), 0) + message)
    kernel.when_it_stays = nothing
    kernel.after_first_cell = kernel._loop.stop
    dispatcher = kernel.run()
    dispatcher.cancel()
    kernel._loop.run_until_complete(asyncio.gather(dispatcher, return_exceptions=True))
    kernel.when_it_stays = None
    loops.forget_timers(kernel._loop)
    kernel.end_loop()
    kernel.session.begin(None)
    kernel._link = None
    kernel._has_run = False
    link.socket.close()
    ours.close()
    os.close(fd)
    kernel.streams.out.parent_header = kernel.streams.err.parent_header = {}


class Clean:
    """A shell's state before its first cell, to restore after a rehearsal."""

    LAST = ("_", "__", "___", "_i", "_ii", "_iii")          # results and inputs
    INPUTS = ("_i", "_ii", "_iii", "_i00")
    LISTS = ("input_hist_parsed", "input_hist_raw", "db_input_cache", "db_output_cache")

    def __init__(self, kernel):
        shell = kernel.shell
        self.kernel = kernel
        self.names = dict(shell.user_ns)
        self.hidden = dict(shell.user_ns_hidden)
        history = shell.history_manager
        self.count = shell.execution_count
        self.inputs = {name: getattr(history, name) for name in self.INPUTS if hasattr(history, name)}
        self.lengths = {name: len(getattr(history, name)) for name in self.LISTS if hasattr(history, name)}
        self.hook = {name: getattr(shell.displayhook, name) for name in ("_", "__", "___") if hasattr(shell.displayhook, name)}

    def restore(self):
        shell = self.kernel.shell
        for now, before in ((shell.user_ns, self.names), (shell.user_ns_hidden, self.hidden)):
            for name in [name for name in now if name not in before]:
                del now[name]
            for name in self.LAST:
                if name in before:
                    now[name] = before[name]
        shell.user_ns.get("_oh", {}).clear()
        for name, value in self.hook.items():
            setattr(shell.displayhook, name, value)
        history = shell.history_manager
        for name in ("outputs", "exceptions", "output_hist_reprs"):
            held = getattr(history, name, None)
            if held:
                held.clear()
        for name, length in self.lengths.items():
            del getattr(history, name)[length:]
        for name, value in self.inputs.items():
            setattr(history, name, value)
        shell.execution_count = self.count
        self.kernel.set_parent([], {})

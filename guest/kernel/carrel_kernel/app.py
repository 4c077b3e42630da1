"""Makes a kernel, runs what is to run before the first cell, and serves."""

import builtins
import glob
import os
import sys
import types


def import_ipykernel():
    """Without its debugger, which takes a tenth of a second to import and which nobody here can reach."""
    name = "ipykernel.debugger"
    stub = types.ModuleType(name)
    stub._is_debugpy_available = False
    stub.Debugger = object
    before = sys.modules.get(name)
    sys.modules[name] = stub
    import ipykernel.ipkernel

    def restore():
        if before is not None:
            sys.modules[name] = before
        elif sys.modules.get(name) is stub:
            del sys.modules[name]
        if getattr(ipykernel, "debugger", None) is stub:
            del ipykernel.debugger

    return restore


def make_kernel():
    """The kernel and its shell, in this process, without a client yet."""
    restore = import_ipykernel()
    from traitlets.config import Config

    from carrel_kernel.kernel import IOPUB, BoxKernel, make_log
    from carrel_kernel.session import LinkSession
    from carrel_kernel.shell import MemoryStore, QuietProfile
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
    home = os.environ.get("IPYTHONDIR") or os.path.join(os.path.expanduser("~"), ".ipython")
    kernel = BoxKernel.instance(session=session, config=config, log=make_log(), iopub_socket=IOPUB,
                                profile_dir=QuietProfile(location=os.path.join(home, "profile_default")))
    kernel.streams = streams
    kernel._link = None
    kernel.shell.db = MemoryStore()
    kernel.shell.displayhook.pub_socket = kernel.shell.display_pub.pub_socket = IOPUB
    streams.install()
    os.register_at_fork(before=streams.flush, after_in_child=kernel.on_fork)
    restore()
    return kernel


def startup_files(directory):
    inner = os.path.join(directory, "startup")
    where = inner if os.path.isdir(inner) else directory
    return sorted(glob.glob(os.path.join(where, "*.py")) + glob.glob(os.path.join(where, "*.ipy")))


def run_startup(kernel, directory):
    """Before the first cell; what fails is shown and passed over, as IPython does."""
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
    kernel.ident = kernel.session.session
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

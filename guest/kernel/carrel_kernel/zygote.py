"""The zygote: imports, makes the kernel, runs cells so that everything lazy has happened, forgets them, and forks at the keeper's word.

    zygote:  imports, make_kernel, warm-up, reset, startup files, checks, settling --> zygote_serve()
    child:   (in its box, sealed) renew, a throw-away cell if no request waits, the command --> its environment, its link, serve

All that the child touches before its command comes, its first cell need not copy: so it makes its random numbers and goes a cell's
whole way already then, unless a request waits for it; only descriptors that it opens would be closed again. State that a sibling would share is renewed (renewal.py)."""

import ctypes
import errno
import gc
import importlib
import importlib.util
import json
import os
import sys
import tempfile
import threading

from carrel_kernel import app, immortal, memory, proto, renewal, start

THREAD_LIMITS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS", "VECLIB_MAXIMUM_THREADS")
# How long an idle thread of OpenBLAS takes a processor: two to this power of its cycles. Its own choice, 26, is a fortieth of a second.
SPIN = {"OPENBLAS_THREAD_TIMEOUT": "20"}
# A child that is forked on request soon gets its first cell, which must not wait for a rehearsal.
GRACE_MS = 20
REHEARSALS = 20
LIBRARY = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "libcarrel-zygote.so")

WARM_UP = [
    ("", "1+1"),
    ("", "print('a'); import sys; sys.stderr.write('b')"),
    ("", "1/0"),
    ("", "def f(x):\n    return [x, {'a': (1.5, None)}]\nclass C:\n    pass\nf(2), C()"),
    ("", "import asyncio\nawait asyncio.sleep(0)"),
    ("", "%time pass"),
    ("numpy", "import numpy as np\nnp.arange(6).reshape(2, 3) * 1.5, np.random.default_rng(1).normal(), np.random.rand()"),
    ("pandas", "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': [1.5, 2.5], 'c': ['x', 'y']}).describe()"),
    ("pandas", "pd.DataFrame({'a': [1, 2, 3], 'c': ['x', 'y', 'x']}).groupby('c').a.mean()"),
    ("matplotlib", "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], label='x'); plt.title('t'); plt.legend(); plt.show()"),
    ("matplotlib", "plt.close('all')"),
]


class _Child(ctypes.Structure):
    _fields_ = [("argc", ctypes.c_int), ("argv", ctypes.POINTER(ctypes.c_char_p)), ("env", ctypes.POINTER(ctypes.c_char_p)),
                ("seed", ctypes.c_ubyte * proto.ZYGOTE_SEED)]


def fail(error, hint=""):
    sys.__stderr__.write(json.dumps({"carrel": "zygote", proto.ERROR_KEY: error, proto.HINT_KEY: hint}) + "\n")
    sys.__stderr__.flush()
    sys.exit(proto.UNFIT)


def note(text):
    sys.__stderr__.write("zygote: " + text + "\n")
    sys.__stderr__.flush()


# --- conditions for a fork ---

def count_threads():
    """Also those that only C knows. There may be no /proc here: then each number near ours is tried."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        pass
    libc, pid = ctypes.CDLL(None), os.getpid()
    tgkill = 234 if os.uname().machine == "x86_64" else 131
    numbers = set(range(1, 2048)) | set(range(pid, pid + 512))
    return sum(libc.syscall(tgkill, pid, tid, 0) == 0 for tid in numbers)


def stray_descriptors():
    import fcntl
    import resource

    found = []
    for fd in range(proto.ZYGOTE_CONTROL + 1, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 4096)):
        try:
            fcntl.fcntl(fd, fcntl.F_GETFD)
        except OSError:
            continue
        try:
            found.append("%d (%s)" % (fd, os.readlink("/proc/self/fd/%d" % fd)))
        except OSError:
            found.append(str(fd))
    return found


def close_known_files():
    """Libraries that keep a file open although they would open it again."""
    manager = sys.modules.get("matplotlib.font_manager")
    for name in ("_get_font", "get_font"):
        clear = getattr(getattr(manager, name, None), "cache_clear", None)
        if clear:
            clear()
    streams = sys.modules.get("IPython.utils.io")
    null = getattr(streams, "devnull", None)
    if null is not None and hasattr(null, "close"):
        null.close()
        streams.devnull = open(os.devnull, "w")
        streams.devnull.close()


# --- getting warm ---

def import_all(names):
    imported = []
    for name in names:
        if importlib.util.find_spec(name.split(".")[0]) is None:
            note("%s is not installed" % name)
            continue
        try:
            importlib.import_module(name)
        except Exception as error:
            note("import %s: %s: %s" % (name, type(error).__name__, error))
            continue
        imported.append(name)
        if count_threads() > 1:
            wait_for_threads()
        if count_threads() > 1:
            fail("importing %s started a thread, and a process with threads cannot be forked" % name,
                 "leave %s out of the template's imports; kernels import it when they need it" % name)
    return imported


def wait_for_threads():
    """A timer that was cancelled needs a moment to end."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join(1)


def warm_up(kernel, imported):
    if "matplotlib" in imported:
        importlib.import_module("matplotlib.pyplot")
        importlib.import_module("matplotlib_inline.backend_inline")
    for needs, code in WARM_UP:
        if not needs or needs in imported:
            app.run_quietly(kernel, "execute_request", {"code": code, "stop_on_error": False})
    # Twice: the second run shows what the first changed.
    for _ in range(2):
        app.run_quietly(kernel, "kernel_info_request", {})
        app.run_quietly(kernel, "complete_request", {"code": "import o", "cursor_pos": 8})
        app.run_quietly(kernel, "complete_request", {"code": "pri", "cursor_pos": 3})
        app.run_quietly(kernel, "inspect_request", {"code": "print", "cursor_pos": 3})
        app.run_quietly(kernel, "execute_request", {"code": "1+1", "stop_on_error": False})


def prepare(options):
    limits = {name: os.environ.get(name) for name in (*THREAD_LIMITS, *SPIN)}
    os.environ.update(dict.fromkeys(THREAD_LIMITS, "1"))
    os.environ.update(SPIN)
    directory = tempfile.mkdtemp(prefix="carrel-")
    os.environ["MPLCONFIGDIR"] = directory
    kernel = app.make_kernel()
    imported = import_all([name.strip() for name in options.imports.split(",") if name.strip()])
    warm_up(kernel, imported)
    kernel.shell.reset(new_session=True)
    for name in ("_", "__", "___"):     # in both places: where they differ, IPython thinks that the user set his own
        kernel.shell.user_ns[name] = ""
        setattr(kernel.shell.displayhook, name, "")
    sys.breakpointhook = sys.__breakpointhook__     # debugpy, if something imported it, waits in its own for a debugger
    app.run_startup(kernel, options.startup)
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        if hasattr(sys, name):
            delattr(sys, name)
    renewal.forget_paths()
    close_known_files()
    for name, value in limits.items():
        os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
    del os.environ["MPLCONFIGDIR"]
    return kernel


def settle(library):
    """Lays memory out for forks. From here on as little as possible is made or changed."""
    gc.collect()
    doubt = immortal.doubt(library)
    if doubt is None:
        immortal.make_all(library)
    elif sys.version_info >= immortal.FROM:
        note("references to objects are counted: " + doubt)
    gc.collect()
    memory.fill_holes()
    gc.freeze()
    library.zygote_join_libraries()
    library.zygote_settle_memory()


def main(options):
    library = ctypes.PyDLL(LIBRARY)
    memory.place_arenas(library)
    kernel = prepare(options)
    gc.collect()
    wait_for_threads()
    if count_threads() > 1:
        fail("there are %d threads, and a process with threads cannot be forked" % count_threads(),
             "something in the template's imports or startup files starts threads")
    renew = renewal.Renewal()
    threads = renewal.Threads()
    clean = app.Clean(kernel)
    adoption = Adoption(kernel)
    example = _Child(env=(ctypes.c_char_p * 2)(b"CARREL_EXAMPLE=1", None))

    def get_ready(is_asked):
        renew.run()
        if is_asked(GRACE_MS):
            return          # the first cell is there, or soon will be, and will itself touch what it needs
        app.rehearse(kernel)
        clean.restore()
        environment = dict(os.environb)
        adoption.run({**environment, **environment_of(example)})
        adoption.run(environment)
        start.look(kernel)

    def rehearse():
        get_ready(lambda _: False)

    immortal.forget_names()
    rehearse()              # once here, or each child would load again what is loaded at first use
    memory.gather_code(library, rehearse)
    for _ in range(REHEARSALS):
        rehearse()          # the copies get quick, which is to write to them
    strays = stray_descriptors()
    if strays:
        fail("these descriptors are open: " + ", ".join(strays), "something in the template's imports or startup files keeps files open")
    def warm(_):
        try:
            kernel.streams.timer.forget()
            get_ready(library.zygote_is_asked)
        except BaseException:
            import traceback

            os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
            os._exit(70)

    callback = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(warm)
    child = _Child()
    library.zygote_serve.restype = ctypes.c_int
    settle(library)
    status = library.zygote_serve(callback, None, ctypes.byref(child))
    if status < 0:
        # The keeper is gone, or there was none: "zygote" is not run by hand.
        sys.exit(0 if status == -errno.ECONNRESET else "zygote: no keeper: " + os.strerror(-status))
    adoption.run(environment_of(child))
    library.zygote_running()
    app.open_link(kernel, proto.LINK)
    start.begin(kernel)
    kernel.when_it_stays = threads.give_back
    app.serve(kernel)


def environment_of(child):
    environment, i = {}, 0
    while child.env[i] is not None:
        name, _, value = child.env[i].partition(b"=")
        environment[name] = value
        i += 1
    return environment


class Adoption:
    """Of the command's environment; its directory and descriptors are there already."""

    def __init__(self, kernel):
        """In the zygote."""
        from carrel_kernel.shell import ipython_dir

        self.ipython_dir = ipython_dir
        self.shell = kernel.shell
        before = dict(os.environb)
        os.environb.clear()
        self.shell.init_environment()
        self.forced = dict(os.environb)         # set by IPython in each
        os.environb.clear()
        os.environb.update(before)

    def run(self, environment):
        have = os.environb._data
        zone = have.get(b"TZ")
        wanted = {b"MPLBACKEND": b"module://matplotlib_inline.backend_inline", **environment, **self.forced}
        for name in [name for name in have if name not in wanted]:
            del os.environb[name]
        for name, value in wanted.items():
            if have.get(name) != value:
                os.environb[name] = value
        if self.shell.ipython_dir != self.ipython_dir():
            self.shell.init_ipython_dir(None)
        if have.get(b"TZ") != zone:
            import time

            time.tzset()
        app.enter_directory()
        self.shell.history_manager.dir_hist[:] = [os.getcwd()]

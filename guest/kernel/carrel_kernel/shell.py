"""IPython's shell for a box: no files in the home directory, no terminals, no threads."""

import fnmatch
import os
import subprocess
import sys

from IPython.core.events import EventManager, available_events
from IPython.core.interactiveshell import InteractiveShellABC
from IPython.core.profiledir import ProfileDir
from ipykernel.zmqshell import ZMQInteractiveShell
from traitlets import observe

from carrel_kernel.history import MemoryHistory
from carrel_kernel.quick import OnceTransformed, QuickFormatter


def ipython_dir():
    return os.environ.get("IPYTHONDIR") or os.path.join(os.path.expanduser("~"), ".ipython")


class QuietProfile(ProfileDir):
    """A profile directory that is not made only because there might be one."""

    @observe("location")
    def _location_changed(self, change):
        for name in ("security", "log", "startup", "pid", "static"):
            setattr(self, name + "_dir", os.path.join(change["new"], name))

    def _mkdir(self, path, mode=None):
        return False

    def check_dirs(self):
        pass

    check_log_dir = check_startup_dir = check_security_dir = check_pid_dir = check_static_dir = lambda self, change=None: None


class MemoryStore(dict):
    """IPython's persistent state, for this session only."""

    def keys(self, pattern=None):
        names = list(dict.keys(self))
        return names if pattern is None else fnmatch.filter(names, pattern)

    def uncache(self, *names):
        pass


class Events(EventManager):
    """Callbacks around cells. IPython shows an interrupt there and continues; before a cell it must interrupt the cell."""

    def trigger(self, event, *args, **kwargs):
        if not event.startswith("pre_"):
            super().trigger(event, *args, **kwargs)
            return
        for function in self.callbacks[event][:]:
            try:
                function(*args, **kwargs)
            except Exception:
                print("Error in callback %s (for %s):" % (function, event))
                self.shell.showtraceback()


class Shell(OnceTransformed, ZMQInteractiveShell):
    def init_events(self):
        self.events = Events(self, available_events)
        self.events.register("pre_execute", self._clear_warning_registry)

    async def run_code(self, *args, **kwargs):
        self.kernel.code_begins()
        return await super().run_code(*args, **kwargs)

    @observe("ipython_dir")
    def _ipython_dir_changed(self, change):
        pass                            # it would be made

    def init_ipython_dir(self, given):
        self.ipython_dir = given or ipython_dir()

    def init_display_formatter(self):
        self.display_formatter = QuickFormatter(parent=self)
        self.configurables.append(self.display_formatter)

    def init_history(self):
        self.history_manager = MemoryHistory(shell=self, parent=self)
        self.history_manager.hist_file = ":memory:"
        self.configurables.append(self.history_manager)

    def _get_exc_info(self, exc_tuple=None):
        """An interrupt is shown where it came, without our handler, which a stock kernel has not."""
        kind, value, trace = super()._get_exc_info(exc_tuple)
        handler, error = type(self.kernel)._on_sigint.__code__, value
        for _ in range(16):
            at = error.__traceback__ if isinstance(error, KeyboardInterrupt) else None
            while at is not None and at.tb_next is not None:
                if at.tb_next.tb_frame.f_code is handler:
                    at.tb_next = None
                at = at.tb_next
            error = getattr(error, "__context__", None)
        return kind, value, trace

    def enable_gui(self, gui=None):
        """As ipykernel's, which would look for the kernel in an application that is not here."""
        from IPython.core.error import UsageError
        from ipykernel.eventloops import enable_gui

        try:
            enable_gui(gui, self.kernel)
        except ValueError as error:
            raise UsageError(str(error)) from error
        self.active_eventloop = gui

    def system_piped(self, cmd):
        """A shell's command, with its output as ours. By pipes: a box may have no terminals to lend."""
        if cmd.rstrip().endswith("&"):
            raise OSError("Background processes not supported.")
        command = self.var_expand(cmd, depth=1)
        sys.stdout.flush()
        sys.stderr.flush()
        process = subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            self._relay(process.stdout)
            code = process.wait()
        except KeyboardInterrupt:
            code = self._end_process(process)
        finally:
            process.stdout.close()
        sys.stdout.flush()
        self.user_ns["_exit_code"] = code
        if getattr(self, "system_raise_on_error", False) and code != 0:
            raise subprocess.CalledProcessError(code, cmd)

    system = system_piped

    def _relay(self, pipe):
        import codecs

        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            data = os.read(pipe.fileno(), 65536)
            text = decoder.decode(data, not data)
            if text:
                sys.stdout.write(text)
            if not data:
                return

    def _end_process(self, process):
        """It got the interrupt too, because it is in our process group; one that ignores it is ended."""
        for end, patience in ((process.terminate, 0.5), (process.kill, 0.5)):
            try:
                process.wait(patience)
                break
            except subprocess.TimeoutExpired:
                end()
        return process.wait()


InteractiveShellABC.register(Shell)


# Libraries look at the name of this class, or of the module that it is from, to know that they are in a notebook: plotly's renderer, rich, many others.
for _name in ("__module__", "__name__", "__qualname__"):
    setattr(Shell, _name, getattr(ZMQInteractiveShell, _name))

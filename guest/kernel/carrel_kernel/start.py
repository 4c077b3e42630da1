"""What the stock application (ipykernel.kernelapp) does with a shell before the first cell, as far as it makes sense in a box.

Done in make_kernel, and so once in a zygote: IPython's debugger in the place of pdb's, which cannot be interrupted; the extension storemagic; '' in sys.path;
MPLBACKEND. Done in each kernel, in begin(), because it depends on the box: files of configuration and of startup (of the profile, of the environment, of the
system), PYTHONSTARTUP, and the arguments that a Jupyter program has given, as --Class.name=value or by IPython's short names.

Left out on purpose:
- what sockets, threads, heartbeat, the connection file and looking after the parent process need: there are none here;
- HistoryManager.*: history lives in memory and ends with the kernel;
- sys.argv, which there names the connection file, is [""] here, or what `carrel py` says;
- faulthandler's patch: our sys.stderr has a descriptor of its own; no_stdout, no_stderr, capture_fd_output, displayhook_class, outstream_class: output is ours;
- debugpy, subshells, trio_loop, --init and --config; Application.log_level but for our own log; %edit's and other files in the profile's folder, which is never made."""

import json
import os
import sys

from carrel_kernel import proto

ARGUMENTS = "CARREL_IPYTHON_ARGUMENTS"
ARGV = "CARREL_ARGV"            # of `carrel py FILE ARGUMENT...`: a list, as JSON


def replace_pdb():
    """As the stock application's init_pdb."""
    import pdb

    from IPython.core import debugger

    if hasattr(debugger, "InterruptiblePdb"):
        debugger.Pdb = debugger.InterruptiblePdb
        pdb.Pdb = debugger.Pdb
        pdb.set_trace = debugger.set_trace


def load_extensions(shell):
    """Those that every stock kernel has."""
    from IPython.core.shellapp import InteractiveShellApp

    for name in InteractiveShellApp().default_extensions:
        try:
            shell.extension_manager.load_extension(name)
        except Exception:
            shell.kernel.log.warning("extension %s:", name, exc_info=True)


def folders(profile):
    """In the order in which a later one is stronger."""
    return ["/usr/local/etc/ipython", "/etc/ipython", os.path.join(sys.prefix, "etc", "ipython"), profile]


def application():
    """A class with what IPython does for every application that has a shell. Its name is that of its section."""
    from IPython.core.shellapp import InteractiveShellApp
    from traitlets import List, Unicode

    class IPKernelApp(InteractiveShellApp):
        default_extensions = List(Unicode(), [])

    return IPKernelApp


def read_arguments(words, classes, log):
    from IPython.core.shellapp import shell_aliases, shell_flags
    from traitlets.config.loader import KeyValueConfigLoader

    aliases = {**shell_aliases, "profile-dir": "ProfileDir.location", "profile": "BaseIPythonApplication.profile",
               "ipython-dir": "BaseIPythonApplication.ipython_dir", "log-level": "Application.log_level"}
    flags = {**shell_flags, "debug": ({"Application": {"log_level": 10}}, ""), "quiet": ({"Application": {"log_level": 50}}, "")}
    try:
        return KeyValueConfigLoader(words, aliases=aliases, flags=flags, classes=classes).load_config()
    except BaseException as error:          # argparse ends the process
        if isinstance(error, KeyboardInterrupt):
            raise
        log.warning("arguments for IPython that are not understood: %s (%s)", " ".join(words), error)
        return None


def read_files(places, log):
    from traitlets.config import Config
    from traitlets.config.loader import ConfigFileNotFound, PyFileConfigLoader

    config = Config()
    for name in ("ipython_config.py", "ipython_kernel_config.py"):
        for place in places:
            try:
                config.merge(PyFileConfigLoader(name, path=place).load_config())
            except ConfigFileNotFound:
                pass
            except Exception:
                log.warning("%s:", os.path.join(place, name), exc_info=True)
    return config


def configurables(kernel):
    shell = kernel.shell
    formatters = getattr(shell.display_formatter, "formatters", {}).values()
    found = (kernel, shell, *shell.configurables, getattr(shell, "Completer", None), *formatters)
    return list({id(one): one for one in found if hasattr(one, "update_config")}.values())


def apply(kernel, config):
    """Appends to present arguments; each component takes its own."""
    config.pop("HistoryManager", None)
    config.pop("HistoryAccessor", None)
    if "log_level" in config.get("Application", {}):
        try:
            kernel.log.setLevel(config.Application.log_level)
        except (TypeError, ValueError):
            pass
    for one in configurables(kernel):
        try:
            one.update_config(config)
        except Exception:
            kernel.log.warning("configuration of %s:", type(one).__name__, exc_info=True)


def see_own_packages():
    """A box with network has a place for packages that are installed while it lives; a zygote has started without."""
    place = os.environ.get("PYTHONPATH", "").split(os.pathsep)[-1]
    path = os.path.join(place, "sitecustomize.py")
    if place == proto.BOX_SITE and os.path.exists(path):
        with open(path, "rb") as file:
            exec(compile(file.read(), path, "exec"), {"__name__": "carrel_site", "__file__": path})


def look(kernel):
    """What this process is to read and run: (class of the application, configuration from arguments, profile, folders); None if there is nothing."""
    from carrel_kernel.shell import ipython_dir

    argv = os.environ.pop(ARGV, None)
    if argv is not None:
        sys.argv = json.loads(argv)
    words, config, kind = os.environ.pop(ARGUMENTS, None), None, None
    if words is not None:
        kind = application()
        words = [word for word in json.loads(words) if isinstance(word, str)]
        config = read_arguments(words, [kind, *{type(one) for one in configurables(kernel)}], kernel.log)
    base = config.get("BaseIPythonApplication", {}) if config else {}
    profile = os.path.join(base.get("ipython_dir") or ipython_dir(), "profile_" + (base.get("profile") or "default"))
    if config and config.get("ProfileDir", {}).get("location"):
        profile = config.ProfileDir.location
    places = [place for place in folders(profile) if os.path.isdir(place)]
    if not (places or config or os.environ.get("PYTHONSTARTUP")):
        return None
    return kind, config, profile, places


def begin(kernel):
    """Runs in the process that serves, once its output has a destination."""
    see_own_packages()
    found = look(kernel)
    if found is None:
        return
    kind, config, profile, places = found
    whole = read_files(places, kernel.log)
    if config:
        whole.merge(config)
    apply(kernel, whole)
    run(kernel, kind or application(), whole, profile)


def run(kernel, kind, config, profile):
    from types import SimpleNamespace

    app = kind(config=config)
    app.log, app.extra_args, app.ipython_dir = kernel.log, [], os.path.dirname(profile)
    app.profile_dir = SimpleNamespace(location=profile, startup_dir=os.path.join(profile, "startup"))
    app.shell = shell = kernel.shell
    shell.configurables.append(app)
    shown = shell._showtraceback

    def show(kind, value, lines):
        sys.stderr.write("GUI event loop or pylab initialization failed\n%s\n" % shell.InteractiveTB.stb2text(lines))

    shell._showtraceback = show
    try:
        app.init_gui_pylab()
    finally:
        shell._showtraceback = shown
    app.init_extensions()
    app.init_code()

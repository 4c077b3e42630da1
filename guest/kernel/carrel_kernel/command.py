"""The command line, and how a kernel that cannot start says so."""

import argparse
import json
import os
import sys

from carrel_kernel import proto

OLDEST = (6, 17)


def give_up(error, hint):
    """One line for a program, on the standard error, and a status of its own."""
    sys.stderr.write(json.dumps({"carrel": "kernel", proto.ERROR_KEY: error, proto.HINT_KEY: hint}) + "\n")
    sys.stderr.flush()
    sys.exit(proto.UNFIT)


def how_to_install():
    """Debian's own interpreter, and other externally managed ones, refuse pip."""
    if sys.prefix == sys.base_prefix and os.path.exists(os.path.join(os.path.dirname(os.__file__), "EXTERNALLY-MANAGED")):
        return "carrel setup makes an environment that has it, for templates that name no python"
    return "%s -m pip install 'ipykernel>=6.17'" % (sys.executable or "python3")


def check_packages():
    """Ends with the reason if this interpreter cannot be a kernel."""
    install = how_to_install()
    try:
        import ipykernel
    except ImportError as error:
        give_up("%s has no ipykernel (%s)" % (sys.executable, error), install)
    version = getattr(ipykernel, "version_info", None) or tuple(int(n) for n in ipykernel.__version__.split(".")[:2])
    if tuple(version[:2]) < OLDEST:
        give_up("ipykernel %s is too old" % ipykernel.__version__, install)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="carrel_kernel", description="an IPython kernel for a box")
    commands = parser.add_subparsers(dest="command", required=True)
    kernel = commands.add_parser(proto.AS_KERNEL, help="serve one kernel on descriptor 0")
    zygote = commands.add_parser(proto.AS_ZYGOTE, help="import, warm up, and fork kernels at the keeper's word")
    zygote.add_argument(proto.IMPORTS, dest="imports", default="IPython,numpy,pandas,matplotlib", help="comma-separated modules; what is not installed is left out")
    for each in (kernel, zygote):
        each.add_argument(proto.STARTUP, dest="startup", metavar="DIR", help="a directory of .py and .ipy files, or a profile directory, to run before the first cell")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    sys.argv = [""]
    os.environ.pop("JPY_PARENT_PID", None)
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    check_packages()
    if options.command == proto.AS_ZYGOTE:
        from carrel_kernel import zygote

        return zygote.main(options)
    from carrel_kernel import app, start

    app.enter_directory()
    try:
        kernel = app.make_kernel()
        app.open_link(kernel, proto.LINK)
        app.run_startup(kernel, options.startup)
        start.begin(kernel)
    except Exception:
        import traceback

        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))     # sys.stderr may be ours, and is not read
        os._exit(1)
    app.serve(kernel)

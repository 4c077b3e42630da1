"""Gives a box with network a place for packages that are installed while it lives: ~/.local, in the box's own files, because those of the
interpreter are read-only. It comes before the interpreter's packages. pip and uv see it as a virtual environment.

Every Python of such a box runs this when it starts (PYTHONPATH), a forked kernel when it begins (carrel_kernel/start.py). An interpreter whose
files are the box's own, like that of an environment that was made in the box, is left alone."""

import os
import re
import sys

USUAL = ("site-packages", "dist-packages")
BASE = "carrel-packages = "     # in pyvenv.cfg: where the interpreter's own packages are


def place_in(prefix):
    return os.path.join(prefix, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")


def usual_places():
    return [path for path in sys.path if os.path.basename(path) in USUAL]


def is_pip():
    with open("/proc/self/cmdline", "rb") as file:
        words = [os.fsdecode(word) for word in file.read().split(b"\0")]
    for i, word in enumerate(words[1:], 1):
        if word == "-m":
            return words[i + 1] == "pip"
        if not word.startswith("-"):
            return re.match(r"pip[0-9.]*$", os.path.basename(word)) is not None
    return False


def make(own):
    """What makes the folder an environment, for uv. Another interpreter may do the same at this moment."""
    settings, python = os.path.join(own, "pyvenv.cfg"), os.path.realpath(sys.executable)
    os.makedirs(place_in(own), exist_ok=True)
    os.makedirs(os.path.join(own, "bin"), exist_ok=True)
    if os.path.exists(settings):
        return
    new = "%s.%d" % (settings, os.getpid())
    with open(new, "w") as file:
        file.write("home = %s\ninclude-system-site-packages = false\n%s%s\n" % (os.path.dirname(python), BASE, os.pathsep.join(usual_places())))
    for name in "python", "python3":
        if not os.path.lexists(os.path.join(own, "bin", name)):
            os.symlink(python, os.path.join(own, "bin", name))
    os.rename(new, settings)


def add(places, first):
    """Adds to sys.path, and runs their .pth files."""
    import site

    before, seen = list(sys.path), set(sys.path)
    for place in places:
        if place not in seen:
            site.addsitedir(place, seen)
    new = sys.path[len(before):]
    sys.path[:] = before[:first] + new + before[first:]


def read_base(own):
    with open(os.path.join(own, "pyvenv.cfg")) as file:
        return next((line[len(BASE):].strip().split(os.pathsep) for line in file if line.startswith(BASE)), [])


def enter(own):
    if sys.prefix == own:
        return add(read_base(own), len(sys.path))
    if os.access(sys.prefix, os.W_OK):
        return None
    make(own)
    usual = usual_places()
    add([place_in(own)], sys.path.index(usual[0]) if usual else len(sys.path))
    if is_pip():
        os.environ.setdefault("PIP_BREAK_SYSTEM_PACKAGES", "1")
        if sys.prefix != sys.base_prefix:
            sys.prefix = sys.exec_prefix = own
            sys.modules.pop("sysconfig", None)      # it remembers the prefix
    return None


def run_next():
    """A sitecustomize of the interpreter's own, which this one hides."""
    from importlib import machinery, util

    mine = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if path != mine]
    spec = machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec and spec.loader:
        spec.loader.exec_module(util.module_from_spec(spec))


try:
    enter(os.path.expanduser("~/.local"))
except (OSError, ValueError, IndexError):
    pass        # no room, or no home: then installing fails with its own words
if __name__ == "sitecustomize":
    run_next()

"""Fills the environment for kernels: `BASE -I carrel_setup.py PLACE CARREL OPTIONS PACKAGE...`, which 'carrel setup' runs.

It runs outside of any box, as whoever wants the environment, so nothing that a package brings may run here. The environment's own interpreter is
never started: it would run the .pth files of what is installed. A pip beside it, which sees none of that, unpacks wheels into a folder; from there
they are moved to their place. Whether they can be imported is tried in a box."""

import argparse
import contextlib
import csv
import glob
import os
import re
import shutil
import subprocess
import sys
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
# What the default template imports (src/front/config/config_template.c), and what makes a kernel of an interpreter.
PACKAGES = ["ipykernel>=6.17", "numpy", "pandas", "matplotlib"]
TRIAL = "import ipykernel, IPython, numpy, pandas, matplotlib.pyplot"
UNBOXED = 125       # carrel's own failure
MARK = "carrel-setup"


def fail(text):
    say_end()
    sys.stderr.write("carrel: setup: %s\n" % text)
    sys.exit(1)


# --- progress: one line on a terminal, which is written anew; else one line each ---

def say(text):
    talks = sys.stderr.isatty()
    sys.stderr.write(("\r\033[K  %s" if talks else "  %s\n") % re.sub(r"[^ -~]", "?", text))
    sys.stderr.flush()


def say_end():
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")


def show_line(line, seen):
    """Downloading numpy-2.4.0-cp311-...whl (16.9 MB); Installing collected packages: a, b"""
    found = re.match(r"\s*(?:Downloading|Using cached|Processing) (?:.*/)?([^\s/-]+-[^\s-]+)-\S*\.whl(?: (\(.*\)))?$", line)
    if found:
        seen.append(found[1])
        say(" ".join(["%d:" % len(seen), found[1].replace("-", " "), found[2] or ""]).rstrip())
    elif line.startswith("Installing collected"):
        say("unpacking")


# --- what was asked for ---

def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(package):
    """Of a requirement or a wheel; anything else may have to be built."""
    if package.endswith(".whl"):
        return plain(os.path.basename(package).split("-")[0])
    found = re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*([<>=!~,.*+\w\s-]*)$", package)
    if not found:
        fail("%r is neither the name of a package, with or without versions, nor a wheel" % package)
    return plain(found[1])


# --- packages that lie in a folder: only their files are looked at ---

def packages_in(site):
    """Name, version and folder of each."""
    found = []
    for path in sorted(glob.glob(os.path.join(glob.escape(site), "*.dist-info"))):
        name, _, version = os.path.basename(path)[:-len(".dist-info")].partition("-")
        found.append((plain(name), version, path))
    return found


def files_of(info):
    """The paths of a package's files: (where pip has put it, below the folder; whether it belongs to the environment and not to its packages)."""
    try:
        with open(os.path.join(info, "RECORD"), newline="", encoding="utf-8") as file:
            paths = [row[0] for row in csv.reader(file) if row]
    except FileNotFoundError:
        return
    for path in paths:
        inner = re.sub(r"^(\.\./)+", "", path)
        if not inner.startswith("/") and ".." not in inner.split("/"):
            yield inner, inner != path


def is_ours(inner):
    """What makes the environment one; no package replaces that."""
    return inner in ("pyvenv.cfg", MARK, "bin", "lib", "lib64") or re.match(r"bin/(python[0-9.]*$|activate)", inner, re.I)


class Environment:
    def __init__(self, place):
        self.place = place
        self.python = os.path.join(place, "bin", "python")
        self.site = os.path.join(place, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
        self.new = os.path.join(place, ".new")      # what is being made; nobody else does, for the caller holds a lock

    def make(self):
        say("an environment of %s" % sys.executable)
        venv.EnvBuilder(clear=True, symlinks=True).create(self.place)

    def path_of(self, inner, is_common):
        return os.path.join(self.place if is_common else self.site, inner)

    def remove(self, info):
        for inner, is_common in list(files_of(info)):
            path = self.path_of(inner, is_common)
            if not (is_common and is_ours(inner)) and os.path.isfile(path):
                os.unlink(path)
                with contextlib.suppress(OSError):
                    os.removedirs(os.path.dirname(path))
        shutil.rmtree(info, ignore_errors=True)

    def take(self, unpacked, pip):
        """Moves packages in, each in the place of another version of it."""
        comes = packages_in(unpacked)
        for name, _, info in packages_in(self.site):
            if name in [other for other, _, _ in comes]:
                self.remove(info)
        for _, _, info in comes:
            for inner, is_common in list(files_of(info)):
                source, target = os.path.join(unpacked, inner), self.path_of(inner, is_common)
                if (is_common and is_ours(inner)) or not os.path.isfile(source):
                    continue
                os.makedirs(os.path.dirname(target), exist_ok=True)
                if is_common and inner.startswith("bin/"):
                    self.own_script(source, pip)
                os.replace(source, target)

    def own_script(self, path, pip):
        """A script names the interpreter that pip ran with; this one's is the environment's."""
        with open(path, "rb") as file:
            data = file.read()
        lines = data.split(b"\n", 2)
        if data.startswith(b"#!"):
            with open(path, "wb") as file:
                file.write(b"\n".join([*(line.replace(pip.encode(), self.python.encode()) for line in lines[:2]), *lines[2:]]))

    def find_pip(self, own):
        """The interpreter whose pip installs: of an environment that has nothing else, or this one."""
        if not own:
            return sys.executable
        say("a pip beside it")
        tool = os.path.join(self.new, "pip")
        venv.EnvBuilder(clear=True, symlinks=True, with_pip=True).create(tool)
        return os.path.join(tool, "bin", "python")

    def install(self, options):
        named = [name_of(p) for p in options.packages]
        there = [] if options.upgrade or options.fresh else packages_in(self.site)
        kept = [(n, v) for n, v, _ in there if n not in named]
        shutil.rmtree(self.new, ignore_errors=True)
        os.makedirs(os.path.join(self.new, "tmp"))
        pip = self.find_pip(options.pip == "own")
        constraints = os.path.join(self.new, "constraints.txt")
        with open(constraints, "w", encoding="utf-8") as file:
            file.writelines("%s==%s\n" % (n, v) for n, v in kept if re.match(r"[0-9A-Za-z.!]+$", v))
        unpacked = os.path.join(self.new, "site")
        # What is there stays as it is; if what is new does not go with that, all of it may change. What only adds cannot break the rest.
        changes = PACKAGES if len(kept) < len(there) else []
        tries = [["--constraint", constraints, *changes, *options.packages]] if kept else []
        for words in [*tries, [*PACKAGES, *options.packages]]:
            is_last = words[0] != "--constraint"
            status, said = self.run_pip([pip, "-I", os.path.join(HERE, "carrel_pip.py"), "install", "--disable-pip-version-check", "--no-input", "--no-user",
                                         "--progress-bar", "off", "--only-binary", ":all:", "--target", unpacked, *words], is_last)
            if status == 0:
                break
            if is_last or "ResolutionImpossible" not in said:
                sys.stderr.write(said)
                fail("the packages could not be installed (pip left with status %d; it says why above). What is there is kept: 'carrel setup' goes on" % status)
            shutil.rmtree(unpacked, ignore_errors=True)
        say("installing")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.place, MARK))       # until it was tried
        self.take(unpacked, pip)

    def run_pip(self, command, is_shown):
        """Its status, and what it complained of unless that was shown."""
        seen = []
        # Beside the environment, so that what is unpacked need not be copied, and does not fill /tmp.
        environment = {**os.environ, "TMPDIR": os.path.join(self.new, "tmp")}
        with open(os.path.join(self.new, "said"), "w+", encoding="utf-8", errors="replace") as complaints:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=None if is_shown else complaints, env=environment,
                                       encoding="utf-8", errors="replace")
            for line in process.stdout:
                show_line(line.rstrip("\n"), seen)
            status = process.wait()
            say_end()
            complaints.seek(0)
            return status, complaints.read()

    def try_it(self, carrel):
        """In a box, which sees what it needs read-only."""
        say("trying it")
        places = {path for path in (self.place, sys.prefix, sys.base_prefix, sys.base_exec_prefix) if not (path + "/").startswith("/usr/")}
        mounts = [word for path in sorted(places) for word in ("--mount", "%s:%s" % (os.path.realpath(path), path))]
        environment = {k: v for k, v in os.environ.items() if k != "CARREL_URL"}
        done = subprocess.run([carrel, "run", "--timeout", "10m", *mounts, "--", self.python, "-I", "-B", "-c", TRIAL], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, encoding="utf-8", errors="replace")
        say_end()
        sys.stderr.write("".join(c if c.isprintable() or c == "\n" else "?" for c in done.stderr))
        if done.returncode == UNBOXED:
            sys.stderr.write("carrel: setup: what was installed is not tried, because no box can be made here; 'carrel doctor' says why\n")
        elif done.returncode != 0:
            fail("what was installed in %s cannot be imported (status %d in a box)" % (self.place, done.returncode))

    def mark(self):
        with open(os.path.join(self.place, MARK), "w"):
            pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("place")
    parser.add_argument("carrel")
    parser.add_argument("--fresh", action="store_true", help="whatever is in the place goes")
    parser.add_argument("--upgrade", action="store_true")
    parser.add_argument("--pip", choices=["own", "base"], help="own: ensurepip gives one; base: that of this interpreter")
    parser.add_argument("packages", nargs="*")
    options = parser.parse_args()
    it = Environment(options.place)
    if not options.fresh and not os.path.isdir(it.site):
        fail("%s is there, and not of Python %d.%d; remove it first" % ((it.place,) + sys.version_info[:2]))
    for package in options.packages:
        name_of(package)
    try:
        if options.fresh:
            it.make()
        it.install(options)
    finally:
        shutil.rmtree(it.new, ignore_errors=True)
    it.try_it(options.carrel)
    it.mark()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, ValueError, csv.Error, subprocess.SubprocessError) as e:
        fail(str(e))

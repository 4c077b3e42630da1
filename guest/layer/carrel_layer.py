"""Installs packages into a layer: runs in a worker box, where package code may run.

    python -I carrel_layer.py look INDEX                          which hosts the index serves its files from
    python -I carrel_layer.py build INDEX PLACE [--build]         requirements on standard input, one per line; "also REQUIREMENT": not the caller's,
                                                                  comes with every list; "keep NAME==VERSION": to be preferred
    python -I carrel_layer.py try CODE PLACE                      whether this runs there; PLACE is not writable

PLACE is the layer, empty and writable. Afterwards it is a virtual environment of this interpreter, and PLACE/.work is gone. Without --build only
wheels are taken, so no code of a package runs before the list of versions has been printed.

If a requirement has a hash, each needs one, also those that others depend on, and no file with another hash is used: it is not even opened to see what
it needs, because a setup.py could then forge the rest. Requirements of "also" are resolved beside them, and their hashes are the index's.

Standard output is for the builder (src/cli/layers/build.c), a line each:

    host NAME:PORT          the index has files there
    say TEXT                progress
    lock NAME==VERSION HEX  one line for each package, before anything is installed; HEX: a digest of the hashes of its files
    locked                  the list is complete
    fail KIND TEXT          why it failed; KIND is one of KINDS
    done
"""

import contextlib
import glob
import hashlib
import html.parser
import json
import os
import platform
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile

KINDS = ("index", "missing", "conflict", "wheel", "python", "hash", "disk", "input", "install", "import")
LINE = 900
SECONDS = 60


def tell(word, text=""):
    text = "".join(c if c.isprintable() else " " for c in text).strip()
    sys.stdout.write(("%s %s" % (word, text)).strip()[:LINE] + "\n")
    sys.stdout.flush()


class Failed(Exception):
    def __init__(self, kind, text):
        assert kind in KINDS
        self.kind = kind
        super().__init__(text)


# --- the index: PEP 503 pages ---

class Links(html.parser.HTMLParser):
    def __init__(self, base):
        super().__init__()
        self.base, self.links = base, []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag == "a" and found.get("href"):
            self.links.append((urllib.parse.urljoin(self.base, found["href"]), found.get("data-requires-python") or "", "data-yanked" in found))


def fetch(url, place=None):
    request = urllib.request.Request(url, headers={"Accept": "text/html", "User-Agent": "carrel-layer"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            if place is None:
                return answer.geturl(), answer.read()
            with open(place, "wb") as file:
                shutil.copyfileobj(answer, file)
            return answer.geturl(), b""
    except urllib.error.HTTPError as e:
        raise Failed("index", "the index answers %d to %s" % (e.code, url)) from None
    except (OSError, ValueError) as e:
        raise Failed("index", "the index cannot be reached at %s: %s" % (url, getattr(e, "reason", e))) from None


def links_of(index, name):
    url, page = fetch("%s/%s/" % (index.rstrip("/"), name))
    links = Links(url)
    links.feed(page.decode("utf-8", "replace"))
    return links.links


def look(index):
    """As rules of the network: NAME:PORT."""
    hosts = set()
    for url, _, _ in [(index, "", False), *links_of(index, "pip")]:
        parts = urllib.parse.urlsplit(url)
        if parts.hostname:
            hosts.add("%s:%d" % ("[%s]" % parts.hostname if ":" in parts.hostname else parts.hostname, parts.port or (80 if parts.scheme == "http" else 443)))
    for host in sorted(hosts):
        tell("host", host)


def newest_wheel(index, name, tag):
    """The address and the digest of the newest wheel of a package whose file name ends in the tag."""
    best = None
    for url, _, yanked in links_of(index, name):
        parts = urllib.parse.urlsplit(url)
        file = parts.path.rsplit("/", 1)[-1]
        found = re.match(r"[^-]+-(\d+(?:\.\d+)*)-(.*)\.whl$", file)
        if found and not yanked and re.search(tag, found[2]):
            version = tuple(int(n) for n in found[1].split("."))
            if best is None or version > best[0]:
                best = version, url.split("#")[0], dict(urllib.parse.parse_qsl(parts.fragment)).get("sha256")
    if best is None:
        raise Failed("index", "the index has no wheel of %s for this machine" % name)
    return best[1], best[2]


def unpack_wheel(index, name, tag, place):
    url, digest = newest_wheel(index, name, tag)
    file = os.path.join(place, url.rsplit("/", 1)[-1])
    fetch(url, file)
    if digest:
        with open(file, "rb") as wheel:
            if hashlib.sha256(wheel.read()).hexdigest() != digest:
                raise Failed("index", "%s is not the file that the index describes" % url)
    with zipfile.ZipFile(file) as wheel:
        wheel.extractall(os.path.join(place, name))
    os.unlink(file)
    return os.path.join(place, name)


# --- lists of requirements ---

NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
PIN = r"(%s)==([^\s;\\]+)" % NAME
HASH = r"--hash=(\S+)"


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def hashes_of(lines):
    """The hashes of each package, by its name."""
    found = {}
    for line in lines:
        found.setdefault(plain(re.match(NAME, line)[0]), set()).update(re.findall(HASH, line))
    return found


def read_lock(text):
    """NAME==VERSION and the hashes of each line."""
    lines = text.replace("\\\n", " ").splitlines()
    return [(found[0], sorted(re.findall(HASH, line))) for line in lines for found in [re.match(PIN, line)] if found]


def write_lines(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)


# --- explanations ---

def versions_of(tags):
    """"3.7, 3.10" of "`cp37m`, `cp310`"; the tags themselves if they name no version."""
    found = re.findall(r"\bcp([23])(\d+)", tags)
    return "Python " + ", ".join("%s.%s" % one for one in found) if found else re.sub("`", "", tags)


def other_python(text):
    """What uv or pip says if a package is there, and not for this interpreter; None: something else is wrong."""
    none = "%%s has no version for Python %d.%d that fits this list, " % sys.version_info[:2]
    wheels = re.search(r"only found wheels for `([^`]+)` \S+ with the following Python (?:ABI|version) tags?: ((?:`\w+`(?:, )?)+)", text)
    if wheels:
        return (none + "only for %s") % (wheels[1], versions_of(wheels[2]))
    needs = re.search(r"([A-Za-z0-9._-]+?)(?:[<>=!~]\S*)? (?:requires|depends on) Python ?([<>=!~][0-9.<>=!~,*]*)", text)
    if needs:
        return (none + "which needs Python%s") % (needs[1], needs[2].rstrip(",."))
    needs = re.search(r"different python version: .*Requires-Python ([^;]+?)(?:;| ERROR).* satisfies the requirement ([A-Za-z0-9._-]+)", text)
    return (none + "which needs Python%s") % (needs[2], needs[1]) if needs else None


# --- processes that a build leaves behind ---

PR_SET_CHILD_SUBREAPER = 36


class Orphans:
    """Ends processes whose parent has ended: they hold the pipes of the build that they come from, and the installer waits for those. They become ours."""

    def __init__(self):
        self.lock, self.own = threading.Lock(), None
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        threading.Thread(target=self.watch, daemon=True).start()

    def start(self, *arguments, **options):
        with self.lock:         # else the new child could be taken for an orphan
            process = subprocess.Popen(*arguments, **options)
            self.own = process.pid
            return process

    def watch(self):
        while True:
            time.sleep(0.1)
            with self.lock:
                for pid in self.children():
                    if pid != self.own:
                        with contextlib.suppress(OSError):
                            os.kill(pid, signal.SIGKILL)
                            os.waitpid(pid, os.WNOHANG)

    @staticmethod
    def children():
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open("/proc/%s/stat" % name, encoding="utf-8", errors="replace") as file:
                    if int(file.read().rsplit(")", 1)[1].split()[1]) == os.getpid():
                        yield int(name)


# --- the two installers ---

class Installer:
    def __init__(self, index, place, work, may_build):
        self.index, self.place, self.work, self.may_build = index, place, work, may_build
        self.python = os.path.join(place, "bin", "python")
        self.lock = os.path.join(work, "lock.txt")

    def only(self):
        return [] if self.may_build else ["--only-binary", ":all:"]

    def write(self, name, lines):
        path = os.path.join(self.work, name)
        write_lines(path, lines)
        return path

    def resolve(self, asked, also):
        """The lock, as pairs of NAME==VERSION and hashes."""
        hashes = hashes_of(asked)
        self.make_environment()
        if not any(hashes.values()):
            return self.resolve_freely(self.write("requirements.txt", asked + also))
        pins = self.resolve_hashed(self.write("hashed.txt", asked))
        own = [(pin, sorted(hashes[plain(pin.split("==")[0])])) for pin in pins]
        limits = self.write("limits.txt", pins)
        others = self.resolve_freely(self.write("also.txt", also), "--constraint", limits, "--only-binary", ":all:") if also else []
        return own + [one for one in others if plain(one[0].split("==")[0]) not in hashes]

    def run(self, words, show=True):
        """Its output; its standard error is progress, and the reason if it fails."""
        environment = {**os.environ, **self.environment(), "TMPDIR": self.work, "HOME": self.work, "NO_COLOR": "1"}
        process = self.orphans.start(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
                                     encoding="utf-8", errors="replace")
        said = []
        for line in process.stdout:
            line = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line).rstrip()
            said.append(line)
            del said[:-200]
            if show and line.strip():
                tell("say", line)
        if process.wait() != 0:
            raise Failed(*self.explain(said, process.returncode))
        return said

    def explain(self, said, status):
        # What comes before it is progress.
        first = next((i for i, line in enumerate(said) if re.match(r"\s*(error:|ERROR:|×|Hash-checking )", line)), 0)
        said = said[first:]
        text = re.sub(r"\s+", " ", " ".join(re.sub(r"^\s*(error:|ERROR:|×|╰─▶|├─▶|│)\s*", "", line) for line in said if line.strip()))
        # uv's words around the reason itself are the same for all.
        short = re.sub(r"^No solution found when resolving dependencies:?\s*(cause:)?\s*", "", text)
        short = re.sub(r",? we can conclude that your requirements are unsatisfiable\.?", "", short)
        other = other_python(text)
        if other and (self.may_build or "ABI tag" not in text):     # there may be a source
            return "python", other
        for kind, words in (("disk", "No space left on device|os error 28|Disk quota exceeded"),
                            # The right hash may be that of a source.
                            ("hash" if self.may_build else "wheel", "Hash mismatch|DO NOT MATCH THE HASHES"),
                            ("hash", "require-hashes|Hash-checking is required"),
                            ("wheel", "no usable wheels|has no wheels|only-binary|no-binary|building source distributions is disabled|no-build"),
                            ("missing", "not found in the package registry|was not found|No matching distribution found|there (are|is) no versions? of"),
                            ("index", "Failed to fetch|dns error|error sending request|Connection refused|Max retries exceeded|timed out"),
                            ("conflict", "unsatisfiable|conflict|ResolutionImpossible")):
            if re.search(words, text):
                return kind, short
        return "install", short or "%s ended with status %d" % (type(self).__name__, status)

    def keep_lock(self, lock):
        """Writes it for install(), and prints it."""
        write_lines(self.lock, (" ".join([pin, *("--hash=" + h for h in hashes)]) for pin, hashes in lock))
        for pin, hashes in sorted(lock):
            tell("lock", "%s %s" % (pin, hashlib.sha256(" ".join(hashes).encode()).hexdigest()))
        tell("locked")


def host_uv():
    """Not the one that every box has, which starts another."""
    return shutil.which("uv", path=":".join(p for p in os.environ.get("PATH", "").split(":") if not p.startswith("/run/carrel/")))


class Uv(Installer):
    """uv, from the box or from the index."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.uv = host_uv()
        if not self.uv:
            tell("say", "fetching uv")
            self.uv = glob.glob(os.path.join(unpack_wheel(self.index, "uv", r"manylinux\S*%s" % platform.machine(), self.work), "*.data/scripts/uv"))[0]
            os.chmod(self.uv, 0o755)

    def environment(self):
        return {"UV_CACHE_DIR": os.path.join(self.work, "cache"), "UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_SYSTEM_CERTS": "1",
                "UV_DEFAULT_INDEX": self.index, "UV_LINK_MODE": "hardlink", "UV_NO_PROGRESS": "1"}

    def make_environment(self):
        self.run([self.uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, self.place])

    def resolve_freely(self, requirements, *words):
        self.run([self.uv, "pip", "compile", "--quiet", "--python", self.python, "--no-header", "--no-annotate", "--generate-hashes", *self.only(), *words,
                  "--output-file", self.lock, requirements], show=False)
        with open(self.lock, encoding="utf-8") as file:
            return read_lock(file.read())

    def resolve_hashed(self, requirements):
        """What would be installed: `compile` does not look at hashes."""
        said = self.run([self.uv, "pip", "install", "--dry-run", "--require-hashes", "--python", self.python, *self.only(), "--requirements", requirements],
                        show=False)
        return [found[1] for line in said for found in [re.match(r" \+ (%s==\S+)$" % NAME, line)] if found]

    def install(self):
        self.run([self.uv, "pip", "install", "--require-hashes", "--python", self.python, "--compile-bytecode", *self.only(), "--requirements", self.lock])


class Pip(Installer):
    """pip from the index: where the index has no uv."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        tell("say", "fetching pip")
        self.pip = os.path.join(unpack_wheel(self.index, "pip", "none-any", self.work), "pip")

    def environment(self):
        parts = urllib.parse.urlsplit(self.index)
        trusted = {"PIP_TRUSTED_HOST": parts.netloc} if parts.scheme == "http" else {}      # as uv, it takes the index that was named
        return {**trusted, "PIP_INDEX_URL": self.index, "PIP_CONFIG_FILE": os.devnull, "PIP_CACHE_DIR": os.path.join(self.work, "cache"),
                "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_PROGRESS_BAR": "off"}

    def make_environment(self):
        import venv     # Debian's python3 alone has none; then uv is there
        venv.EnvBuilder(symlinks=True).create(self.place)

    def pip_install(self, *words):
        return self.run([sys.executable, "-I", self.pip, "--python", self.python, "install", *words])

    def resolve_freely(self, requirements, *words):
        report = os.path.join(self.work, "report.json")
        self.pip_install("--dry-run", "--quiet", "--report", report, *self.only(), *words, "--requirement", requirements)
        with open(report, encoding="utf-8") as file:
            return [("%s==%s" % (one["metadata"]["name"], one["metadata"]["version"]),
                     ["%s:%s" % h for h in one["download_info"]["archive_info"]["hashes"].items()]) for one in json.load(file)["install"]]

    def resolve_hashed(self, requirements):
        return [pin for pin, _ in self.resolve_freely(requirements, "--require-hashes")]

    def install(self):
        self.pip_install("--compile", "--require-hashes", *self.only(), "--requirement", self.lock)


def choose(*arguments):
    try:
        return Uv(*arguments)
    except Failed as e:
        if not host_uv() and "no wheel of uv" not in str(e) and "answers 404" not in str(e):
            raise
        return Pip(*arguments)


def open_to_all(place):
    """In boxes the layer's files belong to another user."""
    for folder, _, names in os.walk(place):
        for path in [folder, *(os.path.join(folder, name) for name in names)]:
            mode = os.lstat(path).st_mode
            wanted = mode | 0o444 | (0o111 if stat.S_ISDIR(mode) or mode & 0o100 else 0)
            if not stat.S_ISLNK(mode) and mode != wanted:
                os.chmod(path, stat.S_IMODE(wanted))


def build(index, place, may_build):
    work = os.path.join(place, ".work")
    shutil.rmtree(work, ignore_errors=True)
    os.mkdir(work)
    lines = sys.stdin.read().splitlines()
    it = choose(index, place, work, may_build)
    it.orphans = Orphans()      # one: a second would take the first one's child for an orphan
    write_lines(it.lock, (line[5:] for line in lines if line.startswith("keep ")))      # uv prefers what it finds there
    tell("say", "resolving")
    asked = [line for line in lines if not line.startswith(("keep ", "also "))]
    it.keep_lock(it.resolve(asked, [line[5:] for line in lines if line.startswith("also ")]))
    tell("say", "installing")
    it.install()
    shutil.rmtree(work)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(place, ".lock"))     # uv leaves it open to everybody
    open_to_all(place)
    tell("done")


def try_it(code, place):
    done = subprocess.run([os.path.join(place, "bin", "python"), "-I", "-B", "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
    if done.returncode != 0:
        raise Failed("import", (done.stderr.strip().splitlines() or ["status %d" % done.returncode])[-1])
    tell("done")


def main():
    try:
        if sys.argv[1] == "look":
            look(sys.argv[2])
        elif sys.argv[1] == "try":
            try_it(sys.argv[2], sys.argv[3])
        else:
            build(sys.argv[2], sys.argv[3], "--build" in sys.argv[4:])
    except Failed as e:
        tell("fail", "%s %s" % (e.kind, e))
        sys.exit(1)
    except OSError as e:
        tell("fail", "%s %s" % ("disk" if e.errno in (28, 122) else "install", e))
        sys.exit(1)


if __name__ == "__main__":
    main()

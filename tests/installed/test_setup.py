"""carrel setup: an environment for kernels, made once, of wheels only; and how other commands come to it."""
import contextlib
import os
import pathlib
import pty
import signal
import subprocess
import tarfile
import time

import pytest
from conftest import DEBIAN, WAIT, make_wheel
from support import REPOSITORY
from support.processes import children
from support.waiting import wait_for
from test_places import end, serve

OFFER = "'carrel setup' makes one, once"
NOWHERE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/nonexistent"}


def elsewhere(someone, name):
    """A place in which nobody has set up anything."""
    return str(someone.owns(someone.home / name) / "python")


def test_without_one_nothing_is_downloaded_and_the_fix_is_told(someone, prefix):
    place = elsewhere(someone, "untouched")
    done = someone.run(prefix / "bin/carrel", "py", "-c", "1", CARREL_ENVIRONMENT=place)
    assert done.returncode == 125 and OFFER in done.stderr and "pip install" not in done.stderr
    assert not pathlib.Path(place, "bin").exists()


def test_kernels_are_of_what_it_made(someone, prefix, made):
    said = someone.do(prefix / "bin/carrel", "py", "-c", "import sys, numpy, pandas, matplotlib; print(sys.prefix)")
    assert said == f"{made}\n"


def test_it_is_made_once(someone, prefix, made):
    assert someone.run(prefix / "bin/carrel", "setup", **NOWHERE).stdout == f"{made}/bin/python\n"


def test_what_fails_is_told_and_nothing_is_lost(someone, prefix):
    done = someone.run(prefix / "bin/carrel", "setup", CARREL_ENVIRONMENT=elsewhere(someone, "failed"), **NOWHERE)
    assert done.returncode == 125 and "could not be installed" in done.stderr and "goes on" in done.stderr


def test_its_progress_is_shown_and_two_at_once_make_one(someone, prefix, names_only):
    place = elsewhere(someone, "both")
    both = [someone.start(prefix / "bin/carrel", "setup", CARREL_ENVIRONMENT=place, **names_only) for _ in range(2)]
    said = [p.communicate(timeout=WAIT)[0] for p in both]
    assert [p.returncode for p in both] == [0, 0], said
    assert [text.count("an environment of /usr/bin/python3") for text in sorted(said, key=len)] == [0, 1], said
    for words in ("setting up a Python for kernels", "installing\n", "trying it\n"):
        assert words in max(said, key=len)


def test_doctor_has_a_row_for_kernels(someone, prefix, made):
    def row(**variables):
        text = someone.run(prefix / "bin/carrel", "doctor", **variables).stdout
        return text[text.index("Python kernels"):].split("\n\n")[0]
    assert f"{made}/bin/python" in row()
    assert "fix:   carrel setup" in row(CARREL_ENVIRONMENT=elsewhere(someone, "nothing"))


def test_a_box_that_was_there_before_gets_its_kernel(someone, prefix):
    """The server runs, the box was made; then somebody sets up, whose umask would keep the user of a box out."""
    place = elsewhere(someone, "later")
    carrel = prefix / "bin/carrel"
    process, url = serve(someone, carrel, "--set", "pool.size=off", CARREL_ENVIRONMENT=place)
    try:
        ask = {"CARREL_URL": url, "CARREL_ENVIRONMENT": place}
        someone.do(carrel, "create", "--name", "job", "--template", "python", **ask)
        refused = someone.run(carrel, "repl", "job", stdin="1 + 1\n", **ask)
        assert refused.returncode == 125 and OFFER in refused.stderr
        refused = someone.run(carrel, "service", "create", "tools", REPOSITORY / "examples/scoped-sandbox-intro/interface.py", **ask)
        assert refused.returncode != 0 and OFFER in refused.stderr
        done = someone.run("/bin/sh", "-c", f"umask 077; exec {carrel} repl --yes job", stdin="import sys; print(sys.prefix)\n", **ask)
        assert done.stdout == f"{place}\n", done.stderr
    finally:
        end(process)


def answer(someone, program, reply, **variables):
    """What `carrel py` says on a terminal, to somebody who replies."""
    ours, theirs = pty.openpty()
    if someone.name:
        os.chown(os.ttyname(theirs), int(subprocess.check_output(["id", "-u", someone.name])), -1)
    process = subprocess.Popen(someone.command(program, "py", "-c", "6 * 7"), stdin=theirs, stdout=theirs, stderr=theirs, cwd=someone.home,
                               env={**someone.environment, **variables})
    os.close(theirs)
    said, asked, deadline = "", False, time.monotonic() + WAIT
    while time.monotonic() < deadline:
        try:
            piece = os.read(ours, 4096)
        except OSError:
            break
        said += piece.decode()
        if not asked and "[Y/n]" in said:
            asked = True
            os.write(ours, reply.encode() + b"\n")
    os.close(ours)
    return process.wait(60), said


def test_on_a_terminal_it_is_offered(someone, prefix, names_only):
    place = elsewhere(someone, "asked")
    status, said = answer(someone, prefix / "bin/carrel", "n", CARREL_ENVIRONMENT=place)
    assert status == 125 and "Make it now" in said and not pathlib.Path(place, "bin").exists()
    answer(someone, prefix / "bin/carrel", "y", CARREL_ENVIRONMENT=place, **names_only)
    assert pathlib.Path(place, "carrel-setup").exists()


def test_one_that_was_killed_is_gone_over_again(someone, prefix, names_only):
    place = elsewhere(someone, "killed")
    first = someone.start(prefix / "bin/carrel", "setup", CARREL_ENVIRONMENT=place, **names_only)
    wait_for(lambda: pathlib.Path(place, "pyvenv.cfg").exists(), "it has begun")
    for pid in [*descendants(first.pid), first.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    first.communicate(timeout=60)       # all that it started has our pipe
    refused = someone.run(prefix / "bin/carrel", "py", "-c", "1", CARREL_ENVIRONMENT=place)
    assert OFFER in refused.stderr
    someone.do(prefix / "bin/carrel", "setup", CARREL_ENVIRONMENT=place, **names_only)
    assert pathlib.Path(place, "carrel-setup").exists()


def descendants(pid):
    found = []
    for child in children(pid):
        found += [*descendants(child), child]
    return found


def test_only_wheels_are_installed(someone, prefix, made, wheelhouse):
    """What has only its source would run a program of its own while it is installed."""
    folder = someone.owns(someone.home / "sources")
    mark = folder / "has-run"
    source = folder / "setup.py"
    source.write_text(f"open({str(mark)!r}, 'w')\nfrom setuptools import setup\nsetup(name='nasty', version='1.0')\n")
    with tarfile.open(folder / "nasty-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, "nasty-1.0/setup.py")
    done = someone.run(prefix / "bin/carrel", "setup", "nasty", PIP_FIND_LINKS=f"{wheelhouse} {folder}")
    assert done.returncode == 125 and not mark.exists()
    assert someone.do(prefix / "bin/carrel", "py", "-c", "print(6 * 7)") == "42\n"


# ---- what packages bring ----

def run_at_start(mark):
    """What an interpreter runs when it starts: a .pth file writes a file."""
    return {"nasty.pth": f"import os; open({str(mark)!r}, 'a').write(str(os.getuid()) + '\\n')\n"}


def test_nothing_of_a_package_runs_outside_of_a_box(someone, prefix, names_only):
    """Neither when it is set up nor ever after, whoever looks at the environment."""
    folder, place, carrel = someone.owns(someone.home / "nasty"), elsewhere(someone, "hostile"), prefix / "bin/carrel"
    mark = folder / "has-run"
    wheel = make_wheel(folder, "nasty", {"nasty.py": "", **run_at_start(mark)})
    other = make_wheel(folder, "other", {"other.py": ""})
    ask = {"CARREL_ENVIRONMENT": place, **names_only}
    someone.do(carrel, "setup", wheel, **ask)
    assert list(pathlib.Path(place).rglob("nasty.pth"))
    for words in (["setup", wheel], ["setup", "--upgrade", other], ["setup"], ["doctor"], ["py", "-c", "1"]):
        someone.run(carrel, *words, **ask)
        assert not mark.exists(), words
    inside = someone.owns(someone.home / "itself")
    (inside / "link").symlink_to(place)
    for python, where in ((f"{place}/bin/python", place + "/"), ("python3", place), (f"{inside}/link/bin/python", place)):
        done = someone.run(carrel, "setup", "--python", python, other, **{**ask, "CARREL_ENVIRONMENT": where, "PATH": f"{place}/bin:{someone.environment['PATH']}"})
        assert done.returncode == 125 and "of the environment itself" in done.stderr and not mark.exists(), done.stderr
    someone.run(carrel, "kernelspec", "install", "--prefix", inside, **ask)
    assert not mark.exists()
    assert list(pathlib.Path(place).rglob("other.py"))
    # It does run where it may: in a box, which cannot write there.
    tried = someone.run(carrel, "run", "--mount", f"{place}:{place}", "--", f"{place}/bin/python", "-c", "1")
    assert "nasty.pth" in tried.stderr and not mark.exists(), tried.stderr


def test_what_cannot_be_imported_is_told(someone, prefix, names_only):
    folder, place = someone.owns(someone.home / "broken"), elsewhere(someone, "broken-one")
    wheel = make_wheel(folder, "pandas", {"pandas/__init__.py": "import a_library_that_is_not_there\n"}, version="100.0")
    done = someone.run(prefix / "bin/carrel", "setup", wheel, CARREL_ENVIRONMENT=place, **names_only)
    assert done.returncode == 125 and "No module named 'a_library_that_is_not_there'" in done.stderr and "cannot be imported" in done.stderr, done.stderr
    assert not pathlib.Path(place, "carrel-setup").exists()
    someone.do(prefix / "bin/carrel", "setup", CARREL_ENVIRONMENT=place, **names_only)
    assert someone.run(prefix / "bin/carrel", "setup", wheel, CARREL_ENVIRONMENT=place, **names_only).returncode == 125
    assert not pathlib.Path(place, "carrel-setup").exists()


@pytest.mark.parametrize("what", ["a folder", "a source", "a wheel that wants one", "a link"])
def test_nothing_is_built_outside_of_a_box(someone, prefix, names_only, what):
    """Only what is looked for in an index is a wheel because pip is told so."""
    folder = someone.owns(someone.home / what.replace(" ", "-"))
    mark = folder / "has-run"
    source = someone.owns(folder / "nasty-1.0")
    (source / "setup.py").write_text(f"open({str(mark)!r}, 'w')\nfrom setuptools import setup\nsetup(name='nasty', version='1.0')\n")
    with tarfile.open(folder / "nasty-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, "nasty-1.0")
    wants = {"a folder": source, "a source": folder / "nasty-1.0.tar.gz", "a link": f"nasty @ file://{folder}/nasty-1.0.tar.gz",
             "a wheel that wants one": make_wheel(folder, "wants", {"wants.py": ""}, f"nasty @ file://{folder}/nasty-1.0.tar.gz")}[what]
    done = someone.run(prefix / "bin/carrel", "setup", wants, CARREL_ENVIRONMENT=elsewhere(someone, f"built-{what.replace(' ', '-')}"), **names_only)
    assert done.returncode == 125 and not mark.exists(), done.stderr
    assert ("nothing is built" if "wants" in what else "nor a wheel") in done.stderr, done.stderr


def test_packages_are_added_and_replaced(someone, prefix, names_only):
    """Another version takes the place of one; scripts are the environment's; what makes it an environment stays."""
    folder, place, carrel = someone.owns(someone.home / "parts"), elsewhere(someone, "parts-of"), prefix / "bin/carrel"
    ask = {"CARREL_ENVIRONMENT": place, **names_only}
    script = {"part-1.0.dist-info/entry_points.txt": "[console_scripts]\npart = part:main\n", "part-1.0.data/data/share/part.txt": "data",
              "part-1.0.data/scripts/python3": "#!/bin/false\n", "part-1.0.data/data/pyvenv.cfg": "home = /nowhere\n"}
    main = "import sys\ndef main(): print(sys.prefix)\n"
    someone.do(carrel, "setup", make_wheel(folder, "part", {"part.py": main, "part_old.py": "", **script}, version="1.0"), **ask)
    at = pathlib.Path(place)
    site = next(at.glob("lib/python3*/site-packages"))
    assert (at / "share/part.txt").read_text() == "data" and (site / "part_old.py").exists()
    assert (at / "bin/python3").is_symlink() and "/nowhere" not in (at / "pyvenv.cfg").read_text()
    assert someone.do(carrel, "run", "--mount", f"{place}:{place}", "--", f"{place}/bin/part") == f"{place}\n"
    before = {p.name for p in site.glob("*.dist-info")}
    someone.do(carrel, "setup", make_wheel(folder, "part", {"part.py": ""}, version="2.0"), **ask)
    assert {p.name for p in site.glob("*.dist-info")} == before - {"part-1.0.dist-info"} | {"part-2.0.dist-info"}
    assert not (site / "part_old.py").exists() and not (at / "bin/part").exists() and not (at / "share/part.txt").exists() and not (at / ".new").exists()
    assert (site / "part.py").read_text() == "" and (site / "numpy/__init__.py").exists()


def test_what_is_there_changes_only_if_it_must(someone, prefix, names_only):
    folder, place, carrel = someone.owns(someone.home / "newer"), elsewhere(someone, "kept"), prefix / "bin/carrel"
    ask = {"CARREL_ENVIRONMENT": place, **names_only, "PIP_FIND_LINKS": names_only["PIP_FIND_LINKS"] + f" {folder}"}
    someone.do(carrel, "setup", **ask)
    site = next(pathlib.Path(place).glob("lib/python3*/site-packages"))
    make_wheel(folder, "numpy", {"numpy/__init__.py": ""}, version="100.0")
    content = make_wheel(folder, "content", {"content.py": ""}, "numpy")
    someone.do(carrel, "setup", content, **ask)
    assert (site / "numpy-99.0.dist-info").exists() and (site / "content.py").exists()
    make_wheel(folder, "pandas", {"pandas/__init__.py": ""}, "numpy<100", version="98.0")
    make_wheel(folder, "pandas", {"pandas/__init__.py": ""}, "numpy>=100", version="101.0")
    someone.do(carrel, "setup", "pandas>100", **ask)        # numpy is not named, and must change with it
    assert (site / "numpy-100.0.dist-info").exists() and (site / "pandas-101.0.dist-info").exists()
    someone.do(carrel, "setup", "numpy<100", **ask)         # nor is pandas, which must go back
    assert (site / "numpy-99.0.dist-info").exists() and (site / "pandas-99.0.dist-info").exists() and (site / "content.py").exists()
    someone.do(carrel, "setup", make_wheel(folder, "greedy", {"greedy.py": ""}, "numpy>99"), **ask)
    assert [p.name for p in site.glob("numpy-*")] == ["numpy-100.0.dist-info"] and (site / "greedy.py").exists() and (site / "content.py").exists()


def test_a_folder_with_other_things_in_it_is_left_alone(someone, prefix):
    folder = someone.owns(someone.home / "precious")
    (folder / "thesis").write_text("all of it")
    done = someone.run(prefix / "bin/carrel", "setup", CARREL_ENVIRONMENT=str(folder))
    assert done.returncode == 125 and (folder / "thesis").read_text() == "all of it" and not (folder / "bin").exists()


def test_debian_without_ensurepip(someone, prefix, names_only, tmp_path):
    """Its python3 comes without python3-venv: then its pip installs; if there is none either, the package is named."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it hides a folder")
    library = next(p for p in pathlib.Path("/usr/lib").glob("python3.*/ensurepip")).parent
    empty = tmp_path / "empty"
    empty.mkdir()
    place = elsewhere(someone, "bare")

    def hidden(*folders):
        hide = " && ".join(f"mount --bind {empty} {f}" for f in folders)
        inner = " ".join(someone.command("env", f"CARREL_ENVIRONMENT={place}", prefix / "bin/carrel", "setup"))
        return subprocess.run(["unshare", "--mount", "/bin/sh", "-c", f"{hide} && exec {inner}"], capture_output=True, text=True, timeout=WAIT,
                              cwd=someone.home, env={**someone.environment, **names_only})
    none = hidden(library / "ensurepip", "/usr/lib/python3/dist-packages/pip")
    assert none.returncode == 125 and "apt-get install python3-venv" in none.stderr, none.stderr
    done = hidden(library / "ensurepip")
    assert (done.returncode, done.stdout) == (0, f"{place}/bin/python\n"), done.stderr


# ---- from Python ----

RUN = "import carrel\nwith carrel.Box() as box:\n    print(box.run('import sys; print(sys.prefix)').stdout, end='')\n"


def sdk(prefix):
    return {"PYTHONPATH": str(REPOSITORY / "sdk/python"), "CARREL_BIN": str(prefix / "bin/carrel")}


def test_a_program_of_debians_python_has_its_kernels(someone, prefix, made):
    assert someone.do(DEBIAN, "-B", "-c", RUN, **sdk(prefix)) == f"{made}\n"


def test_a_program_is_told_how_to_get_one(someone, prefix):
    done = someone.run(DEBIAN, "-B", "-c", RUN, **sdk(prefix), CARREL_ENVIRONMENT=elsewhere(someone, "none"))
    assert "carrel.errors.KernelUnavailable" in done.stderr and "carrel setup" in done.stderr and "pip install" not in done.stderr


def test_a_program_that_may_makes_one_itself(someone, prefix, names_only):
    place = elsewhere(someone, "itself")
    ask = {**sdk(prefix), **names_only, "CARREL_ENVIRONMENT": place}
    code = "import carrel.local; carrel.local.require_kernel(); print(carrel.local.kernel_settings())"
    assert someone.do(DEBIAN, "-B", "-c", code, **ask, CARREL_SETUP="yes") == "('--set', 'templates.python.zygote=late')\n"
    assert someone.do(DEBIAN, "-B", "-c", "import carrel; print(carrel.setup())", **ask) == f"{place}/bin/python\n"

"""carrel setup: an environment for kernels, made once, in a box; and how other commands come to it."""
import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile

import pytest
from conftest import DEBIAN, WAIT
from support import REPOSITORY
from support.index import wheel
from support.processes import children
from support.waiting import wait_for
from test_places import end, serve

OFFER = "'carrel setup' makes one, once"
NOWHERE = {"UV_DEFAULT_INDEX": "http://index.localhost:9/simple"}
LATER = {"CARREL_SETUP": "no"}


def elsewhere(someone, name):
    """A place without any setup."""
    return str(someone.owns(someone.home / name) / "python")


def asks(index, place):
    return {"UV_DEFAULT_INDEX": index.url, "CARREL_ENVIRONMENT": place}


def versions(place):
    return {p.name[:-len(".dist-info")] for p in pathlib.Path(place).glob("lib/python3*/site-packages/*.dist-info")}


def test_who_does_not_want_it_has_nothing_downloaded_and_the_fix_told(someone, prefix, index):
    place = elsewhere(someone, "untouched")
    index.asked.clear()
    done = someone.run(prefix / "bin/carrel", "py", "-c", "1", CARREL_ENVIRONMENT=place, **LATER)
    assert done.returncode == 125 and OFFER in done.stderr and index.asked == []
    assert not pathlib.Path(place, "bin").exists()


def test_kernels_are_of_what_it_made(someone, prefix, made):
    done = someone.run(prefix / "bin/carrel", "py", "-c", "import sys, numpy, pandas, matplotlib; print(sys.prefix)")
    assert (done.stdout, done.stderr) == (f"{made}\n", "")


def test_it_is_made_once(someone, prefix, made):
    assert someone.run(prefix / "bin/carrel", "setup", **NOWHERE).stdout == f"{made}/bin/python\n"


def test_what_fails_is_told_and_leaves_nothing(someone, prefix):
    place = elsewhere(someone, "failed")
    done = someone.run(prefix / "bin/carrel", "setup", CARREL_ENVIRONMENT=place, **NOWHERE)
    assert done.returncode == 125 and "the index of packages does not answer" in done.stderr and list(pathlib.Path(place).iterdir()) == []
    for words, said in ((["../x"], "only names and versions are taken"), (["x @ http://example.org/x"], "no addresses"), (["--python", "2.7"], "python2.7"),
                        (["--index"], "it takes --python and --upgrade"), (["nosuchpackage"], "there is no such package")):
        done = someone.run(prefix / "bin/carrel", "setup", *words, CARREL_ENVIRONMENT=place)
        assert done.returncode == 125 and said in done.stderr and list(pathlib.Path(place).iterdir()) == [], done.stderr


def test_two_at_once_make_one(someone, prefix, names_only):
    both = [someone.start(prefix / "bin/carrel", "setup", **asks(names_only, elsewhere(someone, "both"))) for _ in range(2)]
    said = [p.communicate(timeout=WAIT)[0] for p in both]
    assert [p.returncode for p in both] == [0, 0], said
    assert sorted(text.count("setting up a Python for kernels") for text in said) == [0, 1] and any("is at work; waiting for it" in text for text in said), said


def test_doctor_has_a_row_for_kernels(someone, prefix, made):
    def row(**variables):
        text = someone.run(prefix / "bin/carrel", "doctor", **variables).stdout
        return text[text.index("Python kernels"):].split("\n\n")[0]
    assert f"{made}/bin/python" in row()
    assert "fix:   carrel setup" in row(CARREL_ENVIRONMENT=elsewhere(someone, "nothing"))


def test_a_box_that_was_there_before_gets_its_kernel(someone, prefix):
    """The server runs and the box exists; then a user runs the setup with a umask that would keep the user of a box out."""
    place = elsewhere(someone, "later")
    carrel = prefix / "bin/carrel"
    process, url = serve(someone, carrel, "--set", "pool.size=off", CARREL_ENVIRONMENT=place)
    try:
        ask = {"CARREL_URL": url, "CARREL_ENVIRONMENT": place}
        someone.do(carrel, "create", "--name", "job", "--template", "python", **ask)
        refused = someone.run(carrel, "repl", "job", stdin="1 + 1\n", **ask, **LATER)
        assert refused.returncode == 125 and OFFER in refused.stderr
        refused = someone.run(carrel, "service", "create", "tools", REPOSITORY / "examples/scoped-sandbox-intro/interface.py", **ask)
        assert refused.returncode != 0 and OFFER in refused.stderr
        done = someone.run("/bin/sh", "-c", f"umask 077; exec {carrel} repl job", stdin="import sys; print(sys.prefix)\n", **ask)
        assert done.stdout == f"{place}\n", done.stderr
    finally:
        end(process)


def test_one_that_was_killed_is_gone_over_again(someone, prefix, names_only):
    place = elsewhere(someone, "killed")
    first = someone.start(prefix / "bin/carrel", "setup", **asks(names_only, place))
    wait_for(lambda: pathlib.Path(place, ".new").exists(), "it has begun")
    for pid in [*descendants(first.pid), first.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    first.communicate(timeout=60)       # all that it started has our pipe
    refused = someone.run(prefix / "bin/carrel", "py", "-c", "1", CARREL_ENVIRONMENT=place, **LATER)
    assert OFFER in refused.stderr
    someone.do(prefix / "bin/carrel", "setup", **asks(names_only, place))
    assert pathlib.Path(place, "carrel-setup").exists() and not pathlib.Path(place, ".new").exists()


def descendants(pid):
    found = []
    for child in children(pid):
        found += [*descendants(child), child]
    return found


# ---- what packages bring ----

def test_nothing_of_a_package_runs_outside_of_a_box(someone, prefix, names_only):
    """Neither during the setup nor later, from any use of the environment."""
    folder, place, carrel = someone.owns(someone.home / "nasty"), elsewhere(someone, "hostile"), prefix / "bin/carrel"
    mark = folder / "has-run"
    # What an interpreter runs when it starts; and what would make another interpreter of it, or show boxes another folder of the host.
    evil = {"nasty.pth": f"import os; open({str(mark)!r}, 'a').write(str(os.getuid()) + '\\n')\n", "nasty-1.0.data/data/pyvenv.cfg": "home = /nowhere\n",
            "nasty-1.0.data/scripts/python3": "#!/bin/false\n", "nasty-1.0.data/data/carrel-setup": "python /bin/false\n"}
    names_only.add(wheel("nasty", "1.0", evil))
    names_only.add(wheel("other", "1.0"))
    ask = asks(names_only, place)
    someone.run(carrel, "setup", "nasty", **ask)
    someone.do(carrel, "setup", **ask)
    for words in (["setup", "nasty"], ["setup", "--upgrade", "other"], ["setup"], ["doctor"], ["py", "-c", "1"]):
        someone.run(carrel, *words, **ask)
        assert not mark.exists(), words
    at = pathlib.Path(place)
    assert "other-1.0" in versions(place) and os.readlink(at / "bin/python3") == "python" and "/nowhere" not in (at / "pyvenv.cfg").read_text()
    assert "/bin/false" not in (at / "carrel-setup").read_text()
    inside = someone.owns(someone.home / "itself")
    (inside / "link").symlink_to(place)
    for python in (f"{place}/bin/python", f"{inside}/link/bin/python"):
        done = someone.run(carrel, "setup", "--python", python, "other", **ask)
        assert done.returncode == 125 and "of the environment itself" in done.stderr and not mark.exists(), done.stderr


def test_what_cannot_be_imported_is_told(someone, prefix, names_only):
    place = elsewhere(someone, "broken")
    someone.do(prefix / "bin/carrel", "setup", **asks(names_only, place))
    before = versions(place)
    names_only.add(wheel("pandas", "100.0", {"pandas/__init__.py": "import a_library_that_is_not_there\n"}))
    try:
        done = someone.run(prefix / "bin/carrel", "setup", "pandas==100.0", **asks(names_only, place))
    finally:
        names_only.files.pop("pandas-100.0-py3-none-any.whl")
    assert done.returncode == 125 and "No module named 'a_library_that_is_not_there'" in done.stderr and "cannot be imported" in done.stderr, done.stderr
    assert versions(place) == before and pathlib.Path(place, "carrel-setup").exists()


def test_packages_are_added_and_what_is_there_changes_only_if_it_must(someone, prefix, names_only):
    place, carrel = elsewhere(someone, "kept"), prefix / "bin/carrel"
    ask = asks(names_only, place)
    someone.do(carrel, "setup", **ask)
    for made in (wheel("numpy", "100.0", {"numpy/__init__.py": ""}), wheel("content", "1.0", requires=["numpy"]),
                 wheel("greedy", "1.0", {"greedy-1.0.dist-info/entry_points.txt": "[console_scripts]\ngreedy = greedy:main\n",
                                         "greedy.py": "import sys\ndef main(): print(sys.prefix)\n"}, requires=["numpy>99"])):
        names_only.add(made)
    try:
        someone.do(carrel, "setup", "content", **ask)
        assert {"numpy-99.0", "content-1.0"} <= versions(place)
        someone.do(carrel, "setup", "greedy", **ask)
        assert {"numpy-100.0", "content-1.0", "greedy-1.0"} <= versions(place) and "numpy-99.0" not in versions(place)
        assert someone.do(carrel, "run", "--mount", f"{place}:{place}", "--", f"{place}/bin/greedy") == f"{place}\n"
        refused = someone.run(carrel, "setup", "numpy<100", **ask)
        assert refused.returncode == 125 and "the packages do not go together" in refused.stderr, refused.stderr
        assert {"numpy-100.0", "greedy-1.0"} <= versions(place)
    finally:
        names_only.files.pop("numpy-100.0-py3-none-any.whl")


def test_an_environment_of_an_earlier_version_is_used_and_grows(someone, prefix, names_only):
    """Its mark is empty; its packages are known by their folders."""
    place, carrel = elsewhere(someone, "earlier"), prefix / "bin/carrel"
    names_only.add(wheel("extra", "1.0"))
    someone.do(carrel, "setup", "extra", **asks(names_only, place))
    mark = pathlib.Path(place, "carrel-setup")
    mark.write_text("")
    assert someone.do(carrel, "setup", **asks(names_only, place), **LATER) == f"{place}/bin/python\n" and mark.read_text() == ""
    names_only.add(wheel("later_one", "1.0"))
    someone.do(carrel, "setup", "later-one", **asks(names_only, place))
    assert {"extra-1.0", "later_one-1.0", "numpy-99.0"} <= versions(place) and "asked extra\n" in mark.read_text()


def test_a_folder_with_other_things_in_it_is_left_alone(someone, prefix):
    folder = someone.owns(someone.home / "precious")
    (folder / "thesis").write_text("all of it")
    done = someone.run(prefix / "bin/carrel", "setup", CARREL_ENVIRONMENT=str(folder))
    assert done.returncode == 125 and (folder / "thesis").read_text() == "all of it" and not (folder / "bin").exists()


def test_a_machine_with_python_alone(someone, prefix):
    """A Debian without pip, ensurepip and python3-venv: an overlay of this machine, from which they were removed."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes a mount namespace with another root")
    home = someone.owns(someone.home / "bare")
    inner = " ".join(someone.command("env", *(f"{k}={v}" for k, v in {**someone.environment, "CARREL_ENVIRONMENT": str(home / "python")}.items()),
                                     prefix / "bin/carrel", "py", "-c", "'import numpy, sys; print(sys.prefix)'"))
    with tempfile.TemporaryDirectory() as work:
        script = f"""set -e
mount -t tmpfs tmpfs {work}; cd {work}; mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root; cd root
rm -rf usr/lib/python3*/ensurepip usr/lib/python3*/venv usr/lib/python3/dist-packages/pip* usr/share/python-wheels usr/bin/pip* usr/local/bin/uv
for d in proc sys dev tmp run; do mount --rbind /$d $d; done
mkdir -p old; pivot_root . old; cd /; umount -l /old
! python3 -c 'import pip' 2>/dev/null; ! python3 -c 'import venv' 2>/dev/null
cd {home}; exec {inner}"""
        done = subprocess.run(["unshare", "--mount", "/bin/sh", "-c", script], capture_output=True, text=True, timeout=WAIT, env=someone.environment)
    assert (done.returncode, done.stdout) == (0, f"{home}/python\n"), done.stderr
    assert "setting up a Python for kernels" in done.stderr


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
    place = elsewhere(someone, "by-itself")
    ask = {**sdk(prefix), **asks(names_only, place)}
    code = "import carrel.local; carrel.local.require_kernel(); print(carrel.local.kernel_settings())"
    assert someone.do(DEBIAN, "-B", "-c", code, **ask, CARREL_SETUP="yes") == "('--set', 'templates.python.zygote=late')\n"
    assert someone.do(DEBIAN, "-B", "-c", "import carrel; print(carrel.setup())", **ask) == f"{place}/bin/python\n"

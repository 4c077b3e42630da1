"""Hashes in a requirements file: enforced as pip does, and part of a layer's name; so is the index in the name of a list."""
import os
import pathlib

import pytest

from support.index import Index, sdist, wheel

WRONG = "--hash=sha256:" + "0" * 64
SETUP = "import urllib.request\nurllib.request.urlopen('%s/ran')\nfrom setuptools import setup\nsetup(name='sourced', version='1.0', py_modules=[])\n"


@pytest.fixture(scope="module")
def hashes(index):
    return {"alpha": index.add(wheel("alpha", "1.0")), "beta": index.add(wheel("beta", "1.0")),
            "needs_beta": index.add(wheel("needs_beta", "1.0", requires=["beta"]))}


def run_with(user, lines, code, **variables):
    place = user.home / "hashed.txt"
    place.write_text("\n".join(lines) + "\n")
    place.chmod(0o644)
    return user.run("run", "--requirements", place, "--", "python", "-c", code, **variables)


def test_the_right_hashes_are_taken(user, hashes):
    done = run_with(user, [f"needs_beta==1.0 {hashes['needs_beta']}", f"beta==1.0 \\\n    {WRONG} \\\n    {hashes['beta']}"],
                    "import beta, needs_beta, ipykernel; print(beta.version)")
    assert done.stdout == "1.0\n", done.stderr


@pytest.mark.parametrize("lines, words", [
    ([f"alpha==1.0 {WRONG}"], ["Hash mismatch for `alpha==1.0`"]),
    ([f"alpha==1.0 {WRONG}", "@beta"], ["Hash mismatch for `alpha==1.0`"]),
    (["@alpha", "beta==1.0"], ["must have a hash", "beta"]),
    (["@needs_beta"], ["no trusted hash was provided for: `beta`"]),
    (["alpha --hash=sha256:" + "0" * 64], ["==", "alpha"]),
    (["alpha==1.0 --hash=md5:" + "0" * 32], ["sha256"]),
    (["alpha==1.0 --hash=sha256:12"], ["sha256"]),
])
def test_a_list_whose_hashes_do_not_fit_is_refused_and_leaves_nothing(user, hashes, lines, words):
    lines = [f"{line[1:]}==1.0 {hashes[line[1:]]}" if line[0] == "@" else line for line in lines]
    done = run_with(user, lines, "")
    assert done.returncode == 125 and all(word in done.stderr for word in words), done.stderr
    assert user.parts() == []


def test_a_layer_that_was_made_without_hashes_is_not_taken_for_a_list_with_others(user, hashes):
    user.do("layer", "build", "alpha==1.0")
    done = run_with(user, [f"alpha==1.0 {WRONG}"], "import alpha")
    assert done.returncode == 125 and "Hash mismatch" in done.stderr, done.stderr


def test_a_source_with_the_wrong_hash_is_not_run(user):
    """Not even to find out what it needs: what runs beside the installer can forge all that follows."""
    user.index.files["ran-1.0.html"] = b"answers"
    right = user.index.add(sdist("sourced", "1.0", SETUP % user.index.url))
    done = run_with(user, [f"sourced==1.0 {WRONG}"], "")
    assert done.returncode == 125 and "Hash mismatch for `sourced==1.0`" in done.stderr, done.stderr
    assert "/simple/ran" not in user.index.asked
    good = run_with(user, [f"sourced==1.0 {right}"], "import importlib.metadata as m; print(m.version('sourced'))")
    assert good.stdout == "1.0\n" and "/simple/ran" in user.index.asked, good.stderr


def test_another_index_is_asked_again_and_its_files_make_another_layer(user, hashes):
    other = Index(pathlib.Path(os.environ["CARREL_WHEELHOUSE"]))
    other.add(wheel("alpha", "1.0", {"alpha.py": "version = 'of the other index'\n"}))
    try:
        first = user.do("layer", "build", "alpha==1.0").strip()
        second = user.run("layer", "build", "alpha==1.0", UV_DEFAULT_INDEX=other.url)
        assert second.returncode == 0 and second.stdout.strip() != first, second.stderr
        code = ["run", "--packages", "alpha==1.0", "--", "python", "-c", "import alpha; print(alpha.version)"]
        assert (user.do(*code), user.run(*code, UV_DEFAULT_INDEX=other.url).stdout) == ("1.0\n", "of the other index\n")
    finally:
        other.server.shutdown()


def test_pip_enforces_hashes_too(user, hashes):
    """Where the index has no uv."""
    plain = Index(pathlib.Path(os.environ["CARREL_WHEELHOUSE"]))
    plain.files = {name: data for name, data in [*plain.files.items(), *user.index.files.items()] if not name.startswith("uv-")}
    lines = [f"needs_beta==1.0 {hashes['needs_beta']}", f"beta==1.0 {hashes['beta']}"]
    try:
        done = run_with(user, lines, "import needs_beta, ipykernel; print(needs_beta.version)", UV_DEFAULT_INDEX=plain.url)
        assert done.stdout == "1.0\n", done.stderr
        wrong = run_with(user, [lines[0], f"beta==1.0 {WRONG}"], "", UV_DEFAULT_INDEX=plain.url)
        assert wrong.returncode == 125 and "DO NOT MATCH THE HASHES" in wrong.stderr, wrong.stderr
    finally:
        plain.server.shutdown()

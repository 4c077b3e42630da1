"""tools/run-suites: two suites at once, one line for what passed, all of the output of what failed."""
import pathlib
import re
import subprocess

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/run-suites"
MAKEFILE = """
WORD ?= nothing
# The first of these ends only when the second has begun.
waits: ; @echo early; until test -e begun; do sleep 0.02; done; echo waited
begins: ; @touch begun; echo begun; test ! -e last || exit 1
fails: ; @echo first; echo second >&2; exit 3
last: ; @touch last; echo $(WORD)
"""


def run(folder, *words):
    (folder / "Makefile").write_text(MAKEFILE)
    return subprocess.run([TOOL, folder / "logs", *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=120,
                          env={"PATH": "/usr/bin:/bin", "MAKEFLAGS": " -j2 --jobserver-auth=77,78 -- WORD=handed-on"})


def test_suites_run_beside_each_other_and_the_lone_ones_last(tmp_path):
    r = run(tmp_path, "--alone", "last", "--", "waits", "begins", "last")
    assert r.returncode == 0 and r.stdout.endswith("all suites passed\n"), r.stdout
    assert re.search(r"^waits +\d+ s +\d+ s of processor  waited$", r.stdout, re.M) and re.search(r"^last +\d+ s +\d+ s of processor  handed-on$", r.stdout, re.M)
    assert sorted(line.split("\t")[:2] for line in (tmp_path / "logs/results.tsv").read_text().splitlines()) == [[s, "passed"] for s in ("begins", "last", "waits")]
    assert "early" not in r.stdout and "early" in (tmp_path / "logs/waits.log").read_text()


def test_a_failure_is_shown_whole_and_is_the_verdict(tmp_path):
    r = run(tmp_path, "--alone", "--", "fails", "begins")
    assert r.returncode == 1 and r.stdout.endswith("FAILED: fails\n"), r.stdout
    assert re.search(r"== fails: FAILED after \d+ s\nfirst\nsecond\n", r.stdout) and re.search("^begins ", r.stdout, re.M)

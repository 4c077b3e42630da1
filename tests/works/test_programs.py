"""The table of programs.py: each of them does its work in a plain box. What this machine lacks is left out; in the proof nothing is."""
import os
import pathlib
import re

import pytest

from support.boxes import run_box
from programs import ROWS, TEST

IS_PROOF = bool(os.environ.get("CARREL_LONG"))
VENV = os.environ.get("CARREL_PROGRAMS_VENV") if IS_PROOF else os.environ.get("CARREL_WORKS_VENV", "build/works-venv")
LIMITS = ("--memory", "3G", "--pids", "512", "--disk", "1G")
CHOSEN = [row for row in ROWS if IS_PROOF or row[0] in TEST]


def test_the_table_has_each_program_once_and_the_quick_cut_is_part_of_it():
    names = [row[0] for row in ROWS]
    assert len(set(names)) == len(names) >= 60 and TEST <= set(names) and len(TEST) >= 12


@pytest.mark.parametrize("name,origin,script,wanted", CHOSEN, ids=[row[0] for row in CHOSEN])
def test_it_works(name, origin, script, wanted):
    if origin.startswith("pip "):
        path = pathlib.Path(VENV).resolve()
        command, mounts = [f"{path}/bin/python", "-c", script], [f"{path}:{path}:ro"]
        if "__main__" in script or "ray" in script:      # children of multiprocessing import the file
            command = ["sh", "-c", 'printf "%s" "$1" >main.py && exec "$2" main.py', "sh", script, command[0]]
    else:
        command, mounts = ["sh", "-c", script], []
    result = run_box(command, limits=LIMITS, mounts=mounts, options=("--timeout", "100s"), seconds=120)
    assert re.search(wanted, result.stdout.decode().strip(), re.M) and result.status == 0, result

"""Commands that are forked from a zygote (support.boxes)."""
import os
import pathlib
import pwd
import shutil
import time

import pytest

from support.boxes import ZYGOTE, Run as Started, become_subreaper, command_line, no_box_outlives_its_test, tmp_path  # noqa: F401
from support.processes import descendants
from support.waiting import DEADLINE_S, wait_for

LIMITS = ("--memory", "64M", "--pids", "32", "--disk", "16M")

become_subreaper()


class Run(Started):
    """Output is text."""

    def __init__(self, command, zygote=ZYGOTE, options=LIMITS, user=None, directory=None, **more):
        report = pathlib.Path(directory or "/tmp", f"family-report-{os.getpid()}-{time.monotonic_ns()}")
        report.touch()
        report.chmod(0o666)
        identity = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        if isinstance(user, str):
            try:
                pwd.getpwnam(user)
            except KeyError:
                pytest.skip(f"no user {user} here")
        line = command_line(map(str, command), limits=options, options=("--report", report), zygote=zygote)
        super().__init__(line, report=report, text=True, cwd="/", **identity, **more)

    def find(self, name):
        """The pid of the process of this name below carrel, once it is there."""
        return wait_for(lambda: [pid for pid, its in descendants(self.pid).items() if its == name], lambda: f"no process {name}: {descendants(self.pid)}")[0]


def run(command, **options):
    return Run(command, **options).finish()


def for_everybody(folder, name):
    """A copy of the zygote that every user can run."""
    for parent in [folder, *folder.parents][:-2]:
        if parent.stat().st_uid == os.getuid():
            parent.chmod(parent.stat().st_mode | 0o755)
    return shutil.copy(ZYGOTE, folder / name)


@pytest.fixture
def hostile(tmp_path):
    """A zygote of a bad habit."""
    return lambda habit: for_everybody(tmp_path, f"zygote-{habit}")


@pytest.fixture
def plain(tmp_path):
    return for_everybody(tmp_path, "zygote")

"""Processes, as /proc shows them."""
import os
import pathlib


def processes():
    """Of the whole machine: pid -> (parent, state)."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                rest = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except (OSError, IndexError):
                continue
            found[int(folder.name)] = (int(rest[1]), rest[0])
    return found


def descendants(top=None):
    """pid -> name of every process below this one (or below top). Not from .../children, which may miss some while others end."""
    table = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = pathlib.Path(entry.path, "stat").read_text(errors="replace")     # a name may be anything
            except OSError:
                continue
            parent = int(stat[stat.rindex(")") + 2:].split()[1])
            table.setdefault(parent, []).append((int(entry.name), stat[stat.index("(") + 1:stat.rindex(")")]))
    found, todo = {}, [top or os.getpid()]
    while todo:
        for pid, name in table.get(todo.pop(), []):
            found[pid] = name
            todo.append(pid)
    return found


def with_variable(variable):
    """The pid of a process that was started with this NAME=VALUE."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                return int(folder.name)
        except OSError:
            pass
    raise LookupError(f"no process has {variable}")


def children(pid):
    return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def status_of(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def resident_bytes(pid):
    return int(status_of(pid)["VmRSS"].split()[0]) * 1024


def descriptors(pid):
    """What they lead to; one that is closed meanwhile is left out."""
    found = []
    for n in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{n}"))
        except FileNotFoundError:
            pass
    return found

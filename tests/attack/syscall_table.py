"""The answers of a box to every system call, all arguments -1. `python syscall_table.py` writes the table again, for a review of the difference."""
import pathlib
import re

from harness import bomb, world

TABLE = pathlib.Path(__file__).with_name("syscalls.tsv")
PROFILES = ("standard", "strict")
LAST = 600
HEADER = """# What a box answers to each 64-bit system call with all arguments -1, in the profiles standard and strict; '-' is a number without a call.
# A difference is a change of the surface: review it, then write the table anew with `make attack-syscalls`.
"""


def try_system_calls(entry, last, profile="standard"):
    """number -> outcome. entry: n (64-bit), x (x32), i (32-bit)."""
    result = bomb("system-calls", entry, 0, last, options=("--profile", profile, "--timeout", "100s"))
    assert result.status == 0, result
    rows = [row.split() for row in result.stdout.decode().splitlines() if row[:2] == f"{entry} "]
    assert len(rows) == last + 1, result
    return {int(number): outcome for _, number, outcome in rows}


def is_refused(outcome):
    """By the filter; any other answer came from the kernel behind it."""
    return outcome in ("EPERM", "ENOSYS", "signal-31")


def read_table(profile):
    rows = [row.split("\t") for row in TABLE.read_text().splitlines() if row and not row.startswith("#")]
    return {int(row[0]): (row[1], row[2 + PROFILES.index(profile)]) for row in rows}


def known_names():
    header = pathlib.Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h").read_text()
    names = {int(number): name for name, number in re.findall(r"#define __NR_(\w+) (\d+)", header)}
    # Newer than the headers of the distribution.
    names |= dict(enumerate("fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr "
                            "lsm_list_modules mseal setxattrat getxattrat listxattrat removexattrat open_tree_attr file_getattr file_setattr "
                            "listns".split(), 452))
    return names | {449: "futex_waitv", 450: "set_mempolicy_home_node", 451: "cachestat", 335: "uretprobe", 336: "uprobe"}


def main():
    answers = [try_system_calls("n", LAST, profile) for profile in PROFILES]
    names = known_names()
    rows = [f"{number}\t{names.get(number, '-')}\t{answers[0][number]}\t{answers[1][number]}\n" for number in range(LAST + 1)]
    TABLE.write_text(HEADER + "".join(rows))
    world().close()


if __name__ == "__main__":
    main()

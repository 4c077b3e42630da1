"""Proves the seccomp filters: by simulation, by the kernel, against libseccomp and the checked-in tables, with real programs.

`check.py golden` writes the table of verdicts. The paths come from the environment: GEN, PROBE, REFERENCE (see mk/policy.mk)."""
import errno
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from bpf import ARCH_AARCH64, ARCH_I386, JA, RET, X32, Table, UsesArguments, simulate
from cases import CASES, DIALER, FRONT_NEVER, INIT, INIT_DESK, NEVER, SEALING

HERE = pathlib.Path(__file__).parent
TABLE = HERE.parent.parent / "src/policy/syscalls.tbl"
GEN, PROBE, REFERENCE = (os.environ[name] for name in ("GEN", "PROBE", "REFERENCE"))
NUMBERS = range(601)
PROFILES = ["strict", "standard", "system"]
ZYGOTES = [f"zygote_{profile}" for profile in PROFILES]
FILTERS = PROFILES + ["init", "init_desk", "helper", "front", "dialer", "egress", "broker", "system_sharing"] + ZYGOTES
BAD = 0x00007FFFFFFFF000  # the arguments of `probe verdicts` and `probe calls`
UNSEEN = {335, 336}  # uretprobe, uprobe: the kernel does not ask filters about these


def output(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120, **options).stdout


def read_programs(text):
    programs, code = {}, None
    for line in text.splitlines():
        if line.startswith("filter "):
            code = programs.setdefault(line.split()[1], [])
        else:
            code.append(tuple(map(int, line.split())))
    return programs


table = Table(TABLE.read_text())
programs = read_programs(output(PROBE, "dump"))


def wanted(answers, profile):
    words = answers.split()
    return words[PROFILES.index(profile)] if len(words) > 1 else words[0]


def padded(args):
    return (list(args) + [0] * 6)[:6]


def all_vectors(name):
    """(nr, args) for every call of the filter that has a rule, and for every case."""
    for nr in table.rows:
        cell = table.cell(name, nr)
        if cell[0] == "@":
            for args in table.vectors(cell[1:]):
                yield nr, args
    for call, args, _ in CASES:
        yield table.names[call], padded(args)


def kernel_word(word):
    if word == "0":
        return "nothing"
    return errno.errorcode[int(word)].lower() if word.isdigit() else word


SHORT = {"by arguments": "args", "eprotonosupport": "eprotono", "eafnosupport": "eafno", "enoprotoopt": "enoproto"}


def golden():
    """What every filter does with every call, a column for each; numbers without a name that are treated alike are one row."""
    rows = []

    def row(what, verdict_of):
        verdicts = [verdict_of(name) for name in FILTERS]
        rows.append((what, [SHORT.get(v, v) for v in verdicts]))

    def number(nr):
        def verdict(name):
            try:
                return simulate(programs[name], nr)
            except UsesArguments:
                return "by arguments"
        return verdict

    first = None        # of a run of numbers without a name
    for nr in NUMBERS:
        called = table.rows.get(nr, {}).get("name")
        row(f"{nr:<5} {called or '-'}", number(nr))
        if called:
            first = None
        elif first is not None and rows[-2][1] == rows[-1][1]:
            rows[-2:] = [(f"{first}-{nr} -", rows[-1][1])]
        else:
            first = nr
    for nr in (X32, X32 + 39, X32 + 520, X32 + 600, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        row(f"{nr:#x}", lambda name: simulate(programs[name], nr))
    for what, arch in (("i386", ARCH_I386), ("aarch64", ARCH_AARCH64)):
        row(what, lambda name: "+".join(sorted({simulate(programs[name], nr, [0] * 6, arch) for nr in NUMBERS})))
    for call, args, _ in CASES:
        row(f"{call}({', '.join(f'{a:#x}' for a in args)})", lambda name: simulate(programs[name], table.names[call], padded(args)))
    rows.insert(0, ("", FILTERS))
    widths = [max(len(verdicts[i]) for _, verdicts in rows) for i in range(len(FILTERS))]
    lines = ["# What each filter does with every call. Made by `make seccomp-golden`; a change here is a change of policy."]
    for what, verdicts in rows:
        lines.append(f"{what:60}  {'  '.join(v.ljust(w) for v, w in zip(verdicts, widths))}".rstrip())
    return "\n".join(lines) + "\n"


class Simulation(unittest.TestCase):
    def test_every_number_has_the_verdict_of_the_table(self):
        for name in FILTERS:
            for nr in [*NUMBERS, 1023, 1024, 5000, X32 - 1, X32, X32 + 1, X32 + 520, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, -1]:
                for args in (None, [BAD] * 6):
                    try:
                        expected = table.verdict(name, nr, args)
                    except UsesArguments:
                        self.assertRaises(UsesArguments, simulate, programs[name], nr)
                        continue
                    self.assertEqual(simulate(programs[name], nr, args), expected, (name, nr))

    def test_every_argument_has_the_verdict_of_its_rule(self):
        for name in FILTERS:
            for nr, args in all_vectors(name):
                self.assertEqual(simulate(programs[name], nr, args), table.verdict(name, nr, args), (name, nr, list(map(hex, args))))

    def test_foreign_architectures_are_killed(self):
        for name in FILTERS:
            for arch in (ARCH_I386, ARCH_AARCH64, 0, 0xFFFFFFFF):
                self.assertEqual({simulate(programs[name], nr, [0] * 6, arch) for nr in NUMBERS}, {"kill"})

    def test_no_instruction_is_dead(self):
        for name in FILTERS:
            visited = set()
            simulate(programs[name], 0, arch=ARCH_I386, visited=visited)
            for nr in [*NUMBERS, X32 - 1, X32, -1]:
                try:
                    simulate(programs[name], nr, visited=visited)
                except UsesArguments:
                    pass
            for nr, args in all_vectors(name):
                simulate(programs[name], nr, args, visited=visited)
            self.assertEqual(set(range(len(programs[name]))) - visited, set(), name)


class Intent(unittest.TestCase):
    def test_cases(self):
        for call, args, answers in CASES:
            for profile in PROFILES:
                self.assertEqual(simulate(programs[profile], table.names[call], padded(args)), wanted(answers, profile),
                                 (profile, call, list(map(hex, args))))

    def test_dangerous_calls_are_refused_whatever_the_arguments(self):
        for profile in PROFILES:
            for call in NEVER:
                self.assertIn(simulate(programs[profile], table.names[call]), {"eperm", "enosys", "einval"}, (profile, call))

    def test_sealing_works_under_every_profile(self):
        for profile in PROFILES:
            for call in SEALING:
                self.assertEqual(simulate(programs[profile], table.names[call], [0] * 6), "allow", (profile, call))

    def test_egress_starts_nothing_and_has_no_socket_but_tcp_and_udp(self):
        answer = lambda call, *arguments: simulate(programs["egress"], table.names[call], padded(list(arguments)))
        for call in ("execve", "execveat", "clone", "clone3", "fork", "vfork", "bind", "listen", "ptrace", "setns", "unshare", "mount"):
            self.assertIn(answer(call), {"eperm", "enosys"}, call)
        for family, kind, protocol, wanted in ((2, 1, 0, "allow"), (10, 1, 6, "allow"), (2, 2, 17, "allow"), (1, 1, 0, "eafnosupport"),
                                               (2, 3, 255, "eafnosupport"), (16, 3, 0, "eafnosupport"), (40, 1, 0, "eafnosupport")):
            self.assertEqual(answer("socket", family, kind, protocol), wanted, (family, kind, protocol))
        self.assertEqual(answer("setsockopt", 0, 1, 36), "enoprotoopt")         # SO_MARK
        self.assertEqual(answer("setsockopt", 0, 0, 19), "enoprotoopt")         # IP_TRANSPARENT
        self.assertEqual(answer("splice"), "allow")
        self.assertEqual([answer("socketpair", family, kind) for family, kind in ((1, 1), (1, 2), (1, 5), (2, 1))], ["allow", "eperm", "eperm", "eperm"])

    def test_the_broker_opens_and_starts_nothing(self):
        answer = lambda call, *arguments: simulate(programs["broker"], table.names[call], padded(list(arguments)))
        for call in ("open", "openat", "openat2", "socket", "connect", "bind", "listen", "execve", "clone", "clone3", "fork", "ptrace", "prctl", "kill",
                     "process_vm_readv", "setsockopt", "prlimit64", "ioctl", "io_uring_setup", "splice"):
            self.assertEqual(answer(call), "enosys", call)
        self.assertEqual([answer("mmap", 0, 4096, rights, 0x22) for rights in (1, 3, 4, 5, 7)], ["allow", "allow", "eperm", "eperm", "eperm"])
        self.assertEqual([answer("mprotect", 0, 4096, rights) for rights in (1, 3, 4, 5)], ["allow", "allow", "eperm", "eperm"])
        allowed = [nr for nr in range(5000) if simulate(programs["broker"], nr, [0] * 6) == "allow"]
        self.assertEqual(len(allowed), 38)      # accept4: fronts of a server, at the listener that it inherited

    def test_the_dialer_may_only_connect_and_hand_over(self):
        allowed = [nr for nr in range(5000) if simulate(programs["dialer"], nr) == "allow"]
        self.assertEqual(allowed, sorted(table.names[call] for call in DIALER))
        self.assertEqual({simulate(programs["dialer"], nr) for nr in range(5000)}, {"allow", "kill"})

    def test_the_front_starts_nothing_and_opens_no_socket(self):
        for call in FRONT_NEVER:
            self.assertIn(simulate(programs["front"], table.names[call]), {"eperm", "enosys", "einval"}, call)
        for kind, wanted_answer in ((1, "allow"), (5, "allow"), (0x80801, "allow"), (2, "eperm"), (3, "eperm"), (0x80802, "eperm")):
            self.assertEqual(simulate(programs["front"], table.names["socketpair"], padded([1, kind])), wanted_answer, kind)
        self.assertEqual(simulate(programs["front"], table.names["socketpair"], padded([2, 1])), "eperm")

    def test_init_may_only_reap(self):
        allowed = [nr for nr in range(5000) if simulate(programs["init"], nr) == "allow"]
        self.assertEqual(allowed, sorted(table.names[call] for call in INIT))
        self.assertEqual({simulate(programs["init"], nr) for nr in range(5000)}, {"allow", "kill"})

    def test_init_desk_makes_only_such_sockets_and_answers_only_listeners(self):
        name = "init_desk"
        allowed = [nr for nr in range(5000) if table.cell(name, nr) == "allow"]
        self.assertEqual(allowed, sorted(table.names[call] for call in INIT_DESK))
        for call, args in (("socket", [16, 3, 0]), ("socket", [16, 2 | 0o2004000, 0]), ("setsockopt", [3, 1, 7]), ("setsockopt", [3, 1, 8]),
                           ("ioctl", [3, 0xc0502100]), ("ioctl", [3, 0xc0182101]), ("ioctl", [3, 0x40182103])):
            self.assertEqual(simulate(programs[name], table.names[call], padded(args)), "allow", (call, args))
        for call, args in (("socket", [16, 3, 15]), ("socket", [2, 1, 0]), ("socket", [1, 1, 0]), ("setsockopt", [3, 1, 33]), ("ioctl", [3, 0x5412])):
            self.assertEqual(simulate(programs[name], table.names[call], padded(args)), "kill", (call, args))

    def test_only_init_answers_a_listener(self):
        """A zygote that loads a filter of its own could otherwise let calls pass that it may not make."""
        for name in (*PROFILES, *ZYGOTES, "system_sharing", "helper", "front"):
            for request in (0xc0502100, 0xc0182101, 0x40082102, 0x40182103, 0x40082104):
                self.assertEqual(simulate(programs[name], table.names["ioctl"], padded([3, request])), "enotty", (name, hex(request)))

    def test_each_profile_contains_the_smaller_one(self):
        for small, large in (("strict", "standard"), ("standard", "system")):
            for nr in NUMBERS:
                if table.cell(small, nr) == "allow":
                    self.assertEqual(table.cell(large, nr), "allow", nr)

    def test_a_zygotes_filter_only_adds_what_joining_and_sealing_take(self):
        """It stays on the payloads, so it must allow all calls of their profile, except netfilter's and seccomp's questions."""
        extra = {"clone", "setns", "unshare", "keyctl", "prctl", "seccomp", "capset", "setgroups", "setresgid", "setresuid"}
        fewer = {("setsockopt", 0), ("setsockopt", 41), ("seccomp", 0), ("seccomp", 2), ("seccomp", 3)}
        # A zygote never leaves set-id programs behind, whatever its profile may.
        for profile, zygote in zip(["strict", "standard", "system_sharing"], ZYGOTES):
            for nr, row in table.rows.items():
                name, cells = row["name"], (table.cell(profile, nr), table.cell(zygote, nr))
                for args in [[0] * 6] + [padded(args) for cell in cells if cell[0] == "@" for args in table.vectors(cell[1:])]:
                    mine, its = simulate(programs[profile], nr, args), simulate(programs[zygote], nr, args)
                    with self.subTest(zygote=zygote, call=name, args=args):
                        if mine == "allow" and its != "allow":
                            at = {"seccomp": 0, "setsockopt": 1}.get(name)
                            self.assertIsNotNone(at, "refused to payloads")
                            self.assertIn((name, args[at] & 0xffffffff), fewer)
                        elif mine != "allow" and its == "allow":
                            self.assertIn(name, extra)
            for nstype, wanted in ((0, "eperm"), (0x10000000, "allow"), (0x02000000, "eperm"), (0x30000000, "eperm")):
                self.assertEqual(simulate(programs[zygote], table.names["setns"], padded([3, nstype])), wanted)
            for flags, wanted in ((0x02000000, "allow"), (0x10000000, "eperm"), (0x12000000, "eperm"), (0, "eperm")):
                self.assertEqual(simulate(programs[zygote], table.names["unshare"], padded([flags])), wanted)
            for call in ("mount", "umount2", "mount_setattr", "move_mount", "open_tree", "fsopen", "pivot_root", "chroot", "ptrace", "clone3",
                         "process_vm_writev", "pidfd_getfd", "bpf"):
                self.assertNotEqual(simulate(programs[zygote], table.names[call], [0] * 6), "allow", call)

    def test_strict_may_not_change_identity_and_only_system_its_groups(self):
        """In standard the calls exist for programs that drop what they do not have; capabilities decide, and there are none."""
        for call in "setuid setgid setresuid setresgid setreuid setregid setfsuid setfsgid".split():
            self.assertEqual([simulate(programs[p], table.names[call]) for p in PROFILES], ["eperm", "allow", "allow"])
        self.assertEqual([simulate(programs[p], table.names["setgroups"]) for p in PROFILES], ["eperm", "eperm", "allow"])

    def test_the_helpers_filter_differs_from_a_payloads_by_one_call(self):
        differences = [table.rows[nr]["name"] for nr in table.rows if table.cell("helper", nr) != table.cell("standard", nr)]
        self.assertEqual(differences, ["openat2"])

    def test_a_system_box_that_shares_a_folder_cannot_set_an_id_bit(self):
        """What differs from system is what makes or changes a mode; the answers are those that standard gets."""
        differences = {table.rows[nr]["name"] for nr in table.rows if table.cell("system_sharing", nr) != table.cell("system", nr)}
        self.assertEqual(differences, set("open openat openat2 creat chmod fchmod fchmodat fchmodat2 mknod mknodat".split()))
        for call, args, answers in CASES:
            if call in differences:
                self.assertEqual(simulate(programs["system_sharing"], table.names[call], padded(args)), wanted(answers, "standard"), (call, args))

    def test_constants_are_those_of_the_headers(self):
        own = {"CLONE_NAMESPACES", "PERSONALITY_ASK", "SOCK_TYPE_MASK", "SET_ID_BITS", "MAKES_A_FILE", "NEW_LISTENER", "NEW_LISTENER_WAIT_KILLABLE_RECV"}
        headers = """sched.h sys/socket.h netinet/in.h netinet/tcp.h linux/udp.h linux/netlink.h asm/termbits.h asm/ioctls.h linux/fs.h
                  linux/fiemap.h linux/sockios.h fcntl.h sys/stat.h linux/prctl.h linux/seccomp.h linux/personality.h linux/keyctl.h sys/mman.h sys/shm.h"""
        lines = [f"#include <{h}>" for h in headers.split()]
        for name, value in table.constants.items():
            if name not in own:
                guard = name.startswith(("PR_", "TCP_AO_"))  # headers may be older than an option
                lines += [f"#ifdef {name}"] * guard + [f'_Static_assert({name} == {value}u, "{name}");'] + ["#endif"] * guard
        lines.append(f"_Static_assert((CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET"
                     f" | 0x80) == {table.constants['CLONE_NAMESPACES']}u, \"clone\");")
        lines.append(f"_Static_assert(SECCOMP_FILTER_FLAG_NEW_LISTENER == {table.constants['NEW_LISTENER']}u, \"listener\");")
        lines.append(f"_Static_assert((SECCOMP_FILTER_FLAG_NEW_LISTENER | 1 << 5) == {table.constants['NEW_LISTENER_WAIT_KILLABLE_RECV']}u, \"\");")
        lines.append(f"_Static_assert((S_ISUID | S_ISGID) == {table.constants['SET_ID_BITS']}u, \"set-id bits\");")
        lines.append(f"_Static_assert((O_CREAT | O_TMPFILE & ~O_DIRECTORY) == {table.constants['MAKES_A_FILE']}u, \"open\");")
        r = subprocess.run(["gcc", "-D_GNU_SOURCE", "-fsyntax-only", "-x", "c", "-"], input="\n".join(lines), text=True, stderr=subprocess.PIPE,
                           timeout=60)
        self.assertEqual(r.returncode, 0, r.stderr)


class Golden(unittest.TestCase):
    def test_tables_are_as_checked_in(self):
        self.assertEqual((HERE / "golden.txt").read_text().splitlines(), golden().splitlines(), "policy changed: review, then `make seccomp-golden`")


class Libseccomp(unittest.TestCase):
    def test_every_name_that_libseccomp_knows_is_classified_under_its_number(self):
        known = dict(reversed(line.split()) for line in output(REFERENCE, "names").splitlines())
        self.assertGreater(len(known), 350)
        for name, nr in known.items():
            self.assertEqual(table.names.get(name), int(nr), name)

    def test_there_are_no_holes(self):
        """Numbers are given out without gaps, but for 337-423, kept free to meet the other architectures' count."""
        self.assertEqual(sorted(table.rows), [*range(0, 337), *range(424, max(table.rows) + 1)])
        self.assertGreaterEqual(max(table.rows), 462)


class Kernel(unittest.TestCase):
    def test_kernel_gives_the_verdict_for_every_number(self):
        for name in FILTERS:
            answers = output(PROBE, "verdicts", name).split()
            self.assertEqual(len(answers), len(NUMBERS))
            for nr, answer in zip(NUMBERS, answers):
                if nr not in UNSEEN:
                    self.assertEqual(kernel_word(answer), table.verdict(name, nr, [BAD] * 6), (name, nr))

    def test_kernel_gives_the_verdict_for_arguments(self):
        for name in PROFILES:
            vectors = list(all_vectors(name))
            for start in range(0, len(vectors), 4096):
                part = vectors[start:start + 4096]
                text = "".join(f"{nr} {' '.join(map(str, args))}\n" for nr, args in part)
                answers = output(PROBE, "arguments", name, input=text).split()
                self.assertEqual(len(answers), len(part))
                for (nr, args), answer in zip(part, answers):
                    # Without a listener the kernel answers ENOSYS where the filter leaves a call to one.
                    expected = table.verdict(name, nr, args).replace("ask", "enosys")
                    self.assertEqual(kernel_word(answer), expected, (name, nr, list(map(hex, args))))

    def test_real_calls_are_as_without_filter_or_refused(self):
        blocking = {table.names["pause"]}
        # A bad clock's number is the processor time of some process, which may be there or not.
        clocks = {table.names[n] for n in ("clock_gettime", "clock_getres", "clock_settime", "clock_adjtime", "clock_nanosleep", "timer_create")}
        for name in PROFILES:
            calls = [(nr, table.verdict(name, nr, [BAD] * 6)) for nr in NUMBERS if nr not in blocking]
            answers = output(PROBE, "calls", name, input="".join(f"{nr} {v if v == 'allow' else '-'}\n" for nr, v in calls)).splitlines()
            self.assertEqual(len(answers), len(calls))
            for (nr, verdict), line in zip(calls, answers):
                _, result, free = line.split()
                expected = free if verdict == "allow" else str(-getattr(errno, verdict.upper()))
                if nr in clocks and verdict == "allow" and {result, free} <= {str(-errno.EINVAL), str(-errno.EFAULT)}:
                    continue
                self.assertEqual(result, expected, (name, nr, table.rows.get(nr, {}).get("name")))

    def test_foreign_calls_end_the_process(self):
        sigsys, enosys = "signal 31", "errno 38"
        for name in FILTERS:
            answers = dict(line.split(" ", 1) for line in output(PROBE, "foreign", name).splitlines())
            minus = answers.pop("minus-1")
            self.assertEqual(minus, sigsys if name in ("init", "init_desk", "dialer") else enosys)
            self.assertEqual(set(answers.values()), {sigsys}, (name, answers))
            self.assertEqual(len(answers), 8)


class Generator(unittest.TestCase):
    def generate(self, text):
        with tempfile.TemporaryDirectory() as d:
            source, out = pathlib.Path(d, "t.tbl"), pathlib.Path(d, "t.c")
            source.write_text(text)
            r = subprocess.run([GEN, source, out], stderr=subprocess.PIPE, text=True, timeout=60)
            if r.returncode:
                return r.stderr
            code, name = {}, None
            for line in out.read_text().splitlines():
                if line.startswith("static const"):
                    name = line.split()[-3].removesuffix("_code[]")
                    code[name] = []
                elif line.startswith("    {"):
                    code[name].append(tuple(int(w, 0) for w in line[line.index("{") + 1:line.index("}")].split(",")))
            return code

    def test_a_filter_can_differ_from_a_column(self):
        columns = re.sub(r"^filter .*\n(?:[ \t]+.*\n)*", "", TABLE.read_text(), flags=re.M)
        text = columns + "rule join\n    allow if arg1 in 0x10000000 0x20000000\n    eperm\nfilter family like standard\n    @join setns\n"
        code, own = self.generate(text), Table(text)
        for nr in [*NUMBERS, X32, -1]:
            for args in ([0] * 6, [3, 0x10000000, 0, 0, 0, 0], [3, 0x10000000 | 1 << 40, 0, 0, 0, 0], [3, 0x30000000, 0, 0, 0, 0]):
                self.assertEqual(simulate(code["family"], nr, args), own.verdict("family", nr, args))
        self.assertEqual(simulate(code["family"], 308, [3, 0x20000000]), "allow")
        self.assertEqual(code["standard"], programs["standard"])

    def test_far_jumps_are_bridged(self):
        """Neighbours with different verdicts make a long program, whose rules and returns are out of a jump's reach."""
        words = ["allow", "eperm", "@r", "enosys", "einval", "@s"]
        text = "columns a\notherwise enosys\nrule r\n    eperm if arg0 in 1 2 3\n    allow\n"
        text += "rule s\n    einval if arg2 & 6 and arg1 & 0xf in 4 5\n    allow\n"
        text += "".join(f"{nr} c{nr} {words[nr * nr // 3 % 6]}\n" for nr in range(0, 550))
        code, own = self.generate(text), Table(text)
        self.assertGreater(len(code["a"]), 400)
        self.assertIn(JA, {op for op, *_ in code["a"]})
        self.assertGreater(sum(op == RET for op, *_ in code["a"]), 6)
        for nr in [*range(600), X32, -1]:
            for args in ([0] * 6, [3, 4, 2, 0, 0, 0], [4, 0x15, 4, 0, 0, 0], [9, 9, 9, 0, 0, 0]):
                self.assertEqual(simulate(code["a"], nr, args), own.verdict("a", nr, args), (nr, args))

    def test_a_doubtful_table_is_refused_with_its_line(self):
        head = "columns a b\notherwise enosys\n"
        for body, message in (
            ("0 read allow\n", "a row is"), ("0 read allow perhaps\n", "unknown action"), ("0 read allow @none\n", "unknown rule"),
            ("0 read allow allow\n0 write allow allow\n", "second row"), ("0 read allow allow\n1 read allow allow\n", "second row"),
            ("rule r\n    allow if arg0 in 1\n0 read @r @r\n", "lacks a last word"), ("rule r\n    allow if arg7 in 1\n    eperm\n", "a test is"),
            ("rule r\n    allow\n    eperm\n", "after the last"), ("rule r\n    allow if arg0 & 1 in 2\n    eperm\n", "never be equal"),
            ("rule r\n    allow if arg0 in NOTHING\n    eperm\n", "neither a number"), ("rule r\n    allow if arg0 in\n    eperm\n", "a test is"),
            ("filter f otherwise kill\n    allow nothing\n", "no row"), ("filter f like c\n", "unknown column"),
            ("    allow read\n", "without a section"),
            ("2000 far allow allow\n", "not understood"), ("0 read allow allow", "newline"),
        ):
            answer = self.generate(head + body)
            self.assertIsInstance(answer, str, body)
            self.assertRegex(answer, rf"t\.tbl:\d+: .*{message}", body)


PYTHON = """
import asyncio, concurrent.futures, ctypes, multiprocessing, mmap, os, pathlib, shutil, signal, socket, sqlite3, subprocess, sys, tempfile, threading
assert subprocess.run([sys.executable, '-c', 'print(6*7)'], capture_output=True, text=True).stdout == '42\\n'
t = threading.Thread(target=os.getpid); t.start(); t.join()
async def main():
    server = await asyncio.start_server(lambda r, w: (w.write(b'hello'), w.close()), '127.0.0.1', 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await reader.read() == b'hello'
    p = await asyncio.create_subprocess_exec('true'); assert await p.wait() == 0
asyncio.run(main())
d = tempfile.mkdtemp()
db = sqlite3.connect(d + '/x.db'); db.execute('create table t(a)'); db.execute('insert into t values(1)'); db.commit(); db.close()
pathlib.Path(d, 'a').write_bytes(b'x' * 100000)
shutil.copy2(d + '/a', d + '/b'); shutil.copytree(d, d + '/../' + os.path.basename(d) + '-2'); shutil.rmtree(d + '-2'); shutil.rmtree(d)
mmap.mmap(-1, 4096).close()
signal.setitimer(signal.ITIMER_REAL, 100)
"""
FULL_PYTHON = PYTHON + """
from multiprocessing import shared_memory
with multiprocessing.Pool(2) as pool:
    assert pool.map(abs, [-1, 2]) == [1, 2]
with concurrent.futures.ProcessPoolExecutor(2) as pool:
    assert list(pool.map(abs, [-3])) == [3]
s = shared_memory.SharedMemory(create=True, size=4096); s.close(); s.unlink()
os.close(os.memfd_create('x')); os.sched_setaffinity(0, os.sched_getaffinity(0)); os.nice(1)
"""
C = """#include <pthread.h>
#include <stdio.h>
static void *f(void *p) { return p; }
int main(void) { pthread_t t; pthread_create(&t, 0, f, 0); pthread_join(t, 0); puts("ok"); }
"""
SHELL = f"""set -e; d=$(mktemp -d); cd $d; printf '%s' '{C}' > a.c"""
PROGRAMS = [  # name, profiles, command, what it prints at its end
    ("sh", "strict standard system", ["sh", "-c", "echo a | cat | wc -c; (exit 3) || echo $?"], "3\n"),
    ("python3", "strict standard system", ["python3", "-c", PYTHON + "print('ok')"], "ok\n"),
    ("python3", "standard system", ["python3", "-c", FULL_PYTHON + "print('ok')"], "ok\n"),
    ("gcc", "standard system", ["sh", "-c", SHELL + "; gcc -pthread a.c -o a; ./a; rm -r $d"], "ok\n"),
    ("git", "standard system", ["sh", "-c", "set -e; d=$(mktemp -d); cd $d; export HOME=$d; git init -q .; echo x > f; git add f; "
     "git -c user.name=n -c user.email=e@example.invalid commit -qm m; git clone -q . other; git gc -q; git log --format=%s; rm -rf $d"], "m\n"),
    ("bash", "standard system", ["bash", "-c", "set -m; sleep 60 & kill -STOP %1; kill -CONT %1; kill %1; wait %1; echo $?"], "143\n"),
    ("script", "strict standard system", ["sh", "-c", "script -qec 'test -t 0 && echo ok' /dev/null </dev/null | tr -d '\\r'"], "ok\n"),
    ("node", "standard system", ["node", "-e", "const{execFileSync}=require('child_process');const fs=require('fs').promises;"
     "const{Worker}=require('worker_threads');new Worker('require(\"worker_threads\").parentPort.postMessage(1)',{eval:true})"
     ".on('message',async()=>{await fs.readFile('/etc/passwd');execFileSync('true');console.log('ok');process.exit(0)})"], "ok\n"),
    ("go", "standard", ["go", "version"], None),
    ("perl", "strict standard system", ["perl", "-e", "print `echo ok`"], "ok\n"),
    ("tar", "standard system", ["sh", "-c", SHELL + "; mkfifo p; ln a.c b; tar cf x.tar a.c b p; mkdir y; tar xf x.tar -C y; "
     "cp -a y z; mv z /dev/shm/$$.z; rm -r /dev/shm/$$.z $d; echo ok"], "ok\n"),
]


class Programs(unittest.TestCase):
    def test_programs_run_under_their_profile(self):
        for needs, profiles, command, ending in PROGRAMS:
            for profile in profiles.split():
                with self.subTest(program=needs, profile=profile, command=command[-1][:60]):
                    if not shutil.which(needs):
                        self.skipTest(f"no {needs} here")
                    r = subprocess.run([PROBE, "run", profile, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
                    self.assertEqual(r.returncode, 0, r.stderr)
                    self.assertTrue(ending is None or r.stdout.endswith(ending), (r.stdout, r.stderr))

    def test_root_in_system_changes_owner_and_identity_and_in_standard_not(self):
        if os.geteuid():
            self.skipTest("not root")
        code = ("import os, tempfile\nf = tempfile.NamedTemporaryFile()\nos.chown(f.name, 7, 7)\n"
                "os.setgroups([])\nos.setgid(7)\nos.setuid(7)\nprint(os.getuid())")
        r = subprocess.run([PROBE, "run", "system", "python3", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual((r.stdout, r.stderr[-200:] if r.returncode and not r.stdout else ""), ("7\n", ""))
        r = subprocess.run([PROBE, "run", "standard", "python3", "-c", code], stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertIn("PermissionError", r.stderr)


class LoadTime(unittest.TestCase):
    def test_print_load_time_beside_libseccomp(self):
        """Never decides; the machine does."""
        with tempfile.TemporaryDirectory() as d:
            text = "".join(f"{nr} {'allow' if v == 'allow' else getattr(errno, v.upper(), 0)}\n"
                           for nr in NUMBERS if (v := table.verdict("standard", nr, [BAD] * 6)))
            for shape in ("tree", "linear"):
                with open(f"{d}/libseccomp-{shape}", "wb") as out:
                    subprocess.run([REFERENCE, "bpf", shape], input=text.encode(), stdout=out, check=True, timeout=60)
            print("\nload time of filters (us)       instructions   p50    p99")
            for line in output(PROBE, "load", f"{d}/libseccomp-tree", f"{d}/libseccomp-linear").splitlines():
                name, length, median, tail = line.split()
                print(f"  {name.rsplit('/', 1)[-1]:30} {length:>10} {median:>6} {tail:>6}")


if __name__ == "__main__":
    if sys.argv[1:] == ["golden"]:
        (HERE / "golden.txt").write_text(golden())
    else:
        unittest.main()

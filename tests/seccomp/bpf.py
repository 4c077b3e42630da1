"""A second reading of syscalls.tbl and a simulator of classic BPF, both independent of tools/gen-seccomp."""
import errno
import functools
import re

LD_W_ABS, AND_K, JA, JEQ, JGT, JGE, JSET, RET = 0x20, 0x54, 0x05, 0x15, 0x25, 0x35, 0x45, 0x06
ARCH_X86_64, ARCH_I386, ARCH_AARCH64 = 0xC000003E, 0x40000003, 0xC00000B7
X32 = 0x40000000


class UsesArguments(Exception):
    """The verdict depends on arguments that were not given."""


def action_name(value):
    if value == 0x7FFF0000:
        return "allow"
    if value == 0x80000000:
        return "kill"
    if value == 0x7FC00000:
        return "ask"
    assert value >> 16 == 5, hex(value)
    if value & 0xFFFF == 0:
        return "nothing"
    return errno.errorcode[value & 0xFFFF].lower()


def simulate(code, nr, args=None, arch=ARCH_X86_64, visited=None):
    """What the program returns. With args None, looking at an argument raises UsesArguments."""
    at, a = 0, 0
    while True:
        op, jt, jf, k = code[at]
        if visited is not None:
            visited.add(at)
        at += 1
        if op == LD_W_ABS:
            if k in (0, 4):
                a = (nr & 0xFFFFFFFF, arch)[k // 4]
            else:
                assert k >= 16 and k % 8 == 0 and k < 64, f"loads offset {k}"
                if args is None:
                    raise UsesArguments
                a = args[(k - 16) // 8] & 0xFFFFFFFF
        elif op == AND_K:
            a &= k
        elif op == JA:
            at += k
        elif op in (JEQ, JGT, JGE, JSET):
            holds = a == k if op == JEQ else a >= k if op == JGE else a > k if op == JGT else a & k
            at += jt if holds else jf
        elif op == RET:
            return action_name(k)
        else:
            raise AssertionError(f"instruction {at - 1}: code {op:#x} is not expected")


class Table:
    def __init__(self, text):
        self.constants, self.rules, self.filters, self.rows, self.names = {}, {}, {}, {}, {}
        self.columns, self.otherwise, section = [], None, None
        for line in text.splitlines():
            words = line.split("#")[0].split()
            if not words:
                continue
            if line[0].isspace():
                section.append(words)
            elif words[0] == "const":
                self.constants[words[1]] = int(words[2], 0)
            elif words[0] == "rule":
                section = self.rules.setdefault(words[1], [])
            elif words[0] == "filter":
                section = []
                self.filters[words[1]] = (words[2], words[3], section)
            elif words[0] == "columns":
                self.columns = words[1:]
            elif words[0] == "otherwise":
                self.otherwise = words[1]
            else:
                nr = int(words[0])
                assert nr not in self.rows and words[1] not in self.names, line
                assert len(words) == 2 + len(self.columns), line
                self.names[words[1]] = nr
                self.rows[nr] = dict(zip(self.columns, words[2:]), name=words[1])

    def all_filters(self):
        return self.columns + list(self.filters)

    def value(self, word):
        return self.constants[word] if word in self.constants else int(word, 0)

    @functools.lru_cache(maxsize=None)
    def cell(self, name, nr):
        """The action or @rule that the filter has for the number."""
        if name in self.columns:
            return self.rows[nr][name] if nr in self.rows else self.otherwise
        kind, base, lines = self.filters[name]
        for action, *calls in lines:
            if self.rows.get(nr, {}).get("name") in calls:
                return action
        return base if kind == "otherwise" else self.cell(base, nr)

    def tests(self, words):
        """Splits `argN & M in V...  and ...` into (argument, mask, values or None)."""
        for test in re.split(r"\band\b", " ".join(words)):
            head, _, values = test.partition(" in ")
            argument, _, mask = head.partition("&")
            yield (int(argument.strip()[3:]), self.value(mask.strip()) if mask else 0xFFFFFFFF,
                   [self.value(v) for v in values.split()] or None)

    @functools.lru_cache(maxsize=None)
    def steps(self, rule):
        return [(action, list(self.tests(rest[1:])) if rest else []) for action, *rest in self.rules[rule]]

    def decide(self, rule, args):
        for action, tests in self.steps(rule):
            if all(bool(args[n] & mask & 0xFFFFFFFF) if values is None else args[n] & mask in values for n, mask, values in tests):
                return action
        raise AssertionError(f"rule {rule} does not decide")

    def verdict(self, name, nr, args=None, arch=ARCH_X86_64):
        nr &= 0xFFFFFFFF
        if arch != ARCH_X86_64 or X32 <= nr < 0xFFFFFFFF:
            return "kill"
        cell = self.cell(name, nr)
        if cell[0] != "@":
            return cell
        if args is None:
            raise UsesArguments
        return self.decide(cell[1:], args)

    def vectors(self, rule):
        """Argument sets around everything that the rule mentions, each with and without garbage in the high halves."""
        interesting = [set() for _ in range(6)]
        for action, *rest in self.rules[rule]:
            for n, mask, values in (self.tests(rest[1:]) if rest else ()):
                interesting[n] |= {0, 0xFFFFFFFF}
                for v in values or [1 << bit for bit in range(32)]:
                    interesting[n] |= {v, (v + 1) & 0xFFFFFFFF, (v - 1) & 0xFFFFFFFF, v ^ (~mask & 0xFFFFFFFF), v | 0x80000}
        sets = [[]]
        for values in interesting:
            sets = [s + [v] for s in sets for v in sorted(values) or [0]]
        for s in sets:
            yield s
            yield [v | 0xDEADBEEF00000000 for v in s]
            yield [v | 0xFFFFFFFF00000000 for v in s]

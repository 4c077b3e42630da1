"""Makes system calls in another process, as if it were taken over: inject.py PID <calls.json >results.json

A call is [number, argument...]; an argument is a number, a text (its address is passed), or {"bytes": "hex"}. A result is what the call returned.
The call {"i386": number} is made the 32-bit way, which ends the process that may not: its result is {"signal": n}, and nothing comes after it.
For x86_64, as root. The victim waits in a system call of its own, so the instruction that makes one is just behind it."""
import ctypes
import json
import os
import signal
import sys
import time

PTRACE_CONT, PTRACE_SINGLESTEP, PTRACE_GETREGS, PTRACE_SETREGS, PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 7, 9, 12, 13, 17, 0x4206, 0x4207
NAMES = ("r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs").split()
ARGUMENTS = ("rdi", "rsi", "rdx", "r10", "r8", "r9")


class Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in NAMES]


libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(request, pid, address=None, data=None):
    if libc.ptrace(request, pid, address, data) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request}")


class Victim:
    def __init__(self, pid):
        self.pid = pid
        ptrace(PTRACE_SEIZE, pid)
        self.memory = open(f"/proc/{pid}/mem", "r+b", buffering=0)
        end = time.monotonic() + 30
        while True:
            ptrace(PTRACE_INTERRUPT, pid)
            os.waitpid(pid, 0)
            self.before = self.registers()
            if self.read(self.before.rip - 2, 2) == b"\x0f\x05":
                break
            assert time.monotonic() < end, "it does not wait in a system call"
            ptrace(PTRACE_CONT, pid)        # it had something to do

    def registers(self):
        regs = Registers()
        ptrace(PTRACE_GETREGS, self.pid, None, ctypes.addressof(regs))
        return regs

    def read(self, address, size):
        self.memory.seek(address)
        return self.memory.read(size)

    def write(self, address, data):
        self.memory.seek(address)
        self.memory.write(data)

    def call(self, number, *arguments):
        regs = Registers.from_buffer_copy(self.before)
        regs.rip, regs.rax, regs.orig_rax = self.before.rip - 2, number, 2 ** 64 - 1
        room = self.before.rsp - 65536      # far below what is in use
        for name, value in zip(ARGUMENTS, arguments):
            if not isinstance(value, int):
                data = bytes.fromhex(value["bytes"]) if isinstance(value, dict) else value.encode() + b"\0"
                self.write(room, data)
                value, room = room, room + len(data) + 16 & ~15
            setattr(regs, name, value % 2 ** 64)
        ptrace(PTRACE_SETREGS, self.pid, None, ctypes.addressof(regs))
        ptrace(PTRACE_SINGLESTEP, self.pid)
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            return {"signal": os.WTERMSIG(status)}
        assert os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGTRAP, status
        return ctypes.c_int64(self.registers().rax).value

    def call_i386(self, number):
        self.write(self.before.rip - 2, b"\xcd\x80")
        result = self.call(number)
        self.write(self.before.rip - 2, b"\x0f\x05")
        return result

    def release(self):
        ptrace(PTRACE_SETREGS, self.pid, None, ctypes.addressof(self.before))
        ptrace(PTRACE_DETACH, self.pid)


def main():
    victim, results = Victim(int(sys.argv[1])), []
    for call in json.load(sys.stdin):
        results.append(victim.call_i386(call["i386"]) if isinstance(call, dict) else victim.call(*call))
        if isinstance(results[-1], dict):
            break
    else:
        victim.release()
    print(json.dumps(results))


if __name__ == "__main__":
    main()

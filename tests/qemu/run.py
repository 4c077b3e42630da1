#!/usr/bin/python3
"""Boots one test machine per suite, emulated, and tells by its exit status whether all of them passed.

The console goes to a file and, with --show, to the terminal. The verdict is the line "<mark> <status>"; a machine that
ends or runs out of time without it has failed.
"""

import argparse
import glob
import os
import re
import secrets
import selectors
import subprocess
import sys
import time

BOOT_SECONDS = 240     # seconds on an idle host, minutes on a busy one


def machine_command(out, suite, mark, timeout, memory, append):
    kernel = glob.glob(f"{out}/kernel/boot/vmlinuz-*")[0]
    # Not microvm: without the timers of a PC the kernel cannot calibrate its clock when this host is busy, and hangs.
    command = ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi",
               "-cpu", "max", "-m", memory, "-smp", "2", "-nodefaults", "-no-user-config", "-display", "none",
               "-no-reboot", "-serial", "stdio",
               "-kernel", kernel, "-initrd", f"{out}/initramfs",
               "-append", f"console=ttyS0 quiet panic=-1 reboot=t no_timer_check carrel.suite={suite} carrel.mark={mark} "
                          f"carrel.timeout={timeout} {append}"]
    for number, image in enumerate(("usr.ext4", "project.squashfs")):
        command += ["-drive", f"id=d{number},file={out}/{image},format=raw,if=none,readonly=on",
                    "-device", f"virtio-blk-pci,drive=d{number}"]
    # What is written to it is gone with the machine.
    return command + ["-drive", f"id=disk,file={out}/disk.ext4,format=raw,if=none,snapshot=on", "-device",
                      "virtio-blk-pci,drive=disk"]


def read_console(process, args, log, mark):
    """Returns (has the machine come up, the suite's status or None)."""
    selector = selectors.DefaultSelector()
    selector.register(process.stdout, selectors.EVENT_READ)
    deadline = time.monotonic() + BOOT_SECONDS
    up, pending = False, b""
    while (left := deadline - time.monotonic()) > 0:
        if not selector.select(left):
            continue
        data = os.read(process.stdout.fileno(), 65536)
        if not data:
            break
        log.write(data)
        log.flush()
        if args.show:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        pending = (pending + data.replace(b"\r", b""))[-4096:]
        if not up and re.search(rb"^guest: ", pending, re.M):
            up, deadline = True, time.monotonic() + args.timeout + 20
        found = re.search(rb"^" + mark.encode() + rb" (\d+)\n", pending, re.M)
        if found:
            return True, int(found.group(1))
    return up, None


def boot(args, suite, path):
    """One machine from start to end; the same result as read_console."""
    mark = "verdict-" + secrets.token_hex(8)
    with open(path, "wb") as log:
        process = subprocess.Popen(machine_command(args.out, suite, mark, args.timeout, args.memory, args.append),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            return read_console(process, args, log, mark)
        finally:
            process.kill()
            process.wait()


def run_suite(args, suite):
    """True if it passed."""
    path = f"{args.out}/console-{suite.replace(':', '-').replace('/', '-')}.log"
    began = time.monotonic()
    for attempt in range(3):
        up, status = boot(args, suite, path)
        if up:
            break
        # Says nothing about the suite: an emulated machine on a busy host.
        print(f"proof-qemu: {suite}: the machine did not come up (attempt {attempt + 1} of 3)", flush=True)
    with open(path, "rb") as log:
        console = log.read().decode(errors="replace").replace("\r", "")
    tally = [line for line in console.splitlines() if re.search(r"\d+ (passed|failed|error|skipped).* in ", line)]
    verdict = {None: "no verdict", 0: "ok", 5: "no tests", 97: "no cgroups", 98: "the machine could not be set up",
               124: "out of time"}.get(status, f"status {status}")
    print(f"proof-qemu: {suite}: {verdict}; {tally[-1].strip('= ') if tally else 'no tally'}; "
          f"{time.monotonic() - began:.0f} s; {path}")
    if status != 0 and not args.show:
        print("\n".join(console.splitlines()[-60:]))
    sys.stdout.flush()
    return status == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="the directory that image.py filled")
    parser.add_argument("--timeout", type=int, default=900, help="seconds for each suite")
    parser.add_argument("--memory", default="2G")
    parser.add_argument("--append", default="", help="more for the kernel's command line")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("suites", nargs="+", help="root:NAME or user:NAME")
    args = parser.parse_args()
    for suite in args.suites:
        if not re.fullmatch(r"(root|user):[a-z0-9_/.-]+", suite):
            parser.error(f"not a suite: {suite}")
    results = [run_suite(args, suite) for suite in args.suites]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Calls whose arguments decide, with the answers that are wanted: written from the intent, not from the table.

(call, arguments, answers): answers is one word for all profiles, or "strict standard system"."""
import errno  # noqa: F401  (names below are spelt like errno's)
import signal
import socket

HIGH = 0xABCD_0000_0000_0000 | 0x1_0000_0000
NEW = {"ns": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}
THREAD = 0x3D0F00  # what pthread_create passes
IO = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C, "TIOCSETD": 0x5423, "TIOCCONS": 0x541D}

CASES = [
    ("clone", [int(signal.SIGCHLD)], "allow"),
    ("clone", [THREAD], "allow"),
    ("clone", [0x4111], "allow"),  # vfork, as posix_spawn does it
    *[("clone", [flag | int(signal.SIGCHLD)], "eperm") for flag in NEW.values()],
    *[("clone", [flag | HIGH], "eperm") for flag in NEW.values()],
    ("clone", [sum(NEW.values())], "eperm"),
    *[("clone", [0x8000 | int(signal.SIGCHLD) | flags], "eperm") for flags in (0, 0x4100, HIGH, THREAD)],  # CLONE_PARENT
    ("clone3", [0, 88], "enosys"),
    ("unshare", [NEW["user"]], "eperm"),
    ("setns", [3, 0], "eperm"),

    ("socket", [socket.AF_UNIX, 1, 0], "allow"),
    ("socket", [socket.AF_UNIX, 5 | 0o2000000, 0], "allow"),
    ("socket", [socket.AF_INET, 1 | 0o2004000, 6], "allow"),
    ("socket", [socket.AF_INET6, 2, 17], "allow"),
    ("socket", [socket.AF_INET, 2, 1], "eprotonosupport allow allow"),  # ping
    ("socket", [socket.AF_INET, 3, 255], "eprotonosupport eperm eperm"),  # raw
    ("socket", [socket.AF_INET, 1, 132], "eprotonosupport"),  # SCTP
    ("socket", [socket.AF_INET, 5, 0], "eprotonosupport"),
    ("socket", [socket.AF_INET, 6, 0], "eprotonosupport"),  # DCCP
    ("socket", [socket.AF_INET, 1, 262], "eprotonosupport"),  # MPTCP
    ("socket", [socket.AF_INET | HIGH, 1, 262 | HIGH], "eprotonosupport"),
    *[("socket", [family, 1 | flags, protocol], "allow") for family in (2, 10) for flags in (0, 0o4000, 0o2000000) for protocol in (0, 6)],
    *[("socket", [family, 2 | flags, protocol], "allow") for family in (2, 10) for flags in (0, 0o4000, 0o2000000) for protocol in (0, 17)],
    ("socket", [socket.AF_INET6, 2 | 0o2000000, 58], "eprotonosupport allow allow"),  # ping
    # A type with another's protocol: none is registered, and the kernel would run modprobe for it.
    *[("socket", [family, 1 | high, protocol | high], "eprotonosupport")
      for high in (0, HIGH) for family in (2, 10) for protocol in (1, 17, 58, 136, 255, 256)],
    *[("socket", [family, 2 | flags, protocol], "eprotonosupport")
      for flags in (0, 0o2004000, HIGH) for family in (2, 10) for protocol in (6, 33, 132, 136, 255, 256, 262)],
    ("socket", [socket.AF_INET, 2, 58], "eprotonosupport"),
    ("socket", [socket.AF_INET6, 2, 1], "eprotonosupport"),
    *[("socket", [family, kind, protocol], "eprotonosupport") for family in (2, 10) for kind in (0, 4, 7, 10, 15) for protocol in (0, 6, 17)],
    *[("socket", [16 | high, kind, protocol], "einval")  # netlink
      for high in (0, HIGH) for kind in (2, 3, 3 | 0o2000000) for protocol in (4, 6, 9, 12, 15, 16, 21)],
    *[("socket", [16 | high, kind, 0 | high], "einval ask ask") for high in (0, HIGH) for kind in (2, 3, 3 | 0o2000000, 3 | 0o4000)],  # interfaces
    *[("socket", [16, kind, 0], "einval") for kind in (1, 4, 5)],
    *[("socket", [family, kind, 0], "eafnosupport")
      for family in (0, 3, 9, 15, 17, 21, 29, 30, 31, 33, 36, 38, 39, 40, 43, 44, 46) for kind in (1, 2, 3, 5)],
    ("socket", [38 | HIGH, 5, 0], "eafnosupport"),  # AF_ALG
    ("socketpair", [1, 1, 0], "allow"),
    ("socketpair", [2, 1, 0], "eafnosupport"),
    ("socketpair", [30, 1, 0], "eafnosupport"),
    ("socketpair", [30 | HIGH, 1, 0], "eafnosupport"),

    ("setsockopt", [3, 1, 2], "allow"),  # SO_REUSEADDR
    ("setsockopt", [3, 6, 1], "allow"),  # TCP_NODELAY
    *[("setsockopt", [3, 1 | high, option | high], "eperm") for option in (26, 50, 51, 52) for high in (0, HIGH)],
    *[("setsockopt", [3, 1 | high, 13 | high], "nothing") for high in (0, HIGH)],      # SO_LINGER
    *[("setsockopt", [3, 1 | high, 8 | high], "nothing") for high in (0, HIGH)],       # SO_RCVBUF
    ("setsockopt", [3, 1, 7], "nothing"),  # SO_SNDBUF
    ("setsockopt", [3, 0, 11], "nothing"),  # IP_RECVERR
    ("setsockopt", [3, 41, 25], "nothing"),  # IPV6_RECVERR
    *[("setsockopt", [3, 1 | high, option | high], "enoprotoopt") for option in (37, 65, 60, 61) for high in (0, HIGH)],  # TIMESTAMPING, ZEROCOPY, TXTIME
    *[("setsockopt", [3, 6, option], "enoprotoopt") for option in (14, 31, 32, 38, 39, 40)],
    ("setsockopt", [3, 17, 100], "enoprotoopt"),
    ("setsockopt", [3, 0, 26], "allow"),

    ("mmap", [0, 4096, 3, 0x22], "allow"),
    *[("mmap", [0, 4096, 3, 0x22 | 0x40000 | size | high], "enomem") for high in (0, HIGH) for size in (0, 21 << 26, 30 << 26)],
    ("memfd_create", [0, 3], "eperm allow allow"),
    *[("memfd_create", [0, 4 | flags], "eperm einval einval") for flags in (0, 1, 21 << 26, HIGH)],
    ("shmget", [0, 4096, 0o1600], "eperm allow allow"),
    *[("shmget", [0, 4096, 0o1600 | 0o4000 | high], "eperm enomem enomem") for high in (0, HIGH)],

    *[("ioctl", [0, value | high], "eperm") for value in IO.values() for high in (0, HIGH, 0xFFFFFFFF00000000)],
    *[("ioctl", [0, value], "allow") for value in  # what sealing a terminal in needs, then what a shell and Python need
      (0x540E, 0x40045431, 0x80045430, 0x5414, 0x5413, 0x5401, 0x5402, 0x5403, 0x5404, 0x540F, 0x5410, 0x541B, 0x5421, 0x5451, 0x5441)],
    ("ioctl", [0, 0x5460], "enotty allow allow"),  # FIOQSIZE
    ("ioctl", [0, 0x8912], "enotty allow allow"),  # SIOCGIFCONF
    *[("ioctl", [3, value | high], "enotty") for high in (0, HIGH) for value in  # bridges, DLCIs, VLANs: each would run modprobe
      (0x8940, 0x8941, 0x8980, 0x8981, 0x8982, 0x8983, 0x89A0, 0x89A1, 0x89A2, 0x89A3)],
    *[("ioctl", [3, value], "enotty allow allow") for value in (0x8910, 0x8913, 0x8915, 0x8927, 0x8933)],  # SIOCGIFNAME FLAGS ADDR HWADDR INDEX
    ("ioctl", [0, 0x40049409], "enotty allow allow"),  # FICLONE
    ("ioctl", [0, 0x80086601], "enotty allow allow"),  # FS_IOC_GETFLAGS
    *[("ioctl", [0, value | high], "enotty") for high in (0, HIGH) for value in
      # FS_IOC_SETFLAGS, its 32-bit form, FSSETXATTR, FIFREEZE, FITRIM, set encryption policy, btrfs: subvolume create, snapshot
      (0x40086602, 0x40046602, 0x401C5820, 0xC0045877, 0xC0185879, 0x800C6613, 0x5000940E, 0x50009401)],

    ("fcntl", [3, 1024], "einval"),
    ("fcntl", [3, 1024 | HIGH], "einval"),
    ("fcntl", [3, 1026], "einval"),
    *[("fcntl", [3, command], "allow") for command in (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1025, 1030, 1031, 1033)],

    ("prctl", [1, 9], "allow"),  # PDEATHSIG
    ("prctl", [4, 1], "allow"),
    ("prctl", [15], "allow"),
    ("prctl", [38, 1], "allow"),
    ("prctl", [35, 1], "eperm"),  # SET_MM
    ("prctl", [35 | HIGH, 1], "eperm"),
    ("prctl", [22, 2], "eperm einval einval"),  # SET_SECCOMP
    ("prctl", [36, 1], "einval allow allow"),  # subreaper
    *[("prctl", [option], "einval") for option in (0, 53, 57, 59, 62, 67, 1000)],

    ("seccomp", [0, 0], "eperm allow allow"),
    ("seccomp", [1, 0], "eperm einval einval"),
    ("seccomp", [1, 1], "eperm einval einval"),
    ("seccomp", [1, 8], "eperm einval einval"),  # NEW_LISTENER
    ("seccomp", [1, 9], "eperm einval einval"),
    ("seccomp", [1, 8 | HIGH], "eperm einval einval"),
    ("seccomp", [1, 2], "eperm einval einval"),  # LOG
    ("seccomp", [2, 0], "eperm allow allow"),
    ("seccomp", [4, 0], "eperm einval einval"),

    ("personality", [0], "allow"),
    ("personality", [0xFFFFFFFF], "allow"),
    ("personality", [0xFFFFFFFFFFFFFFFF], "allow"),
    ("personality", [0x40000], "eperm allow allow"),
    ("personality", [0x400000], "eperm"),  # READ_IMPLIES_EXEC
    ("personality", [0x440000], "eperm"),
    ("personality", [0x400000 | HIGH], "eperm"),

    ("mknod", [0, 0o010644], "eperm allow allow"),
    ("mknod", [0, 0o100644], "eperm allow allow"),
    ("mknod", [0, 0o020666], "eperm"),
    ("mknod", [0, 0o060666], "eperm"),
    ("mknodat", [3, 0, 0o140600], "eperm allow allow"),
    ("mknodat", [3, 0, 0o020666], "eperm"),
    ("mknodat", [3, 0, 0o060666 | HIGH], "eperm"),

    # A set-id bit is never given to a file, whichever call brings it.
    ("mknod", [0, 0o104755], "eperm eperm allow"),
    ("mknod", [0, 0o004755], "eperm eperm allow"),
    ("mknodat", [3, 0, 0o102755], "eperm eperm allow"),
    ("mknodat", [3, 0, 0o102755 | HIGH], "eperm eperm allow"),
    *[("chmod", [0, mode], "allow") for mode in (0, 0o644, 0o755, 0o1777)],
    *[(call, [0, mode | high], "eperm eperm allow") for call in ("chmod", "fchmod", "creat") for high in (0, HIGH)
      for mode in (0o4000, 0o2000, 0o6755, 0o104755, 0o3777)],
    *[(call, [3, 0, mode | high], "eperm eperm allow") for call in ("fchmodat", "fchmodat2") for high in (0, HIGH) for mode in (0o4755, 0o2755)],
    ("fchmodat", [3, 0, 0o755], "allow"),
    ("fchmodat2", [3, 0, 0o755, 0x100], "allow"),
    *[("open", [0, flags, 0o4755], "eperm eperm allow") for flags in (0x40, 0x41, 0x241, 0x410002, 0x400000, 0x40 | HIGH)],
    *[("openat", [3, 0, flags, 0o2755 | HIGH], "eperm eperm allow") for flags in (0x40, 0x41, 0x241, 0x410002, 0x400000, 0x40 | HIGH)],
    ("open", [0, 0x241, 0o755], "allow"),
    ("open", [0, 0, 0xFFFFFFFF], "allow"),  # without O_CREAT the mode is whatever a register holds
    ("openat", [3, 0, 0x10000, 0xFFFFFFFF], "allow"),  # O_DIRECTORY, a part of O_TMPFILE
    ("openat2", [3, 0, 0, 24], "enosys enosys allow"),  # its mode is behind a pointer
]

# Whatever else happens to the table, these hold in every profile.
NEVER = """ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd bpf perf_event_open userfaultfd memfd_secret keyctl add_key request_key
io_uring_setup io_uring_enter io_uring_register mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr
open_tree_attr open_by_handle_at name_to_handle_at setns unshare clone3 quotactl quotactl_fd swapon swapoff reboot kexec_load kexec_file_load
init_module finit_module delete_module acct settimeofday clock_settime adjtimex clock_adjtime sethostname setdomainname syslog iopl ioperm
lookup_dcookie fanotify_init vmsplice splice tee mbind set_mempolicy migrate_pages move_pages file_setattr modify_ldt vhangup""".split()
# Calls of the engine itself after it has loaded a payload's filter.
SEALING = """read write recvmsg sendmsg close close_range dup2 dup3 openat chdir fchdir landlock_create_ruleset landlock_add_rule
landlock_restrict_self setsid execve execveat exit_group wait4""".split()
INIT = "wait4 rt_sigtimedwait rt_sigreturn exit_group exit restart_syscall write sendto close_range".split()
INIT_DESK = """wait4 rt_sigreturn exit_group exit restart_syscall write sendto close_range epoll_pwait epoll_ctl read pread64 recvmsg recvfrom
close clock_nanosleep clock_gettime""".split()
DIALER = "recvfrom sendmsg socket connect close exit_group".split()
# Calls that attackers of a server make, and the front does not.
FRONT_NEVER = [call for call in NEVER if call != "splice"] + "execve execveat socket connect clone fork vfork personality".split()

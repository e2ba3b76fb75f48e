"""The system calls that a command is refused, and their numbers.

Owns what is refused and why; how the kernel is told is `filter`'s business. The numbers are those of Linux's
arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

import errno
from typing import Literal, NamedTuple, TypeAlias

Machine: TypeAlias = Literal["x86_64", "aarch64"]


class Call(NamedTuple):
    """The number of a system call on each architecture, None where it has none."""

    x86_64: int | None
    aarch64: int | None


class Test(NamedTuple):
    """A question about the low 32 bits of an argument; the kernel looks at no others of those below."""

    argument: int
    asks: Literal["equal", "any", "other"]
    """Whether it is the value, has any of the value's bits, or is another than the value."""
    value: int


class Rule(NamedTuple):
    """A system call that fails with `error` where every test says yes; with None a supervisor judges it."""

    call: str
    error: int | None = errno.EPERM
    tests: tuple[Test, ...] = ()


CALLS: dict[str, Call] = {
    # other processes
    "ptrace": Call(101, 117),
    "process_vm_readv": Call(310, 270),
    "process_vm_writev": Call(311, 271),
    "process_madvise": Call(440, 440),
    "kcmp": Call(312, 272),
    "pidfd_getfd": Call(438, 438),
    "prlimit64": Call(302, 261),
    "process_mrelease": Call(448, 448),
    "setpriority": Call(141, 140),
    "ioprio_set": Call(251, 30),
    "sched_setparam": Call(142, 118),
    "sched_setscheduler": Call(144, 119),
    "sched_setaffinity": Call(203, 122),
    "sched_setattr": Call(314, 274),
    "fcntl": Call(72, 25),
    # file systems
    "mount": Call(165, 40),
    "umount2": Call(166, 39),
    "pivot_root": Call(155, 41),
    "chroot": Call(161, 51),
    "open_tree": Call(428, 428),
    "open_tree_attr": Call(467, 467),
    "move_mount": Call(429, 429),
    "fsopen": Call(430, 430),
    "fsconfig": Call(431, 431),
    "fsmount": Call(432, 432),
    "fspick": Call(433, 433),
    "mount_setattr": Call(442, 442),
    "quotactl": Call(179, 60),
    "quotactl_fd": Call(443, 443),
    "name_to_handle_at": Call(303, 264),
    "open_by_handle_at": Call(304, 265),
    "fanotify_init": Call(300, 262),
    # namespaces
    "unshare": Call(272, 97),
    "setns": Call(308, 268),
    "clone": Call(56, 220),
    "clone3": Call(435, 435),
    # large and often broken parts of the kernel
    "bpf": Call(321, 280),
    "add_key": Call(248, 217),
    "request_key": Call(249, 218),
    "keyctl": Call(250, 219),
    "perf_event_open": Call(298, 241),
    "userfaultfd": Call(323, 282),
    "io_uring_setup": Call(425, 425),
    "io_uring_enter": Call(426, 426),
    "io_uring_register": Call(427, 427),
    "lookup_dcookie": Call(212, 18),
    "move_pages": Call(279, 239),
    "migrate_pages": Call(256, 238),
    # the machine
    "kexec_load": Call(246, 104),
    "kexec_file_load": Call(320, 294),
    "init_module": Call(175, 105),
    "finit_module": Call(313, 273),
    "delete_module": Call(176, 106),
    "swapon": Call(167, 224),
    "swapoff": Call(168, 225),
    "reboot": Call(169, 142),
    "acct": Call(163, 89),
    "syslog": Call(103, 116),
    "vhangup": Call(153, 58),
    "settimeofday": Call(164, 170),
    "clock_settime": Call(227, 112),
    "clock_adjtime": Call(305, 266),
    "adjtimex": Call(159, 171),
    "sethostname": Call(170, 161),
    "setdomainname": Call(171, 162),
    "iopl": Call(172, None),
    "ioperm": Call(173, None),
    # memory that is in no process's account
    "memfd_create": Call(319, 279),
    "memfd_secret": Call(447, 447),
    # those of which some uses are refused
    "ioctl": Call(16, 29),
    "chmod": Call(90, None),
    "fchmod": Call(91, 52),
    "fchmodat": Call(268, 53),
    "fchmodat2": Call(452, 452),
    "open": Call(2, None),
    "openat": Call(257, 56),
    "openat2": Call(437, 437),
    "creat": Call(85, None),
    "mknod": Call(133, None),
    "mknodat": Call(259, 33),
    "socket": Call(41, 198),
    "socketpair": Call(53, 199),
    # memory, messages and semaphores that processes have in common
    "shmget": Call(29, 194),
    "shmat": Call(30, 196),
    "shmctl": Call(31, 195),
    "msgget": Call(68, 186),
    "msgsnd": Call(69, 189),
    "msgrcv": Call(70, 188),
    "msgctl": Call(71, 187),
    "semget": Call(64, 190),
    "semop": Call(65, 193),
    "semtimedop": Call(220, 192),
    "semctl": Call(66, 191),
    "mq_open": Call(240, 180),
    "mq_unlink": Call(241, 181),
    # what is known of files besides their content
    "chown": Call(92, None),
    "fchown": Call(93, 55),
    "lchown": Call(94, None),
    "fchownat": Call(260, 54),
    "utime": Call(132, None),
    "utimes": Call(235, None),
    "futimesat": Call(261, None),
    "utimensat": Call(280, 88),
    "setxattr": Call(188, 5),
    "lsetxattr": Call(189, 6),
    "fsetxattr": Call(190, 7),
    "removexattr": Call(197, 14),
    "lremovexattr": Call(198, 15),
    "fremovexattr": Call(199, 16),
    "setxattrat": Call(463, 463),
    "removexattrat": Call(466, 466),
    "file_setattr": Call(469, 469),
    "inotify_add_watch": Call(254, 27),
    # names of files
    "link": Call(86, None),
    "linkat": Call(265, 37),
    "unlink": Call(87, None),
    "unlinkat": Call(263, 35),
}

# Without a test for its arguments.
_ALWAYS = [
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "kcmp",
    "pidfd_getfd",
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "open_tree",
    "open_tree_attr",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "quotactl",
    "quotactl_fd",
    "name_to_handle_at",
    "open_by_handle_at",
    "fanotify_init",
    "unshare",
    "setns",
    "bpf",
    "add_key",
    "request_key",
    "keyctl",
    "perf_event_open",
    "userfaultfd",
    "lookup_dcookie",
    "move_pages",
    "migrate_pages",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "swapon",
    "swapoff",
    "reboot",
    "acct",
    "syslog",
    "vhangup",
    "settimeofday",
    "clock_settime",
    "clock_adjtime",
    "adjtimex",
    "sethostname",
    "setdomainname",
    "iopl",
    "ioperm",
]  # words, of which there are many

# Their arguments lie in memory, where a filter cannot look, or they have a substitute that programs fall back to.
_AS_IF_ABSENT = ("clone3 openat2 io_uring_setup io_uring_enter io_uring_register memfd_create memfd_secret").split()  # noqa: SIM905  # as above

_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_SET_ID = 0o6000  # S_ISUID, S_ISGID
_MAKES_A_FILE = 0o20000100  # O_CREAT, O_TMPFILE
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # what is typed into a terminal
_F_SETOWN, _F_SETOWN_EX, _F_SETLEASE = 8, 15, 1024
_FIOSETOWN, _SIOCSPGRP = 0x8901, 0x8902
# linux/fs.h, linux/fsverity.h, linux/fscrypt.h: attributes of a file that its owner may set through any descriptor.
_SETS_ATTRIBUTES = (
    0x40086602,  # FS_IOC_SETFLAGS, which chattr uses
    0x40046602,  # FS_IOC32_SETFLAGS
    0x401C5820,  # FS_IOC_FSSETXATTR
    0x40087602,  # FS_IOC_SETVERSION
    0x40806685,  # FS_IOC_ENABLE_VERITY
    0x800C6613,  # FS_IOC_SET_ENCRYPTION_POLICY
)
_ALL = 0xFFFFFFFF
_UNIX, _INTERNET, _INTERNET_6, _NETLINK = 1, 2, 10, 16

REFUSED: tuple[Rule, ...] = (
    *(Rule(name) for name in _ALWAYS),
    *(Rule(name, errno.ENOSYS) for name in _AS_IF_ABSENT),
    Rule("clone", tests=(Test(0, "any", _NEW_NAMESPACES),)),
    Rule("ioctl", tests=(Test(1, "equal", _TIOCSTI),)),
    Rule("ioctl", tests=(Test(1, "equal", _TIOCLINUX),)),
    Rule("chmod", tests=(Test(1, "any", _SET_ID),)),
    Rule("fchmod", tests=(Test(1, "any", _SET_ID),)),
    Rule("fchmodat", tests=(Test(2, "any", _SET_ID),)),
    Rule("fchmodat2", tests=(Test(2, "any", _SET_ID),)),
    Rule("open", tests=(Test(1, "any", _MAKES_A_FILE), Test(2, "any", _SET_ID))),
    Rule("openat", tests=(Test(2, "any", _MAKES_A_FILE), Test(3, "any", _SET_ID))),
    Rule("creat", tests=(Test(1, "any", _SET_ID),)),
    Rule("mknod", tests=(Test(1, "any", _SET_ID),)),
    Rule("mknodat", tests=(Test(2, "any", _SET_ID),)),
    # Whoever opens the file next waits for the one who has a lease on it.
    Rule("fcntl", tests=(Test(1, "equal", _F_SETLEASE),)),
    # The kernel loads a module for a kind of socket that it has not met: SCTP, DCCP, TIPC, families of netlink.
    Rule("socketpair", errno.EAFNOSUPPORT, (Test(0, "other", _UNIX),)),
    *(
        Rule(
            "socket", errno.ESOCKTNOSUPPORT, (Test(0, "equal", family), Test(1, "any", 4))
        )  # SOCK_SEQPACKET, SOCK_DCCP
        for family in (_INTERNET, _INTERNET_6)
    ),
    *(
        Rule(
            "socket",
            errno.EPROTONOSUPPORT,
            (Test(0, "equal", family), *(Test(2, "other", protocol) for protocol in protocols)),
        )
        for family, protocols in (
            (_INTERNET, (0, 1, 6, 17)),  # ICMP, TCP, UDP
            (_INTERNET_6, (0, 6, 17, 58)),
            (_NETLINK, (0,)),  # NETLINK_ROUTE, which lists the interfaces
        )
    ),
)
"""What every command is refused."""

OWN_NETWORK = (_UNIX, _INTERNET, _INTERNET_6, _NETLINK)
"""The families of sockets for a command that has a network namespace of its own. AF_VSOCK, for one, leads out of it."""

SHARED: tuple[Rule, ...] = (
    # A pair of datagram sockets can send to the path of any other.
    Rule("socketpair", tests=(Test(1, "any", 2),)),
    # What others have is found by its number, so it does not help to refuse only making more.
    *(
        Rule(name, errno.ENOSYS)
        for name in (
            *("shmget", "shmat", "shmctl", "msgget", "msgsnd", "msgrcv", "msgctl"),
            *("semget", "semop", "semtimedop", "semctl", "mq_open", "mq_unlink"),
        )
    ),
    # Another process, or all of a user; 0 is oneself.
    *(
        Rule(name, tests=(Test(0, "any", _ALL),))
        for name in ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr")
    ),
    *(Rule(name, tests=(Test(1, "any", _ALL),)) for name in ("setpriority", "ioprio_set")),
    *(Rule(name, tests=(Test(0, "any", 2),)) for name in ("setpriority", "ioprio_set")),
    Rule("process_mrelease"),
    # Who is sent a signal when something can be read.
    *(Rule("fcntl", tests=(Test(1, "equal", command),)) for command in (_F_SETOWN, _F_SETOWN_EX)),
    *(Rule("ioctl", tests=(Test(1, "equal", command),)) for command in (_FIOSETOWN, _SIOCSPGRP)),
    # Landlock does not ask who may do it, and the path of a file is not known here.
    *(Rule("ioctl", tests=(Test(1, "equal", command),)) for command in _SETS_ATTRIBUTES),
    *(Rule(name, errno.ENOSYS) for name in ("setxattrat", "removexattrat", "file_setattr")),
)
"""What a command is refused besides, where it has no namespaces of its own."""

# O_EXCL, O_DIRECTORY and O_NOFOLLOW, of which the last two are other bits on each architecture.
_OPENS_SPECIALLY = 0o740200

JUDGED: tuple[Rule, ...] = (
    *(
        Rule(name, None)
        for name in (
            *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
            *("utime", "utimes", "futimesat", "utimensat", "inotify_add_watch"),
            *("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr"),
            *("link", "linkat", "unlink", "unlinkat"),
        )
    ),
    Rule("open", None, (Test(1, "any", _OPENS_SPECIALLY),)),
    Rule("openat", None, (Test(2, "any", _OPENS_SPECIALLY),)),
)
"""What the supervisor does in a command's place, where it has no namespaces of its own: see `supervisor`."""

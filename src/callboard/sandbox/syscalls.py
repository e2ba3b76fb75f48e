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
    asks: Literal["equal", "any"]
    """Whether it is the value, or has any of the value's bits."""
    value: int


class Rule(NamedTuple):
    """A system call that fails with `error` where every test says yes."""

    call: str
    error: int = errno.EPERM
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
    "shmget": Call(29, 194),
    "msgget": Call(68, 186),
    "semget": Call(64, 190),
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
    "iopl",
    "ioperm",
]  # words, of which there are many

# Their arguments lie in memory, where a filter cannot look, or they have a substitute that programs fall back to.
_AS_IF_ABSENT = ("clone3 openat2 io_uring_setup io_uring_enter io_uring_register memfd_create memfd_secret").split()  # noqa: SIM905  # as above

_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_SET_ID = 0o6000  # S_ISUID, S_ISGID
_MAKES_A_FILE = 0o20000100  # O_CREAT, O_TMPFILE
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # what is typed into a terminal

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
)
"""What every command is refused."""

# AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: of the own network namespace. AF_VSOCK, for one, leads out of it.
OWN_NETWORK = (1, 2, 10, 16)
"""The families of sockets for a command that has a network namespace of its own."""

SHARED: tuple[Rule, ...] = (
    # A pair of datagram sockets can send to the path of any other.
    Rule("socketpair", tests=(Test(1, "any", 2),)),
    Rule("shmget"),
    Rule("msgget"),
    Rule("semget"),
    # Another process's limits; 0 is one's own.
    Rule("prlimit64", tests=(Test(0, "any", 0xFFFFFFFF),)),
)
"""What a command is refused besides, where it has no namespaces of its own."""

"""The forbidden system calls of a command, and the seccomp filter that refuses them: BPF over `struct seccomp_data`.

The numbers come from Linux's arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
Law: a system call of another architecture than the filter's kills the process.
"""

from __future__ import annotations

import errno
import functools
import struct
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from callboard.errors import SandboxUnavailable

Machine: TypeAlias = Literal["x86_64", "aarch64"]


class SyscallNumbers(NamedTuple):
    """The number of a system call on each architecture, None where it has none."""

    x86_64: int | None
    aarch64: int | None


class ArgumentTest(NamedTuple):
    """A test of the low 32 bits of an argument; the kernel ignores the high ones of the calls below."""

    argument: int
    asks: Literal["equal", "any", "other"]
    """Whether it equals the value, has any of its bits, or differs from it."""
    value: int


class SyscallRule(NamedTuple):
    """A system call that fails with `error` if every test holds."""

    call: str
    error: int = errno.EPERM
    tests: tuple[ArgumentTest, ...] = ()


_ALWAYS_REFUSED: dict[str, SyscallNumbers] = {
    # other processes
    "ptrace": SyscallNumbers(101, 117),
    "process_vm_readv": SyscallNumbers(310, 270),
    "process_vm_writev": SyscallNumbers(311, 271),
    "process_madvise": SyscallNumbers(440, 440),
    "kcmp": SyscallNumbers(312, 272),
    "pidfd_getfd": SyscallNumbers(438, 438),
    # file systems
    "mount": SyscallNumbers(165, 40),
    "umount2": SyscallNumbers(166, 39),
    "pivot_root": SyscallNumbers(155, 41),
    "chroot": SyscallNumbers(161, 51),
    "open_tree": SyscallNumbers(428, 428),
    "open_tree_attr": SyscallNumbers(467, 467),
    "move_mount": SyscallNumbers(429, 429),
    "fsopen": SyscallNumbers(430, 430),
    "fsconfig": SyscallNumbers(431, 431),
    "fsmount": SyscallNumbers(432, 432),
    "fspick": SyscallNumbers(433, 433),
    "mount_setattr": SyscallNumbers(442, 442),
    "quotactl": SyscallNumbers(179, 60),
    "quotactl_fd": SyscallNumbers(443, 443),
    "name_to_handle_at": SyscallNumbers(303, 264),
    "open_by_handle_at": SyscallNumbers(304, 265),
    "fanotify_init": SyscallNumbers(300, 262),
    # namespaces
    "unshare": SyscallNumbers(272, 97),
    "setns": SyscallNumbers(308, 268),
    # large and often broken parts of the kernel
    "bpf": SyscallNumbers(321, 280),
    "add_key": SyscallNumbers(248, 217),
    "request_key": SyscallNumbers(249, 218),
    "keyctl": SyscallNumbers(250, 219),
    "perf_event_open": SyscallNumbers(298, 241),
    "userfaultfd": SyscallNumbers(323, 282),
    "lookup_dcookie": SyscallNumbers(212, 18),
    "move_pages": SyscallNumbers(279, 239),
    "migrate_pages": SyscallNumbers(256, 238),
    # the machine
    "kexec_load": SyscallNumbers(246, 104),
    "kexec_file_load": SyscallNumbers(320, 294),
    "init_module": SyscallNumbers(175, 105),
    "finit_module": SyscallNumbers(313, 273),
    "delete_module": SyscallNumbers(176, 106),
    "swapon": SyscallNumbers(167, 224),
    "swapoff": SyscallNumbers(168, 225),
    "reboot": SyscallNumbers(169, 142),
    "acct": SyscallNumbers(163, 89),
    "syslog": SyscallNumbers(103, 116),
    "vhangup": SyscallNumbers(153, 58),
    "settimeofday": SyscallNumbers(164, 170),
    "clock_settime": SyscallNumbers(227, 112),
    "clock_adjtime": SyscallNumbers(305, 266),
    "adjtimex": SyscallNumbers(159, 171),
    "sethostname": SyscallNumbers(170, 161),
    "setdomainname": SyscallNumbers(171, 162),
    "iopl": SyscallNumbers(172, None),
    "ioperm": SyscallNumbers(173, None),
}

CALLS: dict[str, SyscallNumbers] = {
    **_ALWAYS_REFUSED,
    # other processes
    "prlimit64": SyscallNumbers(302, 261),
    "process_mrelease": SyscallNumbers(448, 448),
    "setpriority": SyscallNumbers(141, 140),
    "ioprio_set": SyscallNumbers(251, 30),
    "sched_setparam": SyscallNumbers(142, 118),
    "sched_setscheduler": SyscallNumbers(144, 119),
    "sched_setaffinity": SyscallNumbers(203, 122),
    "sched_setattr": SyscallNumbers(314, 274),
    "fcntl": SyscallNumbers(72, 25),
    # namespaces
    "clone": SyscallNumbers(56, 220),
    "clone3": SyscallNumbers(435, 435),
    # large and often broken parts of the kernel
    "io_uring_setup": SyscallNumbers(425, 425),
    "io_uring_enter": SyscallNumbers(426, 426),
    "io_uring_register": SyscallNumbers(427, 427),
    # memory that is in no process's account
    "memfd_create": SyscallNumbers(319, 279),
    "memfd_secret": SyscallNumbers(447, 447),
    # system calls with some forbidden uses
    "ioctl": SyscallNumbers(16, 29),
    "chmod": SyscallNumbers(90, None),
    "fchmod": SyscallNumbers(91, 52),
    "fchmodat": SyscallNumbers(268, 53),
    "fchmodat2": SyscallNumbers(452, 452),
    "open": SyscallNumbers(2, None),
    "openat": SyscallNumbers(257, 56),
    "openat2": SyscallNumbers(437, 437),
    "creat": SyscallNumbers(85, None),
    "mknod": SyscallNumbers(133, None),
    "mknodat": SyscallNumbers(259, 33),
    "socket": SyscallNumbers(41, 198),
    "socketpair": SyscallNumbers(53, 199),
    # memory, messages and semaphores that processes have in common
    "shmget": SyscallNumbers(29, 194),
    "shmat": SyscallNumbers(30, 196),
    "shmctl": SyscallNumbers(31, 195),
    "msgget": SyscallNumbers(68, 186),
    "msgsnd": SyscallNumbers(69, 189),
    "msgrcv": SyscallNumbers(70, 188),
    "msgctl": SyscallNumbers(71, 187),
    "semget": SyscallNumbers(64, 190),
    "semop": SyscallNumbers(65, 193),
    "semtimedop": SyscallNumbers(220, 192),
    "semctl": SyscallNumbers(66, 191),
    "mq_open": SyscallNumbers(240, 180),
    "mq_unlink": SyscallNumbers(241, 181),
    # metadata of files
    "setxattr": SyscallNumbers(188, 5),
    "lsetxattr": SyscallNumbers(189, 6),
    "fsetxattr": SyscallNumbers(190, 7),
    "removexattr": SyscallNumbers(197, 14),
    "lremovexattr": SyscallNumbers(198, 15),
    "fremovexattr": SyscallNumbers(199, 16),
    "setxattrat": SyscallNumbers(463, 463),
    "removexattrat": SyscallNumbers(466, 466),
    "file_setattr": SyscallNumbers(469, 469),
}

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

REFUSED: tuple[SyscallRule, ...] = (
    *(SyscallRule(name) for name in _ALWAYS_REFUSED),
    *(SyscallRule(name, errno.ENOSYS) for name in _AS_IF_ABSENT),
    SyscallRule("clone", tests=(ArgumentTest(0, "any", _NEW_NAMESPACES),)),
    SyscallRule("ioctl", tests=(ArgumentTest(1, "equal", _TIOCSTI),)),
    SyscallRule("ioctl", tests=(ArgumentTest(1, "equal", _TIOCLINUX),)),
    SyscallRule("chmod", tests=(ArgumentTest(1, "any", _SET_ID),)),
    SyscallRule("fchmod", tests=(ArgumentTest(1, "any", _SET_ID),)),
    SyscallRule("fchmodat", tests=(ArgumentTest(2, "any", _SET_ID),)),
    SyscallRule("fchmodat2", tests=(ArgumentTest(2, "any", _SET_ID),)),
    SyscallRule("open", tests=(ArgumentTest(1, "any", _MAKES_A_FILE), ArgumentTest(2, "any", _SET_ID))),
    SyscallRule("openat", tests=(ArgumentTest(2, "any", _MAKES_A_FILE), ArgumentTest(3, "any", _SET_ID))),
    SyscallRule("creat", tests=(ArgumentTest(1, "any", _SET_ID),)),
    SyscallRule("mknod", tests=(ArgumentTest(1, "any", _SET_ID),)),
    SyscallRule("mknodat", tests=(ArgumentTest(2, "any", _SET_ID),)),
    # A process that opens the file next would wait for the holder of a lease.
    SyscallRule("fcntl", tests=(ArgumentTest(1, "equal", _F_SETLEASE),)),
    # The kernel loads a module for a kind of socket that it has not met: SCTP, DCCP, TIPC, families of netlink.
    SyscallRule("socketpair", errno.EAFNOSUPPORT, (ArgumentTest(0, "other", _UNIX),)),
    *(
        SyscallRule(
            "socket", errno.ESOCKTNOSUPPORT, (ArgumentTest(0, "equal", family), ArgumentTest(1, "any", 4))
        )  # SOCK_SEQPACKET, SOCK_DCCP
        for family in (_INTERNET, _INTERNET_6)
    ),
    *(
        SyscallRule(
            "socket",
            errno.EPROTONOSUPPORT,
            (ArgumentTest(0, "equal", family), *(ArgumentTest(2, "other", protocol) for protocol in protocols)),
        )
        for family, protocols in (
            (_INTERNET, (0, 1, 6, 17)),  # ICMP, TCP, UDP
            (_INTERNET_6, (0, 6, 17, 58)),
            (_NETLINK, (0,)),  # NETLINK_ROUTE, which lists the interfaces
        )
    ),
)
"""System calls that are refused for every command."""

OWN_NETWORK = (_UNIX, _INTERNET, _INTERNET_6, _NETLINK)
"""The families of sockets for a command that has a network namespace of its own. AF_VSOCK, for one, leads out of it."""

SHARED: tuple[SyscallRule, ...] = (
    # A pair of datagram sockets can send to the path of any other.
    SyscallRule("socketpair", tests=(ArgumentTest(1, "any", 2),)),
    # Other processes' objects can be used by their numbers, so refusing to make new ones is not enough.
    *(
        SyscallRule(name, errno.ENOSYS)
        for name in (
            *("shmget", "shmat", "shmctl", "msgget", "msgsnd", "msgrcv", "msgctl"),
            *("semget", "semop", "semtimedop", "semctl", "mq_open", "mq_unlink"),
        )
    ),
    # Other processes, or all of a user; 0 is the caller itself.
    *(
        SyscallRule(name, tests=(ArgumentTest(0, "any", _ALL),))
        for name in ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr")
    ),
    *(SyscallRule(name, tests=(ArgumentTest(1, "any", _ALL),)) for name in ("setpriority", "ioprio_set")),
    *(SyscallRule(name, tests=(ArgumentTest(0, "any", 2),)) for name in ("setpriority", "ioprio_set")),
    SyscallRule("process_mrelease"),
    # Setting the process that gets a signal when something can be read.
    *(SyscallRule("fcntl", tests=(ArgumentTest(1, "equal", command),)) for command in (_F_SETOWN, _F_SETOWN_EX)),
    *(SyscallRule("ioctl", tests=(ArgumentTest(1, "equal", command),)) for command in (_FIOSETOWN, _SIOCSPGRP)),
    # Landlock does not check these, and a filter does not know the file. Permissions, owners and times stay open,
    # because nearly every program sets them for its own files.
    *(
        SyscallRule(name, errno.EOPNOTSUPP)
        for name in ("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr")
    ),
    *(SyscallRule("ioctl", tests=(ArgumentTest(1, "equal", command),)) for command in _SETS_ATTRIBUTES),
    *(SyscallRule(name, errno.ENOSYS) for name in ("setxattrat", "removexattrat", "file_setattr")),
)
"""Also refused if a command has no namespaces of its own."""


# linux/bpf_common.h and linux/seccomp.h
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_KILL, _ERROR, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_TESTS = {"equal": _IF_EQUAL, "other": _IF_EQUAL, "any": _IF_ANY_BIT}

# linux/audit.h
_ARCHITECTURES: dict[Machine, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# From here on, numbers belong to x32, which has other numbers for the same calls.
_X32 = 0x40000000


class _Step(NamedTuple):
    """One instruction. A jump is the number of steps to skip."""

    code: int
    value: int
    if_true: int = 0
    if_false: int = 0


@functools.cache
def seccomp_filter(machine: str, *, namespaces: bool) -> bytes:
    """The program for a machine as `platform.machine()` names it, an array of `struct sock_filter`.

    `namespaces` says whether the command has its own. Raises SandboxUnavailable for other machines.
    """
    architecture = parse_machine(machine)
    families = OWN_NETWORK if namespaces else ()
    steps = [
        _Step(_LOAD, _ARCHITECTURE),
        _Step(_IF_EQUAL, _ARCHITECTURES[architecture], if_true=1),
        _Step(_RETURN, _KILL),
        _Step(_LOAD, _NUMBER),
    ]
    if architecture == "x86_64":
        steps += [_Step(_IF_AT_LEAST, _X32, if_false=1), _Step(_RETURN, _KILL)]
    for rule in list_rules(namespaces=namespaces):
        number = getattr(CALLS[rule.call], architecture)
        if number is not None:
            steps += _if_number(number, [*_if_all(rule.tests), _Step(_RETURN, _ERROR | rule.error)], reload=rule.tests)
    steps += _socket_steps(getattr(CALLS["socket"], architecture), families)
    steps.append(_Step(_RETURN, _ALLOW))
    return b"".join(struct.pack("=HBBI", step.code, step.if_true, step.if_false, step.value) for step in steps)


def parse_machine(machine: str) -> Machine:
    """Return the name of the machine in the tables. Raises SandboxUnavailable for one that they do not have."""
    match machine:
        case "x86_64" | "AMD64":
            return "x86_64"
        case "aarch64" | "arm64":
            return "aarch64"
        case _:
            raise SandboxUnavailable(f"there is no table of system calls for {machine}")


def list_rules(*, namespaces: bool) -> tuple[SyscallRule, ...]:
    """Return the rules for a command, in order: the first that matches holds."""
    return REFUSED if namespaces else (*REFUSED, *SHARED)


def _socket_steps(number: int, families: Sequence[int]) -> list[_Step]:
    """Other address families fail as if the kernel had been built without them."""
    inside = [
        _Step(_LOAD, _ARGUMENTS),
        *(_Step(_IF_EQUAL, family, if_true=len(families) - place) for place, family in enumerate(families)),
        _Step(_RETURN, _ERROR | errno.EAFNOSUPPORT),
    ]
    return _if_number(number, inside, reload=families)


def _if_number(number: int, inside: list[_Step], *, reload: Sequence[object]) -> list[_Step]:
    """Run `inside` for this system call only; then reload the number if `inside` loads something else."""
    after = [_Step(_LOAD, _NUMBER)] if reload else []
    return [_Step(_IF_EQUAL, number, if_false=len(inside) + len(after)), *inside, *after]


def _if_all(tests: Sequence[ArgumentTest]) -> list[_Step]:
    """Fall through if every test holds, else skip the next step."""
    steps: list[_Step] = []
    for place, test in enumerate(tests):
        behind = 2 * (len(tests) - place - 1) + 1
        steps += [
            _Step(_LOAD, _ARGUMENTS + 8 * test.argument),
            _Step(_TESTS[test.asks], test.value, *((behind, 0) if test.asks == "other" else (0, behind))),
        ]
    return steps

"""The filter says what the table says."""

import errno
import platform
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.sandbox import SandboxUnavailable
from callboard.sandbox.seccomp import CALLS, OWN_NETWORK, list_rules, seccomp_filter

KILL, ALLOW = 0x80000000, 0x7FFF0000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
machines = pytest.mark.parametrize("machine", list(ARCHITECTURES))
namespaces = pytest.mark.parametrize("own", [True, False])


def verdict(program, number, arguments=(), architecture=ARCHITECTURES["x86_64"]):
    """Runs classic BPF on a struct seccomp_data."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    steps = [struct.unpack_from("=HBBI", program, place) for place in range(0, len(program), 8)]
    accumulator = place = 0
    while True:
        code, if_true, if_false, value = steps[place]
        place += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif code == 0x06:
            return value
        else:
            found = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: accumulator & value != 0}[code]
            place += if_true if found else if_false


def refused(error):
    return 0x00050000 | error


def expected(machine, number, arguments, *, own):
    low = [argument & 0xFFFFFFFF for argument in arguments]
    if machine == "x86_64" and number >= 0x40000000:
        return KILL
    for rule in list_rules(namespaces=own):
        asks = {
            "equal": lambda test: low[test.argument] == test.value,
            "other": lambda test: low[test.argument] != test.value,
            "any": lambda test: low[test.argument] & test.value,
        }
        if getattr(CALLS[rule.call], machine) == number and all(asks[test.asks](test) for test in rule.tests):
            return refused(rule.error)
    if number == getattr(CALLS["socket"], machine) and low[0] not in (OWN_NETWORK if own else ()):
        return refused(errno.EAFNOSUPPORT)
    return ALLOW


def numbers(machine):
    known = [getattr(call, machine) for call in CALLS.values()]
    return st.sampled_from([number for number in known if number is not None]) | st.integers(0, 2**32 - 1)


interesting = st.sampled_from(
    [0, 1, 2, 5, 10, 16, 40, 0o4755, 0o2755, 0o644, 0o101, 0o20200002, 0x5412, 0x541C, 0x10000000, 0x11, 0x100005412]
)
arguments = st.lists(interesting | st.integers(0, 2**64 - 1), min_size=6, max_size=6)


@machines
@namespaces
@given(data=st.data())
def test_table(machine, own, data):
    number, values = data.draw(numbers(machine)), data.draw(arguments)
    found = verdict(seccomp_filter(machine, namespaces=own), number, values, ARCHITECTURES[machine])
    assert found == expected(machine, number, values, own=own)


@machines
@given(st.integers(0, 2**32 - 1), st.integers(0, 500))
def test_other_architectures(machine, architecture, number):
    if architecture != ARCHITECTURES[machine]:
        assert verdict(seccomp_filter(machine, namespaces=True), number, (), architecture) == KILL


@table(
    ("number", "arguments", "found"),
    [
        (0, (), ALLOW),  # read
        (101, (), refused(errno.EPERM)),  # ptrace
        (0x40000000, (), KILL),  # x32's read
        (435, (), refused(errno.ENOSYS)),  # clone3, for which clone is the substitute
        (56, (0x11,), ALLOW),  # a fork
        (56, (0x10000011,), refused(errno.EPERM)),  # with CLONE_NEWUSER
        (90, (0, 0o755), ALLOW),  # chmod
        (90, (0, 0o4755), refused(errno.EPERM)),
        (257, (0, 0, 0, 0o4755), ALLOW),  # openat without O_CREAT, where the mode is what was left there
        (257, (0, 0, 0o101, 0o4755), refused(errno.EPERM)),
        (16, (0, 0x5413), ALLOW),  # ioctl TIOCGWINSZ
        (16, (0, 0x100005412), refused(errno.EPERM)),  # TIOCSTI: the kernel takes 32 bits of it
        (41, (2, 1), ALLOW),  # socket(AF_INET)
        (41, (40, 1), refused(errno.EAFNOSUPPORT)),  # AF_VSOCK
        (41, (2, 0o2000002, 17), ALLOW),  # UDP
        (41, (2, 1, 132), refused(errno.EPROTONOSUPPORT)),  # SCTP, a module
        (41, (10, 5, 0), refused(errno.ESOCKTNOSUPPORT)),
        (41, (16, 3, 0), ALLOW),  # NETLINK_ROUTE
        (41, (16, 3, 9), refused(errno.EPROTONOSUPPORT)),  # NETLINK_AUDIT
        (53, (30, 5, 0), refused(errno.EAFNOSUPPORT)),  # a pair of TIPC, a module
        (72, (3, 1024, 0), refused(errno.EPERM)),  # F_SETLEASE
        (72, (3, 2, 1), ALLOW),  # F_SETFD
        (64, (0, 1, 0), ALLOW),  # semget, of the own namespace
    ],
)
def test_cases(number, arguments, found):
    assert verdict(seccomp_filter("x86_64", namespaces=True), number, arguments) == found


@table(
    ("number", "arguments", "found"),
    [
        (41, (1, 1), refused(errno.EAFNOSUPPORT)),
        (53, (1, 0o2000001), ALLOW),  # socketpair, SOCK_STREAM | SOCK_CLOEXEC
        (53, (1, 2), refused(errno.EPERM)),
        (302, (0, 7), ALLOW),  # one's own limits
        (302, (1234, 7), refused(errno.EPERM)),
        (141, (0, 0, 5), ALLOW),  # setpriority of oneself
        (141, (0, 1234, 5), refused(errno.EPERM)),
        (141, (2, 0, 5), refused(errno.EPERM)),  # of all that a user has
        (251, (3, 0, 5), refused(errno.EPERM)),
        (203, (0,), ALLOW),  # sched_setaffinity
        (203, (1234,), refused(errno.EPERM)),
        (30, (0,), refused(errno.ENOSYS)),  # shmat
        (240, (0,), refused(errno.ENOSYS)),  # mq_open
        (16, (0, 0x40086602), refused(errno.EPERM)),  # FS_IOC_SETFLAGS
        (90, (0, 0o644), ALLOW),  # chmod
        (188, (), refused(errno.EOPNOTSUPP)),  # setxattr
        (90, (0, 0o4644), refused(errno.EPERM)),
        (257, (0, 0, 0o2), ALLOW),  # openat
    ],
)
def test_cases_without_namespaces(number, arguments, found):
    assert verdict(seccomp_filter("x86_64", namespaces=False), number, arguments) == found


def test_unknown_machine():
    with pytest.raises(SandboxUnavailable, match="riscv64"):
        seccomp_filter("riscv64", namespaces=True)


@pytest.mark.parametrize(
    ("machine", "header"),
    [("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "/usr/include/asm-generic/unistd.h")],
)
def test_numbers(machine, header):
    """Against the kernel's own, where they are installed; what is newer than these is not in them."""
    if not Path(header).exists():
        pytest.skip(f"there is no header {header}")
    text = Path(header).read_text()
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    for name, call in CALLS.items():
        assert known.get(name, getattr(call, machine)) == getattr(call, machine), name


def test_this_machine_is_in_the_tests():
    assert platform.machine() in ARCHITECTURES or platform.system() != "Linux"

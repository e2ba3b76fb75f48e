"""Compile the rules of `syscalls` into a seccomp filter: classic BPF over `struct seccomp_data`.

Law: a system call of another architecture than the filter's ends the process.
"""

from __future__ import annotations

import errno
import functools
import struct
from collections.abc import Sequence
from typing import NamedTuple

from callboard.errors import SandboxUnavailable
from callboard.sandbox.syscalls import CALLS, OWN_NETWORK, REFUSED, SHARED, ArgumentTest, Machine, SyscallRule

# linux/bpf_common.h and linux/seccomp.h
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_KILL, _ERROR, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_TESTS = {"equal": _IF_EQUAL, "other": _IF_EQUAL, "any": _IF_ANY_BIT}

# linux/audit.h
_ARCHITECTURES: dict[Machine, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Numbers from here on are those of x32, which are other numbers of the same calls.
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
            steps += _rule_steps(number, rule)
    steps += _socket_steps(getattr(CALLS["socket"], architecture), families)
    steps.append(_Step(_RETURN, _ALLOW))
    return b"".join(struct.pack("=HBBI", step.code, step.if_true, step.if_false, step.value) for step in steps)


def parse_machine(machine: str) -> Machine:
    """The name of the machine in the tables. Raises SandboxUnavailable for one that they do not have."""
    match machine:
        case "x86_64" | "AMD64":
            return "x86_64"
        case "aarch64" | "arm64":
            return "aarch64"
        case _:
            raise SandboxUnavailable(f"there is no table of system calls for {machine}")


def list_rules(*, namespaces: bool) -> tuple[SyscallRule, ...]:
    """The rules for a command, in order: the first that matches holds."""
    return REFUSED if namespaces else (*REFUSED, *SHARED)


def _rule_steps(number: int, rule: SyscallRule) -> list[_Step]:
    return _if_number(number, [*_if_all(rule.tests), _Step(_RETURN, _ERROR | rule.error)], reload=rule.tests)


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

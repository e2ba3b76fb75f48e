"""Runs a command that it outlives. A script of its own: `supervisor.py LIFELINE RESTRICTION ... -- COMMAND ...`.

Whatever the command leaves behind becomes this process's child, and is ended with it: when the command is over,
when nothing more can come from the socket LIFELINE, as when whoever holds its other end dies, or on SIGTERM. What
went wrong before the command began is written there. The command is subject to each RESTRICTION:

  seccomp=NUMBER    a descriptor from which to read the filter
  write=PATH        Landlock: all of a file or directory may be used. Of what no such line names, nothing may.
  read=PATH         Landlock: may be read, and run

With `supervisor.py abi`, it prints the version of the kernel's Landlock, 0 for none. See landlock(7).
"""

from __future__ import annotations

# ruff: noqa: PTH123, PTH208, SIM105  # each module that is imported costs a command its time
import ctypes
import os
import select
import signal
import stat
import struct
import sys

# linux/prctl.h
_DEATH_SIGNAL, _SECCOMP, _DROP_BOUND, _SUBREAPER, _NO_NEW_PRIVILEGES = 1, 22, 24, 36, 38
_FILTER = 2
# linux/landlock.h. The numbers of these calls are the same on every architecture.
_CREATE, _ADD, _RESTRICT, _VERSION = 444, 445, 446, 1
_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
# By version: what may be forbidden of files, and the size of the structure with what of the network and of others.
_FILES = (0, 0x1FFF, 0x3FFF, 0x7FFF, 0x7FFF, 0xFFFF, 0xFFFF, 0xFFFF)
_SIZES = (0, 8, 8, 8, 16, 16, 24, 24)
_TCP, _SCOPES = 3, 3  # bind and connect; abstract sockets and signals

_CAPABILITY_VERSION = 0x20080522  # linux/capability.h
_CAPABILITIES = 64

_SIGNALLED = 128
_PATIENCE = 0.01

_linux = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _version() -> int:
    found: int = _libc.syscall(_CREATE, None, 0, _VERSION)
    return min(max(0, found), len(_FILES) - 1)


def _restrict_files(restrictions: list[tuple[str, str]]) -> None:
    version = _version()
    if not version:
        raise OSError("no Landlock")
    handled = _FILES[version]
    attributes = struct.pack("=QQQ", handled, _TCP, _SCOPES)[: _SIZES[version]]
    rules = _checked(_libc.syscall(_CREATE, attributes, len(attributes), 0))
    for kind, path in restrictions:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        allowed = handled if kind == "write" else handled & (_EXECUTE | _READ | _LIST)
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            allowed &= _OF_FILES
        _checked(_libc.syscall(_ADD, rules, 1, struct.pack("=Qi", allowed, place), 0))
        os.close(place)
    _checked(_libc.syscall(_RESTRICT, rules, 0))
    os.close(rules)


def _drop_capabilities() -> None:
    for number in range(_CAPABILITIES):
        _libc.prctl(_DROP_BOUND, number, 0, 0, 0)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    _checked(_libc.capset(header, bytes(24)))


def _install(descriptor: int) -> None:
    with open(descriptor, "rb") as file:
        program = file.read()
    kept = ctypes.create_string_buffer(program, len(program))
    _checked(_libc.prctl(_SECCOMP, _FILTER, struct.pack("@HP", len(program) // 8, ctypes.addressof(kept)), 0, 0))


def _become(command: list[str], restrictions: list[tuple[str, str]]) -> None:
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    if restrictions:
        _checked(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        _restrict_files([each for each in restrictions if each[0] != "seccomp"])
        if os.geteuid() == 0:
            _drop_capabilities()
        for kind, value in restrictions:
            if kind == "seccomp":
                _install(int(value))
    os.execv(command[0], command)  # noqa: S606  # which is the purpose


def _beneath(root: int) -> list[int]:
    """The processes that came of this one; all are looked at, since it is done once."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                pass
    found = [root]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found[1:]


def _reaped(statuses: dict[int, int]) -> bool:
    """Takes note of the children that are over; whether any is left."""
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            statuses[ended[0]] = ended[1]
    except ChildProcessError:
        return False
    return True


def _end(group: int) -> None:
    """Until this process has no child: what is ended leaves its own to it."""
    while _reaped({}):
        for process in _beneath(os.getpid()) if _linux else [-group]:
            try:
                os.kill(process, signal.SIGKILL)
            except OSError:
                pass
        select.select([], [], [], _PATIENCE)


def _started(command: list[str], restrictions: list[tuple[str, str]], lifeline: int) -> int:
    os.set_inheritable(lifeline, False)
    child = os.fork()
    if not child:
        try:
            _become(command, restrictions)
        except OSError as error:
            os.write(lifeline, str(error).encode())
        finally:
            os._exit(1)
    return child


def _main(lifeline: int, restrictions: list[tuple[str, str]], command: list[str]) -> int:
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    told: list[bool] = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    if _linux:
        _checked(_libc.prctl(_SUBREAPER, 1, 0, 0, 0))
        _checked(_libc.prctl(_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0))
    child = _started(command, restrictions, lifeline)
    statuses: dict[int, int] = {}
    while child not in statuses and not told:
        ready, _, _ = select.select([lifeline, awake], [], [])
        if lifeline in ready:
            break
        os.read(awake, 4096)
        statuses.clear()
        _reaped(statuses)
    _end(child)
    status = statuses.get(child, int(signal.SIGKILL))
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else _SIGNALLED + os.WTERMSIG(status)


if __name__ == "__main__":
    if sys.argv[1] == "abi":
        sys.stdout.write(str(_version()))
    else:
        _between = sys.argv.index("--")
        _restrictions = [(kind, value) for kind, _, value in (each.partition("=") for each in sys.argv[2:_between])]
        os._exit(_main(int(sys.argv[1]), _restrictions, sys.argv[_between + 1 :]))

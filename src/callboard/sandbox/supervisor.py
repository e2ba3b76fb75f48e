"""Run a command under restrictions, and kill its orphans. A script.

It runs in three ways:

  supervisor.py fork OWNER                          Fork a supervisor for each request of `supervised_process` on the
                                                    socket that is standard input. OWNER is our number, for ps(1).
  supervisor.py LIFELINE server=PATH -- COMMAND ... Supervise one program with standard streams of its own.
  supervisor.py abi                                 Print the version of the kernel's Landlock, 0 for none.

Orphans of the command become children of its supervisor. The supervisor kills them when the command ends, on SIGTERM,
or when the socket LIFELINE reaches its end, because the process at the other end closed LIFELINE or died.

A forked supervisor reads its command from LIFELINE. It writes its process number to LIFELINE, then an error if the
command cannot start, and at the end the exit status. Restrictions apply to the command, never to the supervisor:

  directory=PATH    the working directory
  seccomp=NUMBER    a descriptor from which to read the filter
  write=PATH        Landlock: full access to a file or directory. Paths without a rule are not accessible.
  read=PATH         Landlock: may be read, and run
  launch=WAY        mounts that bubblewrap cannot make; with user=, tree= and source=, see `launcher`

With server=PATH, the command's first word is only its name. The supervisor passes SIGTERM on to the program's group,
writes errors to standard error, and ends as the program did. See landlock(7).
"""

from __future__ import annotations

# ruff: noqa: PTH123, PTH208, SIM105  # each module that is imported costs time
import ctypes
import importlib
import marshal
import os
import select
import signal
import stat
import struct
import sys

# linux/prctl.h
_DEATH_SIGNAL, _DROP_BOUND, _SUBREAPER, _NO_NEW_PRIVILEGES = 1, 24, 36, 38
_SET_FILTER = 1  # linux/seccomp.h
_SECCOMP_CALL = {"x86_64": 317, "aarch64": 277}
# linux/landlock.h. The numbers of these calls are the same on every architecture.
_CREATE, _ADD, _RESTRICT, _VERSION = 444, 445, 446, 1
EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_FILE_RIGHTS = EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
# All but reading, running and controlling devices: removing, making and moving, too.
CHANGES = 0x7FFF & ~(EXECUTE | _READ | _LIST)
# By version: what may be forbidden of files, and the size of the structure with what of the network and of others.
_FILES = (0, 0x1FFF, 0x3FFF, 0x7FFF, 0x7FFF, 0xFFFF, 0xFFFF, 0xFFFF)
_SIZES = (0, 8, 8, 8, 16, 16, 24, 24)
_TCP, _SCOPES = 3, 3  # bind and connect; abstract sockets and signals

_CAPABILITY_VERSION = 0x20080522  # linux/capability.h
_CAPABILITIES = 64

_SIGNALLED = 128
_CANNOT_RUN = 127
_POLL_SECONDS = 0.01

# Python ignores some, and a shell that starts a process in the background ignores SIGINT and SIGQUIT.
_RESET = (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT)

_FIRST_DESCRIPTOR = 3  # the first that a command inherits beside its standard streams
_MAX_FILES = 64  # of a request

_linux = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def landlock_version() -> int:
    """Return the version of the kernel's Landlock, 0 for none."""
    version: int = _libc.syscall(_CREATE, None, 0, _VERSION) if _linux else 0
    return min(max(0, version), len(_FILES) - 1)


def restrict_thread(rights: int, permitted: list[tuple[str, int]]) -> None:
    """Remove rights to files, TCP and signals to other processes from this thread and its children.

    Args:
        rights: The rights to files to remove, as far as the kernel knows them.
        permitted: Paths, and the rights that stay for all beneath them. A missing path is ignored.
    """
    version = landlock_version()
    if not version:
        raise OSError("no Landlock")
    handled = rights & _FILES[version]
    attributes = struct.pack("=QQQ", handled, _TCP, _SCOPES)[: _SIZES[version]]
    rules = _check(_libc.syscall(_CREATE, attributes, len(attributes), 0))
    for path, remaining in permitted:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            continue
        allowed = handled & remaining
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            allowed &= _FILE_RIGHTS
        _check(_libc.syscall(_ADD, rules, 1, struct.pack("=Qi", allowed, place), 0))
        os.close(place)
    _check(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _check(_libc.syscall(_RESTRICT, rules, 0))
    os.close(rules)


def _install_filter(descriptor: int) -> None:
    with open(descriptor, "rb") as file:
        program = file.read()
    buffer = ctypes.create_string_buffer(program, len(program))
    filtering = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    _check(_libc.syscall(_SECCOMP_CALL[os.uname().machine], _SET_FILTER, 0, filtering))


def _environment() -> dict[bytes, bytes]:
    """Return the environment as this process got it; Python adds the locale that it chose to `os.environ`."""
    if not _linux:
        return dict(os.environb)
    with open("/proc/self/environ", "rb") as file:
        pairs = [each.partition(b"=") for each in file.read().split(b"\0") if each]
    return {name: value for name, _, value in pairs}


def _exec_restricted(
    command: list[str], restrictions: list[tuple[str, str]], environment: dict[bytes, bytes], server: str
) -> None:
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    if _linux:
        _check(_libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0))
    program: str | int = server or command[0]
    values = dict(restrictions)
    if "directory" in values:
        os.chdir(values["directory"])
    if "launch" in values:
        program = importlib.import_module("launcher").prepare(restrictions, program)
    if "seccomp" in values:
        kinds = {"read": EXECUTE | _READ | _LIST, "write": _FILES[-1]}
        restrict_thread(_FILES[-1], [(path, kinds[kind]) for kind, path in restrictions if kind in kinds])
        if os.geteuid() == 0:
            for capability in range(_CAPABILITIES):
                _libc.prctl(_DROP_BOUND, capability, 0, 0, 0)
            _check(_libc.capset(struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24)))
        _install_filter(int(values["seccomp"]))
    os.execve(program, command, environment)  # noqa: S606  # which is the purpose


def _descendants(root: int) -> list[int]:
    """Return all descendants of a process. /proc is read whole, as this is done once."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                pass
    pids = [root]
    for process in pids:
        pids += [child for child, parent in parents.items() if parent == process]
    return pids[1:]


def _reap(statuses: dict[int, int]) -> bool:
    """Collect the statuses of ended children; return whether any child is left."""
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            statuses[ended[0]] = ended[1]
    except ChildProcessError:
        return False
    return True


def _kill_all(group: int) -> None:
    """Kill until this process has no child: each killed process leaves its own children to it."""
    while _reap({}):
        for process in _descendants(os.getpid()) if _linux else [-group]:
            try:
                os.kill(process, signal.SIGKILL)
            except OSError:
                pass
        select.select([], [], [], _POLL_SECONDS)


def _start(
    command: list[str],
    restrictions: list[tuple[str, str]],
    environment: dict[bytes, bytes],
    server: str,
    lifeline: int,
) -> int:
    os.set_inheritable(lifeline, False)
    child = os.fork()
    if not child:
        try:
            _exec_restricted(command, restrictions, environment, server)
        except OSError as error:
            if server:
                os.write(2, f"{server}: {error.strerror}\n".encode())
            else:
                os.write(lifeline, f"{error}\n".encode())
        finally:
            os._exit(_CANNOT_RUN)
    if server:
        null = os.open("/dev/null", os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
        os.close(null)
    return child


def _main(
    lifeline: int,
    command: list[str],
    restrictions: list[tuple[str, str]],
    environment: dict[bytes, bytes],
    server: str = "",
) -> int:
    """Run the command to its end; return its status as of waitpid(2)."""
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    terminations: list[bool] = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: terminations.append(True))
    if _linux:
        _check(_libc.prctl(_SUBREAPER, 1, 0, 0, 0))
        if not server:
            _check(_libc.prctl(_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0))
    child = _start(command, restrictions, environment, server, lifeline)
    watched = select.poll()
    for descriptor in (lifeline, awake):
        watched.register(descriptor, select.POLLIN)
    statuses: dict[int, int] = {}
    while child not in statuses:
        ready = dict(watched.poll())
        if lifeline in ready or (terminations and not server):
            break
        if awake in ready:
            os.read(awake, 4096)
            statuses.clear()
            _reap(statuses)
        if terminations:
            terminations.clear()
            try:
                os.killpg(child, signal.SIGTERM)
            except OSError:
                pass
    _kill_all(child)
    return statuses.get(child, int(signal.SIGKILL))


def _supervise(files: list[int]) -> None:
    """Supervise the command of a request.

    Args:
        files: Standard input, the output, what else the command inherits, and the lifeline, in ascending order. No
            number is below its new one, so a number is free when it is taken.
    """
    for number, file in zip((0, 1, *range(_FIRST_DESCRIPTOR, _MAX_FILES)), files):  # noqa: B905  # as many as came
        os.dup2(file, number)
    os.dup2(1, 2)
    lifeline = len(files)
    os.closerange(lifeline + 1, files[-1] + 1)
    os.write(lifeline, b"%d\n" % os.getpid())
    with open(lifeline, "rb", closefd=False) as request:
        command, restrictions, environment = marshal.load(request)  # noqa: S302  # our owner's
    texts = [(kind, os.fsdecode(value)) for kind, value in restrictions]
    status = _main(lifeline, [*map(os.fsdecode, command)], texts, environment)
    os.write(lifeline, b"%d\n" % _exit_code(status))


def _fork_supervisors() -> None:
    import socket  # noqa: PLC0415  # slow, and the other ways do not need it

    sys.path.append(os.path.dirname(__file__))  # noqa: PTH120  # as above
    importlib.import_module("launcher")
    signal.signal(signal.SIGCHLD, lambda *_: _reap({}))
    requests = socket.socket(fileno=0)
    while True:
        request, files, flags, _ = socket.recv_fds(requests, 1, _MAX_FILES)
        if not request:
            return
        try:
            # The owner of a request that is dropped sees that its lifeline is closed.
            if not flags & socket.MSG_CTRUNC and not os.fork():
                try:
                    _supervise(files)
                finally:
                    os._exit(0)
        except OSError:  # too many processes
            pass
        for file in files:
            os.close(file)


def _exit_code(status: int) -> int:
    """Return the exit code for a status of waitpid(2), as a shell does."""
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else _SIGNALLED + os.WTERMSIG(status)


def _end_as(status: int) -> None:
    """End with the status of a server, by its signal too."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(_exit_code(status))


if __name__ == "__main__":
    if sys.argv[1] == "abi":
        sys.stdout.write(str(landlock_version()))
    elif sys.argv[1] == "fork":
        _fork_supervisors()
    else:
        _server = sys.argv[2].removeprefix("server=")
        _end_as(_main(int(sys.argv[1]), sys.argv[4:], [], _environment(), _server))

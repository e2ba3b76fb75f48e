"""Run a program, and kill its orphans. A script of its own: `supervisor.py LIFELINE PROGRAM NAME ARGUMENT ...`.

Processes that the program leaves behind, in sessions of their own too, become this process's children
(PR_SET_CHILD_SUBREAPER, prctl(2)). They are killed when the program ends, or when the descriptor LIFELINE reaches its end,
because the process at its other end closed it or died. SIGTERM is passed on to the program's group. The exit status is the
program's.

Linux only. A program of the same user can kill this process, and so get away: it is for servers that are careless,
not for those that are hostile, which belong in a container.
"""

from __future__ import annotations

# ruff: noqa: PTH123, PTH208, SIM105  # each module that is imported costs a server its time
import ctypes
import os
import select
import signal
import sys

_SUBREAPER = 36  # linux/prctl.h
_POLL_SECONDS = 0.01
_CANNOT_RUN = 127


def _environment() -> dict[bytes, bytes]:
    """The environment as this process got it; Python adds the locale that it chose to `os.environ`."""
    with open("/proc/self/environ", "rb") as file:
        pairs = [each.partition(b"=") for each in file.read().split(b"\0") if each]
    return {name: value for name, _, value in pairs}


def _start(lifeline: int, program: str, words: list[str]) -> int:
    os.set_inheritable(lifeline, False)
    child = os.fork()
    if not child:
        try:
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            os.execve(program, words, _environment())  # noqa: S606  # which is the purpose
        except OSError as error:
            os.write(2, f"{program}: {error.strerror}\n".encode())
        finally:
            os._exit(_CANNOT_RUN)
    return child


def _close_pipes() -> None:
    """Keep no end of the program's pipes, so that they close when the program closes them."""
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os.close(null)


def _descendants(root: int) -> list[int]:
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                pass
    processes = [root]
    for process in processes:
        processes += [child for child, parent in parents.items() if parent == process]
    return processes[1:]


def _reap(statuses: dict[int, int]) -> bool:
    """Collect the statuses of ended children; return whether any child is left."""
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            statuses[ended[0]] = ended[1]
    except ChildProcessError:
        return False
    return True


def _kill_all(statuses: dict[int, int]) -> None:
    while _reap(statuses):
        for process in _descendants(os.getpid()):
            try:
                os.kill(process, signal.SIGKILL)
            except OSError:
                pass
        select.select([], [], [], _POLL_SECONDS)


def _main(lifeline: int, program: str, words: list[str]) -> int:
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    terminations: list[int] = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: terminations.append(1))
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    child = _start(lifeline, program, words)
    _close_pipes()
    statuses: dict[int, int] = {}
    while child not in statuses:
        ready, _, _ = select.select([lifeline, awake], [], [])
        if lifeline in ready:
            break
        os.read(awake, 4096)
        if terminations:
            terminations.clear()
            try:
                os.killpg(child, signal.SIGTERM)
            except OSError:
                pass
        # Statuses of orphans are of no use.
        statuses = {process: status for process, status in statuses.items() if process == child}
        _reap(statuses)
    _kill_all(statuses)
    return statuses.get(child, int(signal.SIGKILL))


def _end_as(status: int) -> None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    _end_as(_main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))

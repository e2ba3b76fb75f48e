"""Count a process and its descendants, and their memory, and kill these, by /proc.

Without /proc only the process itself is seen.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from mmap import PAGESIZE


def list_processes(root: int, limit: int) -> list[int]:
    """Return the process and its descendants; the search ends when there are more than `limit`."""
    pids = [root]
    for pid in pids:
        if len(pids) > limit:
            break
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  # done often
                pids += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return pids


def kill_descendants(limit: int = 10_000) -> None:
    """Kill what this process has started, and what that has, until nothing is left: some may fork meanwhile."""
    killed: set[int] = set()
    while new := set(list_processes(os.getpid(), limit)[1:]) - killed:
        for pid in new:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        killed |= new


def resident_bytes(processes: Sequence[int]) -> int:
    """Resident bytes; shared memory counts once for each process. Takes a few microseconds a process."""
    total = 0
    for process in processes:
        with suppress(OSError, IndexError):
            total += int(_read(f"/proc/{process}/statm").split()[1]) * PAGESIZE
    return total


def proportional_bytes(processes: Sequence[int]) -> int:
    """Proportional bytes: shared memory is divided among its processes. Takes up to a millisecond for 100 MB."""
    total = 0
    for process in processes:
        try:
            rollup = _read(f"/proc/{process}/smaps_rollup")
        except OSError:
            total += resident_bytes([process])
            continue
        for line in rollup.splitlines():
            if line.startswith(b"Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def _read(file: str) -> bytes:
    with open(file, "rb", buffering=0) as opened:  # noqa: PTH123  # read often
        return opened.read() or b""

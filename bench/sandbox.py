"""What does a command cost in a sandbox?

usage: python -m bench.sandbox

Milliseconds of a command that does nothing, wall and CPU time: alone, and in each sandbox that works here. CPU time is
ours and that of all processes that the command needs. Each figure is the mean of so many commands, best of five. Wall
time grows with the load of the machine. The first command of a process also starts the fork server, and is not counted.
"""

import asyncio
import ctypes
import os
import resource
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from callboard.sandbox import Confinement, SandboxUnavailable, find_sandbox
from callboard.sandbox.bubblewrap import Bubblewrap

COMMANDS = 50
TIMES = 5
SUBREAPER = 36  # linux/prctl.h


async def plain() -> None:
    process = await asyncio.create_subprocess_exec("true", stdin=DEVNULL, stdout=PIPE)
    await process.communicate()


def used() -> float:
    """Seconds of CPU time: ours, of our ended children, and of the fork server, which `main` makes a child of ours."""
    each = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    ticks = 0
    for pid in Path("/proc/self/task", str(os.getpid()), "children").read_text().split():
        # utime, stime, cutime, cstime
        ticks += sum(map(int, Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[11:15]))
    return sum(one.ru_utime + one.ru_stime for one in each) + ticks / os.sysconf("SC_CLK_TCK")


async def cost(command: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    await command()
    wall, cpu = [], []
    for _ in range(TIMES):
        began, before = time.perf_counter(), used()
        for _ in range(COMMANDS):
            await command()
        wall.append((time.perf_counter() - began) / COMMANDS * 1e3)
        cpu.append((used() - before) / COMMANDS * 1e3)
    return min(wall), min(cpu)


async def costs() -> dict[str, tuple[float, float]]:
    found = {"by itself": await cost(plain)}
    with tempfile.TemporaryDirectory() as workspace:
        confinement = Confinement(workspace=Path(workspace))
        for name in ("bubblewrap", "landlock", "none"):
            try:
                sandbox = await find_sandbox(prefer=name)
            except SandboxUnavailable:
                continue
            found[name] = await cost(partial(sandbox.run, ["true"], confinement))
            if isinstance(sandbox, Bubblewrap) and os.getuid() == 0:
                unmapped = Bubblewrap(sandbox.program, tree=sandbox.tree, ways=("nested",))
                found["bubblewrap, root as root"] = await cost(partial(unmapped.run, ["true"], confinement))
    return found


def main() -> None:
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    found = asyncio.run(costs())
    print(f"A command that does nothing, {COMMANDS} one after the other, best of {TIMES}\n")
    print(f"{'':32}{'ms':>10}{'CPU ms':>10}")
    for name, figures in found.items():
        print(f"{name:32}" + "".join(f"{figure:10.1f}" for figure in figures))


if __name__ == "__main__":
    main()

"""What does an import cost, and the command line?

usage: python -m bench.imports

Each is a process of its own, ten times after one that warms the caches; the least counts. Milliseconds of wall
and CPU time net of an interpreter that does nothing, the modules that are then loaded and the resident memory, the
interpreter's own among both. Wall time grows with what else the machine does.
"""

import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from bench.contenders import label, python_of, row

RUNS = 10
REPORT = """
import resource, sys
print(len(sys.modules), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
IMPORTS = (
    ("callboard", "import callboard"),
    ("callboard", "from callboard import Agent, tool"),
    ("pydantic-ai", "from pydantic_ai import Agent"),
    ("openai-agents", "from agents import Agent, Runner"),
    ("smolagents", "from smolagents import ToolCallingAgent"),
)


class Ran(NamedTuple):
    wall: float
    cpu: float
    """Both in milliseconds."""
    said: str


def ran(command: list[str]) -> Ran:
    used, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    wall, uses = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = uses.ru_utime + uses.ru_stime - used.ru_utime - used.ru_stime
    return Ran(wall * 1e3, cpu * 1e3, said)


def best(*commands: list[str]) -> list[Ran]:
    """Of each command the least wall and CPU time. They take turns, so that what else runs meets them alike."""
    every = [[ran(command) for command in commands] for _ in range(RUNS + 1)][1:]
    return [
        Ran(min(run.wall for run in runs), min(run.cpu for run in runs), runs[0].said)
        for runs in zip(*every, strict=True)
    ]


def imported(name: str, statement: str) -> tuple[float, float, int, float]:
    """Milliseconds of wall and of CPU net of the interpreter, modules, MB."""
    python = [python_of(name), "-W", "ignore", "-c"]
    bare, whole = best([*python, REPORT], [*python, statement + REPORT])
    modules, kilobytes = map(int, whole.said.splitlines()[-1].split())
    return whole.wall - bare.wall, whole.cpu - bare.cpu, modules, kilobytes / 1024


def table() -> None:
    print(f"Imports, best of {RUNS}\n")
    print(f"{'':32}{'ms':>10}{'CPU ms':>10}{'modules':>10}{'MB':>10}")
    for name, statement in IMPORTS:
        print(row(label(name), *imported(name, statement)) + f"   {statement}", flush=True)
    command = Path(sys.executable).with_name("callboard")
    [whole] = best([str(command), "--help"])
    print(row("callboard --help, all of it", whole.wall, whole.cpu))


if __name__ == "__main__":
    table()

"""What does an import cost, and the command line?

usage: python bench/imports.py

Each is a process of its own, ten times after one that warms the caches; the fastest counts. Wall milliseconds
net of an interpreter that does nothing, the modules that are then loaded and the resident memory, the
interpreter's own among both. Wall time grows with what else the machine does.
"""

import subprocess
import sys
import time
from pathlib import Path

from contenders import label, python_of, row

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


def fastest(command: list[str]) -> tuple[float, str]:
    """Milliseconds of the fastest run, and what it printed."""
    spent = []
    said = ""
    for _ in range(RUNS + 1):
        begun = time.perf_counter()
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        spent.append(time.perf_counter() - begun)
    return min(spent[1:]) * 1e3, said


def imported(name: str, statement: str) -> tuple[float, int, float]:
    """Milliseconds net of the interpreter, modules, MB."""
    python = [python_of(name), "-W", "ignore", "-c"]
    bare, _ = fastest([*python, REPORT])
    whole, said = fastest([*python, statement + REPORT])
    modules, kilobytes = map(int, said.splitlines()[-1].split())
    return whole - bare, modules, kilobytes / 1024


def table() -> None:
    print(f"Imports, best of {RUNS}\n")
    print(f"{'':32}{'ms':>10}{'modules':>10}{'MB':>10}")
    for name, statement in IMPORTS:
        print(row(label(name), *imported(name, statement)) + f"   {statement}", flush=True)
    command = Path(sys.executable).with_name("callboard")
    print(row("callboard --help, all of it", fastest([str(command), "--help"])[0]))


if __name__ == "__main__":
    table()

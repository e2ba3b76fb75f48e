"""Who is compared, and how one of them is measured alone.

Each contender is measured in a process of its own, for what one imports would weigh on the next. A module of
this package is the contender as its own documentation has it, with a model that is scripted and in the process:

    prepare(add, rounds)    an async function that is one run of so many rounds, each one call of `add`
    validators(function)    by a name, what makes a call's arguments of their JSON

Callboard runs in the interpreter of the bench, its peers in `.venv-peers` (versions: bench/peers.txt).
"""

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / ".venv-peers/bin/python"
_PINS = dict(
    line.split("==")
    for line in (ROOT / "bench/peers.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
)


class Contender(NamedTuple):
    module: str
    package: str = ""
    """Whose version is pinned; empty for us."""


CONTENDERS = {
    "callboard": Contender("ours"),
    "callboard-chat": Contender("ours_chat"),
    "pydantic-ai": Contender("pydantic_ai_", "pydantic-ai-slim"),
    "openai-agents": Contender("openai_agents", "openai-agents"),
    "smolagents": Contender("smolagents_", "smolagents"),
}


def label(name: str) -> str:
    package = CONTENDERS[name].package
    return f"{name} {_PINS[package]}" if package else name.replace("-", ", ")


def python_of(name: str) -> str:
    if not CONTENDERS[name].package:
        return sys.executable
    if not PEERS.exists():
        sys.exit("there are no peers: `make bench` installs them in .venv-peers")
    return str(PEERS)


def load(name: str) -> Any:
    return import_module(f"contenders.{CONTENDERS[name].module}")


def row(name: str, *cells: float | None, digits: int = 0) -> str:
    """A line of a table: a dash for what was not measured."""
    return f"{name:32}" + "".join([f"{'-' if cell is None else f'{cell:,.{digits}f}':>10}" for cell in cells])


def measure(script: str, name: str, *arguments: Any) -> Any:
    """What `script` prints for a contender, which is JSON."""
    command = [python_of(name), "-W", "ignore", script, name, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(f"{name}: {ran.stderr.strip().splitlines()[-1]}")
    return json.loads(ran.stdout.splitlines()[-1])


def serve(alone: Callable[..., Any], table: Callable[[], None]) -> None:
    """The main program of a bench: a contender's figure where one is named, else the table of all."""
    if len(sys.argv) > 1:
        print(json.dumps(alone(*sys.argv[1:])))
    else:
        table()

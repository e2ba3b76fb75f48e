"""How many calls in text are found, and how many quotations become calls?

usage: python -m bench.natural

The texts are in tests/vectors/dialects:

- `natural.jsonl` has replies with the calls that their models intended. Each is read with its model's own dialect, and
  with `auto` if the row says so. A reply counts if its calls are exactly the expected ones, in their order.
- `quotations.jsonl` has texts that only quote calls.
- `cases.jsonl`, `catalogue.jsonl` and `objects.jsonl` are the parser's cases.

This module uses only public functions, so it measures any commit: copy it and `natural.jsonl` into that commit's tree.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from callboard.core import InvocationEnded, ToolDeclaration
from callboard.dialects import Dialect, parse
from callboard.modes import make_plan
from callboard.profiles import resolve

VECTORS = Path(__file__).resolve().parents[1] / "tests/vectors/dialects"
DEFAULT_TOOLS = ({"name": "get_weather"}, {"name": "get_time"})
"""The tools of cases that name none."""


class Count(NamedTuple):
    texts: int = 0
    exact: int = 0
    calls: int = 0
    found: int = 0

    def add(self, expected: Sequence[str], actual: Sequence[str]) -> "Count":
        rest = [*actual]
        found = 0
        for call in expected:
            if call in rest:
                rest.remove(call)
                found += 1
        return Count(self.texts + 1, self.exact + (expected == actual), self.calls + len(expected), self.found + found)

    def __str__(self) -> str:
        return f"{self.exact:4} of {self.texts:4} {self.found:8} of {self.calls:4}" if self.texts else f"{'-':>12}"


def rows_of(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (VECTORS / f"{name}.jsonl").read_text("utf-8").splitlines()]


def as_text(name: str, arguments: object) -> str:
    """A call as JSON text, so that 1 differs from True."""
    return json.dumps([name, arguments], sort_keys=True)


def read(row: dict[str, Any], dialect: Dialect | str) -> list[str]:
    tools = row.get("tools", DEFAULT_TOOLS)
    declared = tools and [
        ToolDeclaration(tool["name"], "", tool.get("parameters", {}), tool.get("cli", {})) for tool in tools
    ]
    events = parse(
        row["text"],
        declared,
        dialect,
        why=row.get("stop", "stop"),
        start_in_reasoning=row.get("start_in_reasoning", False),
    )
    return [as_text(event.name, event.arguments) for event in events if isinstance(event, InvocationEnded)]


def expected_of(row: dict[str, Any]) -> list[str]:
    return [as_text(call["name"], call["arguments"]) for call in row.get("expected_calls", row.get("calls", []))]


def print_natural(rows: Iterable[dict[str, Any]]) -> None:
    counts: dict[tuple[str, str], list[Count]] = defaultdict(lambda: [Count(), Count()])
    lost: tuple[list[str], list[str]] = ([], [])
    for row in rows:
        expected = expected_of(row)
        for side, dialect in enumerate([row["dialect"], *(["auto"] if row["auto"] else [])]):
            actual = read(row, dialect)
            if actual != expected:
                lost[side].append(row["id"])
            place = "in a line" if row.get("inline") else "at a line's start"
            for group in (("", "all"), ("place", place), ("kind", row["kind"]), ("dialect", row["dialect"])):
                counts[group][side] = counts[group][side].add(expected, actual)
    print("natural replies: replies read exactly, and calls found")
    print(f"{'':44}{'own dialect':>28}{'auto':>28}")
    for group, (own, auto) in sorted(counts.items(), key=lambda item: (item[0][0] != "", item[0])):
        print(f"{' '.join(group).strip():44}{own!s:>28}{auto!s:>28}")
    for side, name in enumerate(("its own dialect", "auto")):
        print(f"\nnot read exactly with {name}: {' '.join(lost[side]) or 'none'}")


def print_quotations(rows: Sequence[dict[str, Any]]) -> None:
    watched = {model: make_plan(resolve(model)).watched for model in {row["model"] for row in rows}}
    print(f"\n{len(rows)} quotations: texts that become calls, and their calls")
    for name, only in (("all", None), ("in the model's own form", True), ("in another form", False)):
        chosen = [row for row in rows if only is None or bool(row.get("own_form")) is only]
        auto = [calls for row in chosen if (calls := read(row, "auto"))]
        own = [calls for row in chosen if (dialect := watched[row["model"]]) and (calls := read(row, dialect))]
        print(
            f"{name:28} of {len(chosen):3}: auto {len(auto):3} texts {sum(map(len, auto)):3} calls, "
            f"what the model's plan watches {len(own):3} texts {sum(map(len, own)):3} calls"
        )


def print_cases() -> None:
    print("\nthe parser's cases: texts whose calls match, and calls found")
    total = with_calls = Count()
    for name in ("cases", "catalogue", "objects"):
        count = Count()
        for row in rows_of(name):
            expected = expected_of(row)
            actual = read(row, row["dialect"])
            count, total = count.add(expected, actual), total.add(expected, actual)
            if expected:
                with_calls = with_calls.add(expected, actual)
        print(f"{name:28}{count!s:>28}")
    print(f"{'all':28}{total!s:>28}")
    print(f"{'texts with calls':28}{with_calls!s:>28}")


def main() -> None:
    print_natural(rows_of("natural"))
    print_quotations(rows_of("quotations"))
    print_cases()


if __name__ == "__main__":
    main()

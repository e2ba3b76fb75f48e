"""Natural replies with real calls: what models write around a call must not lose it.

A row of `natural.jsonl` has the calls that its model intended. `auto` is true if `auto` must find them too, and
`inline` is true if a call is in the middle of a line.
"""

import json
from collections import Counter
from pathlib import Path

from tests.tables import table

from callboard.core import InvocationEnded, ToolDeclaration
from callboard.dialects import DIALECTS, Parser, parse
from callboard.testing import coalesce

VECTORS = Path(__file__).parents[1] / "vectors/dialects"
ROWS = [json.loads(line) for line in (VECTORS / "natural.jsonl").read_text("utf-8").splitlines()]


def tools_of(row):
    return [ToolDeclaration(tool["name"], "", tool["parameters"], tool.get("cli", {})) for tool in row["tools"]]


def calls_of(events):
    """The calls as JSON text, so that 1 differs from True."""
    return [
        json.dumps({"name": event.name, "arguments": event.arguments}, sort_keys=True)
        for event in events
        if isinstance(event, InvocationEnded)
    ]


def is_found(row, dialect):
    expected = [json.dumps(call, sort_keys=True) for call in row["calls"]]
    return calls_of(parse(row["text"], tools_of(row), dialect)) == expected


def test_the_rows_are_many_and_varied():
    dialects = Counter(row["dialect"] for row in ROWS)
    assert len(ROWS) >= 150
    assert len(dialects) >= 12
    assert set(dialects) <= set(DIALECTS)
    assert sum(count >= 8 for count in dialects.values()) >= 12
    assert len({row["kind"] for row in ROWS}) >= 10
    assert len({row["id"] for row in ROWS}) == len({row["text"] for row in ROWS}) == len(ROWS)
    assert all(row["calls"] for row in ROWS)


def test_a_model_s_own_dialect_finds_every_call():
    assert [row["id"] for row in ROWS if not is_found(row, row["dialect"])] == []


def test_auto_finds_every_call():
    assert [row["id"] for row in ROWS if row["auto"] and not is_found(row, "auto")] == []


@table("auto", [False, True])
def test_the_calls_are_the_same_however_the_text_is_split(auto):
    different = []
    for row in ROWS:
        dialect = "auto" if auto else row["dialect"]
        parser = Parser(tools_of(row), dialect)
        events = [event for character in row["text"] for event in parser.feed(character)]
        if coalesce([*events, *parser.finish()]) != coalesce(parse(row["text"], tools_of(row), dialect)):
            different.append(row["id"])
    assert different == []

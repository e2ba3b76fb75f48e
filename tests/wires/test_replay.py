"""Every backend's habits on every wire: each row of the vectors, whole, split and cut."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import table
from tests.wires.replay import (
    FRAMINGS,
    check_cut,
    decoder,
    expected,
    payloads,
    rows,
    run,
    run_bytes,
    stream,
    without_prose,
)

ROWS = [pytest.param(wire, row, id=f"{wire} {name}") for wire in FRAMINGS for name, row in rows(wire).items()]
FRAMED = [
    pytest.param(*case.values, framing, id=f"{case.id} {framing}")
    for case in ROWS
    for framing in range(len(FRAMINGS[case.values[0]]))
]


@table(("wire", "row"), ROWS)
def test_whole(wire, row):
    stage = decoder(wire, row)
    assert without_prose(run(stage, payloads(row), row.get("why", "stop"))) == expected(row)
    assert [stage.feed(late) for late in (*payloads(row), "[DONE]")] == [[]] * (len(row["payloads"]) + 1)
    assert stage.finish() == []


@table(("wire", "row", "framing"), FRAMED)
def test_split_at_every_byte(wire, row, framing):
    sent = stream(wire, row, framing)
    events = run_bytes(decoder(wire, row), [sent[i : i + 1] for i in range(len(sent))], row.get("why", "stop"))
    assert without_prose(events) == expected(row)


@given(st.sampled_from([case.values for case in ROWS]), st.data())
def test_any_split(case, data):
    wire, row = case
    sent = stream(wire, row)
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=12))), len(sent)]
    events = run_bytes(decoder(wire, row), [sent[a:b] for a, b in pairwise(edges)], row.get("why", "stop"))
    assert without_prose(events) == expected(row)


@table(("wire", "row"), ROWS)
def test_cut_around_the_end_of_each_frame(wire, row):
    """Never an exception, one end, and no call is whole before all of it has come."""
    sent = stream(wire, row)
    ends = {0}
    for border in re.finditer(rb"\r?\n\r?\n", sent):
        ends |= {*range(max(0, border.start() - 2), min(len(sent), border.end() + 3))}
    for end in sorted(ends):
        # "cut" drops a frame that is not whole, so that it differs from an earlier prefix at the ends of frames only.
        is_whole = not end or sent[:end].endswith((b"\n\n", b"\r\n\r\n"))
        for why in ("stop", "cut", "length", "cancelled") if is_whole else ("stop",):
            check_cut(wire, row, run_bytes(decoder(wire, row), [sent[:end]], why))


@settings(max_examples=20 * settings.default.max_examples)
@given(
    st.sampled_from([case.values for case in ROWS]), st.data(), st.sampled_from(["stop", "cut", "length", "cancelled"])
)
def test_cut_anywhere(case, data, why):
    wire, row = case
    sent = stream(wire, row)
    check_cut(wire, row, run_bytes(decoder(wire, row), [sent[: data.draw(st.integers(0, max(0, len(sent) - 1)))]], why))

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.coding.edits.text_edits import EditRefused, insert_lines, parse_range, replace_lines, split_lines


@table(
    ("given_range", "first", "last"),
    [("3:9", 3, 9), ("3", 3, 3), ("3-9", 3, 9), (" 3 , 9 ", 3, 9), ("3:", 3, None), ("0:2", 0, 2), ("9:3", 9, 3)],
)
def test_ranges(given_range, first, last):
    assert parse_range(given_range) == (first, last)


@table("given_range", ["", "x", ":9", "3:x", "3:9:2", "-3", "3" * 10, "³"])
def test_what_is_no_range(given_range):
    with pytest.raises(EditRefused, match="is no range of lines; write 3:9, or 3 for one line"):
        parse_range(given_range)


@table(
    ("text", "start", "end", "content", "made"),
    [
        ("a\nb\nc\n", 2, 2, "x", "a\nx\nc\n"),
        ("a\nb\nc\n", 2, 2, "x\n", "a\nx\nc\n"),
        ("a\nb\nc\n", 2, 3, "x\ny\nz\n", "a\nx\ny\nz\n"),
        ("a\nb\nc", 3, 3, "x\n", "a\nb\nx"),
        ("a\nb\nc", 1, 1, "x\n", "x\nb\nc"),
        ("a\nb\nc\n", 2, 2, "\n", "a\n\nc\n"),
        ("a\nb\nc\n", 2, 2, "", "a\nc\n"),
        ("a\n", 1, 1, "", ""),
    ],
)
def test_lines_give_way(text, start, end, content, made):
    assert replace_lines(text, start, end, content).text == made


@table(
    ("text", "line", "content", "made"),
    [
        ("a\nb\n", 1, "x", "x\na\nb\n"),
        ("a\nb\n", 3, "x", "a\nb\nx\n"),
        ("a\nb", 3, "x\n", "a\nb\nx"),
        ("", 1, "x", "x\n"),
        ("a\n", 1, "", "\na\n"),
    ],
)
def test_lines_come_in(text, line, content, made):
    assert insert_lines(text, line, content).text == made


@table(("start", "end"), [(0, 1), (3, 2), (1, 4), (4, 4), (-1, 1)])
def test_what_is_not_there(start, end):
    with pytest.raises(EditRefused, match=f"the file has 3 lines; {start}:{end} is no range of them"):
        replace_lines("a\nb\nc\n", start, end, "x")


@table("line", [0, 5, -1])
def test_where_nothing_can_be_put(line):
    with pytest.raises(EditRefused, match="the file has 3 lines; content can be put at 1 to 4"):
        insert_lines("a\nb\nc\n", line, "x")


LINES = st.lists(st.text("ab ", max_size=3), max_size=8)


@given(LINES, LINES, st.data())
def test_it_is_surgery_on_lists(old, new, data):
    text = "".join(line + "\n" for line in old)
    content = "".join(line + "\n" for line in new)
    if old:
        start = data.draw(st.integers(1, len(old)))
        end = data.draw(st.integers(start, len(old)))
        change = replace_lines(text, start, end, content)
        assert split_lines(change.text) == [*old[: start - 1], *new, *old[end:]]
    at = data.draw(st.integers(1, len(old) + 1))
    assert split_lines(insert_lines(text, at, content).text) == [*old[: at - 1], *(new or [""]), *old[at - 1 :]]

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.coding.edits.text_edits import (
    EditRefused,
    insert_lines,
    parse_range,
    replace_lines,
    replace_text,
    split_lines,
)

TEXT = """def one():
    return 1


def two():
\treturn "2"
"""


@table(
    ("old", "new", "made"),
    [
        ("return 1", "return 3", TEXT.replace("1", "3")),
        ("one", "1", TEXT.replace("one", "1")),
        ("\n\n\ndef", "\n\ndef", TEXT.replace("\n\n\n", "\n\n")),
        ("    return 1\n", "", TEXT.replace("    return 1\n", "")),
        (TEXT, "", ""),
    ],
)
def test_what_is_there_once(old, new, made):
    assert replace_text(TEXT, old, new).text == made


def test_each():
    assert replace_text("a b a\na", "a", "cc", every=True).text == "cc b cc\ncc"
    assert replace_text("aaa", "aa", "b", every=True).text == "ba"


@table(
    ("old", "new", "told"),
    [
        pytest.param("", "x", "old is empty; to add lines, insert them at a line, or append them", id="empty"),
        pytest.param("one", "one", "old and new are the same: nothing would change", id="the same"),
        pytest.param(
            "return",
            "yield",
            "old is 2 times in the file, at lines 2, 6; give more of the lines around the one that is meant, "
            "or all=true to replace each",
            id="twice",
        ),
        pytest.param(
            "def one():  \n    return 1",
            "x",
            "old is not in the file: lines 1 to 2 of the file differ in white space at the end of lines only; "
            "this is exactly what the file has:\ndef one():\n    return 1",
            id="white space at the end",
        ),
        pytest.param(
            "def one():\n  return 1",
            "x",
            "old is not in the file: lines 1 to 2 of the file differ in indentation only; "
            "this is exactly what the file has:\ndef one():\n    return 1",
            id="indentation",
        ),
        pytest.param(
            '    return "2"',
            "x",
            "old is not in the file: line 6 of the file differs in indentation only; "
            'this is exactly what the file has:\n\treturn "2"',
            id="a tab",
        ),
        pytest.param(
            "return '2'",
            "x",
            "old is not in the file: line 6 of the file differs in quotes and white space only; "
            'this is exactly what the file has:\n\treturn "2"',
            id="quotes",
        ),
        pytest.param(
            "def one( ):",
            "x",
            "old is not in the file: line 1 of the file differs in white space only; "
            "this is exactly what the file has:\ndef one():",
            id="white space within",
        ),
        pytest.param(
            "DEF ONE():",
            "x",
            "old is not in the file: line 1 of the file differs in upper and lower case, quotes and white space only; "
            "this is exactly what the file has:\ndef one():",
            id="case",
        ),
        pytest.param(
            "def two():\n    return 3",
            "x",
            'old is not in the file: the nearest is lines 5 to 6:\n5| def two():\n6| \treturn "2"\n'
            "the file has '\\treturn \"2\"' where '    return 3' was given",
            id="another line",
        ),
        pytest.param(
            "def ona():",
            "x",
            "old is not in the file: the nearest is line 1:\n1| def one():\nthe file has 'def one():' where 'def ona():' was given",
            id="another character",
        ),
        pytest.param(
            "zzzzzz", "x", "old is not in the file: nothing in the file is like it; read the file again", id="nothing"
        ),
        pytest.param(
            "  \n \n", "x", "old is not in the file: it is white space only; write the lines around it too", id="blank"
        ),
    ],
)
def test_what_is_refused(old, new, told):
    with pytest.raises(EditRefused) as refused:
        replace_text(TEXT, old, new)
    assert str(refused.value) == told


def test_the_end_of_the_last_line():
    with pytest.raises(EditRefused, match="line 2 of the file is the same but for what ends the last line"):
        replace_text("a\nb", "b\n", "c\n")


def test_an_empty_file():
    with pytest.raises(EditRefused, match="the file is empty"):
        replace_text("", "a", "b")


def test_what_is_told_is_bounded():
    lines = "\n".join(f"line {number} {'x' * 5000}" for number in range(100))
    with pytest.raises(EditRefused) as refused:
        replace_text(lines, "\n".join(f"lyne {number} {'x' * 5000}" for number in range(100)), "")
    assert len(str(refused.value)) < 20_000


TEXTS = st.text("ab \n", max_size=30)


@given(TEXTS, st.text("ab \n", min_size=1, max_size=4), st.text("ab \n", max_size=4))
def test_it_is_what_python_does(text, old, new):
    if old != new and old in text:
        change = replace_text(text, old, new, every=True)
        assert change.text == text.replace(old, new)
        assert spliced(text, change) == split_lines(change.text)


def spliced(text, change):
    """The new lines, by the spans."""
    old, new, made, done, at = split_lines(text), split_lines(change.text), [], 0, 0
    for start, removed, added in change.spans:
        made += old[done : start - 1]
        at += start - 1 - done
        made += new[at : at + added]
        at += added
        done = start - 1 + removed
    return [*made, *old[done:]]


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

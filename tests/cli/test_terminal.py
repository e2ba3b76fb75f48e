"""Texts on a terminal: their width, and where their lines break."""

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.cli.terminal import crop, measure, paint, wrap


@table(
    ("text", "width", "wrapped"),
    [
        ("short", 20, "short"),
        ("a text of some words", 10, "a text of\nsome words"),
        ("   missing: a file has changed", 20, "   missing: a file\n   has changed"),
        ("one averyveryverylongword", 10, "one\naveryveryv\nerylongwor\nd"),
        ("\x1b[31mred words here\x1b[0m", 9, "\x1b[31mred words\nhere\x1b[0m"),
        ("\u6f22\u5b57 \u6f22\u5b57", 6, "\u6f22\u5b57\n\u6f22\u5b57"),
    ],
)
def test_lines_break_between_words(text, width, wrapped):
    assert wrap(text, width) == wrapped


def test_continuation_lines_have_the_indent_that_is_asked_for():
    assert wrap("-> run(a=1, b=2)", 12, "   ") == "-> run(a=1,\n   b=2)"


@given(st.text(st.sampled_from("ab \u6f22\n\u0301")), st.integers(2, 12), st.sampled_from(["", "  "]))
def test_wrapped_lines_fit_and_hold_the_whole_text(text, width, indent):
    wrapped = wrap(text, width, indent)
    assert all(measure(line) <= width for line in wrapped.split("\n"))
    assert "".join(wrapped.split()) == "".join(text.split())


@given(st.text(), st.integers(0, 12))
def test_a_cropped_text_fits(text, width):
    cropped = crop(text, width)
    assert measure(cropped) <= width
    assert cropped == text or cropped.removesuffix("\u2026") in text


@table(("text", "columns"), [("e\u0301", 1), ("\u0915\u0941", 1), ("a\u200bb", 2), ("\u6f22\u5b57", 4)])
def test_marks_take_no_room_and_wide_characters_take_two_columns(text, columns):
    assert measure(text) == columns


def test_a_color_takes_no_room():
    assert measure(paint("word", "31")) == 4
    assert paint("word", "31", is_on=False) == "word"

"""Markdown on a terminal."""

import re

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.cli.markdown import MarkdownView
from callboard.cli.terminal import measure


def render(*pieces, width=40):
    view = MarkdownView(width)
    return "".join([view.feed(piece) for piece in pieces]) + view.finish()


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def shown_as_code(*lines):
    return "".join([f"\x1b[36m{line}\x1b[0m\n" for line in lines])


@table(
    ("text", "shown"),
    [
        ("plain words", "plain words"),
        ("a **bold word** here", "a \x1b[1mbold word\x1b[22m here"),
        ("run `make test` now", "run \x1b[36mmake test\x1b[39m now"),
        ("2**3 and a ** b and snake_case", "2**3 and a ** b and snake_case"),
        ("`a**b**c`", "\x1b[36ma**b**c\x1b[39m"),
        ("# Heading\ntext", "\x1b[1mHeading\x1b[0m\ntext"),
        ("- one\n* two\n1. three", "• one\n• two\n1. three"),
        ("```python\nx = '**'\n```\nafter", "\x1b[36mx = '**'\x1b[0m\nafter"),
        ("```x = 1``` is code\nafter", "\x1b[36mx = 1\x1b[39m is code\nafter"),
        ("````\n```python\nx\n```\n````\nafter", shown_as_code("```python", "x", "```") + "after"),
        ("~~~\n```\n~~~\nafter", shown_as_code("```") + "after"),
        ("\u8fd9**\u7c97\u4f53**\u5b57", "\u8fd9\x1b[1m\u7c97\u4f53\x1b[22m\u5b57"),
        ("| a | long |\n|---|---|\n| wide | b |\n\nend", "a     long\n────  ────\nwide  b\n\nend"),
    ],
)
def test_what_a_person_sees(text, shown):
    assert render(text) == shown


def test_paragraphs_and_items_wrap_at_words():
    assert render("one two three four", width=9) == "one two\nthree\nfour"
    assert render("- one two three\n- four", width=10) == "• one two\n  three\n• four"


def test_text_without_blanks_wraps_and_is_shown_while_it_streams():
    assert render("\u6f22" * 6, width=9) == "\u6f22\u6f22\u6f22\u6f22\n\u6f22\u6f22"
    view = MarkdownView(40)
    assert view.feed("\u6f22\u5b57") == "\u6f22\u5b57"
    assert len(view.feed("a" * 500)) > 400


def test_a_table_that_does_not_fit_is_not_cut():
    assert render("| a cell of words | another cell |\n", width=12) == "| a cell of words | another cell |"


def test_a_word_is_shown_when_it_is_complete():
    view = MarkdownView(40)
    assert view.feed("Hello wor") == "Hello"
    assert view.feed("ld, ") == " world,"
    assert view.feed("and mo") == " and"
    assert (view.flush(), view.feed("re\n")) == (" mo", "re\n")


def test_a_word_that_was_shown_before_its_end_is_not_broken():
    view = MarkdownView(10)
    assert view.feed("one two thr") + view.flush() + view.feed("ee**! ") == "one two\nthree**!"
    assert view.feed("**") + view.flush() + view.feed("bold** ") == "\n\x1b[1mbold\x1b[22m"


TEXT = st.lists(st.sampled_from([*"ab#*`-|1. \n~\u6f22", "```", "b" * 79]), max_size=60).map("".join)


@given(TEXT, st.data())
def test_the_output_does_not_depend_on_the_pieces(text, data):
    at = data.draw(st.integers(0, len(text)))
    assert render(text[:at], text[at:]) == render(text)


@given(TEXT, st.integers(10, 30))
def test_no_letter_is_lost_and_lines_fit(text, width):
    shown = plain(render(text, width=width))
    if "```" not in text and "~~~" not in text:  # the line of a fence is not shown
        assert re.sub(r"[^ab1\u6f22]", "", shown) == re.sub(r"[^ab1\u6f22]", "", text)
    lines = [line for line in shown.split("\n") if " " in line.strip() and "|" not in text]
    assert all(
        measure(line) <= width or len(line.split()) <= 2 for line in lines if "#" not in text and "`" not in text
    )

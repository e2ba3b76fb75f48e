from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.text.display import collapse, display_names, escape, replace_invisible, strip_controls
from callboard.text.suggest import find_closest, suggest
from callboard.text.truncate import truncate, truncate_line, truncate_middle


@given(st.text(), st.integers(0, 60))
def test_a_text_is_never_longer_than_its_limit_and_whole_where_it_fits(text, longest):
    assert len(truncate(text, longest)) <= longest
    assert len(truncate_middle(text, longest)) <= max(
        longest, len(f"[... {len(text)} characters, not all are shown ...]")
    )
    if len(text) <= longest:
        assert truncate(text, longest) == truncate_middle(text, longest) == text
    else:
        assert truncate(text, longest).endswith("..."[:longest])


@given(st.text())
def test_a_line_has_no_line_breaks(text):
    assert len(truncate_line(text, 20).splitlines()) <= 1
    assert len(truncate_line(text, 20)) <= 23
    assert collapse(text, 20).isprintable()


@given(st.text())
def test_what_is_invisible_is_escaped_replaced_or_kept(text):
    assert escape(text).isprintable()
    assert escape(text, keep="\n").replace("\n", "").isprintable()
    assert replace_invisible(text).isprintable()
    assert len(replace_invisible(text)) == len(text)
    assert not {*strip_controls(text)} & {"\x00", "\x07", "\x1b", "\x7f", "\x9b"}


def test_both_ends_of_a_long_text_are_kept():
    text = "".join(map(str, range(1000)))
    short = truncate_middle(text, 300)
    assert short.startswith("0123")
    assert short.endswith("998999")
    assert f"[... {len(text)} characters, not all are shown ...]" in short


def test_names_in_a_line():
    assert display_names(["a", "b\n"]) == r"a, b\n"
    assert display_names(list("abcdefg"), 2) == "a, b and 5 more"


@table(
    ("name", "names", "hint"),
    [
        ("serch", ["search", "add"], "did you mean 'search'?"),
        ("zzz", ["search", "fetch"], "there are search, fetch"),
        ("zzz", [str(each) for each in range(30)], f"there are {', '.join(map(str, range(20)))} ..."),
        ("zzz", [], "there are no tools"),
    ],
)
def test_a_misspelled_name_gets_a_hint(name, names, hint):
    assert suggest(name, names) == hint


def test_a_long_name_costs_little():
    assert find_closest("search" * 100_000, ["search"]) == []

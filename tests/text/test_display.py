from __future__ import annotations

import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.text.display import LONGEST, display, make_visible

UNSEEN = "\x00\x07\t\n\r\x1b\x7f\x85\x9b\xa0\xad\u061c\u200b\u200f\u2028\u2029\u202a\u202e\u2066\u2069\ufeff\U000e0041"


@table(
    ("text", "shown"),
    [
        ("gpt-4o", "gpt-4o"),
        ("é 日本 🙂", "é 日本 🙂"),
        ("a\nb", r"a\nb"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b31m", r"\x9b31m"),
        ("a\u202eb\u2028c", r"a\u202eb\u2028c"),
        ("\ud800", r"\ud800"),
        ("", ""),
    ],
)
def test_what_cannot_be_seen_is_spelled_out(text, shown):
    assert display(text) == shown


@table("char", UNSEEN)
def test_what_moves_a_cursor_or_turns_a_text_is_not_shown(char):
    assert char not in display(f"a{char}b")


def test_no_control_character_of_unicode_is_shown():
    kinds = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    bad = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) in kinds]
    assert all(display(char).isascii() and display(char).isprintable() for char in bad)


@given(st.text(), st.integers(min_value=0, max_value=50))
def test_it_is_one_line_and_no_longer_than_was_asked_for(text, longest):
    shown = display(text, longest)
    assert shown.isprintable()
    assert len(shown) <= longest
    assert len(display(text * 1000)) <= LONGEST
    if text.isprintable() and len(text) <= longest:
        assert shown == text


@table(
    ("text", "shown"),
    [
        ("rm -r .", "rm -r ."),
        ("test\u202eprod\u200b", r"test\u202eprod\u200b"),
        ("ls\u3164\u2800", r"ls\u3164\u2800"),
        ("flag\ufe0f", r"flag\ufe0f"),
        ("a\U000e0100b", r"a\U000e0100b"),
        ("a\n\tb\r", "a\n\tb\\r"),
    ],
)
def test_a_person_decides_on_nothing_invisible(text, shown):
    assert make_visible(text) == shown


def test_what_is_decided_on_has_one_line_where_no_line_end_is_kept():
    assert make_visible("a\n\tb\u3164", keep="") == r"a\n\tb\u3164"

"""Halves of characters in JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.text.surrogates import join_halves, replace_halves

FACE = "\U0001f600"
ESCAPED = r"\ud83d\ude00"


@given(st.recursive(st.text() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_without_halves_stays_as_it_is(value):
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert replace_halves(text) == text
        assert join_halves(text) == (text, "", "")


@table("half", [r"\ud83d", r"\uDE00"])
def test_a_half_is_replaced(half):
    assert json.loads(replace_halves(f'["a{half}b", "{half}", "{ESCAPED}"]')) == ["a\ufffdb", "\ufffd", FACE]


def test_an_escaped_backslash_is_no_half():
    assert json.loads(replace_halves(r'"\\ud83d"')) == r"\ud83d"


def test_halves_of_two_pieces_are_one_character():
    first, half, _ = join_halves(r'{"text": "Hi \ud83d"}')
    second, *rest = join_halves(r'{"text": "\ude00!"}', half)
    assert (json.loads(first)["text"] + json.loads(second)["text"], rest) == (f"Hi {FACE}!", ["", ""])


def test_a_half_that_nothing_joins_is_given_back():
    assert join_halves(r'["a\ud83e"]', r"\ud83d") == ('["a"]', r"\ud83e", r"\ud83d")

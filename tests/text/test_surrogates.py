"""Halves of characters in JSON."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.coding.job import PromptSent
from callboard.text.surrogates import encode_json, escape_surrogates, join_halves, replace_halves

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


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(st.characters(exclude_categories=[])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=[])), inner),
)


def test_what_json_carries_is_as_it_was():
    given = {"text": "é \x1b \U0001f600", "of": [1, None, True]}
    assert json.loads(encode_json(given)) == given
    assert b"\n" not in encode_json({"text": "two\nlines"})


def test_names_that_are_not_utf_8():
    assert escape_surrogates("lat\udce9in") == "lat\\udce9in"
    assert json.loads(encode_json({"\udcff": ["a", "\ud800"]})) == {"\\udcff": ["a", "\\ud800"]}
    assert json.loads(encode_json(PromptSent("\udcff"))) == {"type": "prompt_sent", "text": "\\udcff"}


@given(anything)
def test_everything_can_be_written_down(value):
    msgspec.json.decode(encode_json(value))

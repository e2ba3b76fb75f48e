from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.errors import SchemaError
from callboard.mcp.sanitize import MAX_PROPERTIES, SCHEMA_BYTES, clean_schema, clean_text, has_hidden


@table(
    ("said", "left"),
    [
        ("Adds two numbers.", "Adds two numbers."),
        ("one\n\ttwo", "one\n\ttwo"),
        ("zero\u200bwidth\u2060\ufeff", "zerowidth"),
        ("bidi\u202eidib\u2066", "bidiidib"),
        ("tag\U000e0041\U000e0042", "tag"),
        ("selectors\ufe00\U000e0100", "selectors"),
        ("bell\x07\x1b[31m\x9b\r", "bell[31m"),
        ("filler\u3164\uffa0", "filler"),
        ("half\ud800", "half"),
        ("seen <!-- not seen --> seen", "seen   seen"),
        ("no end <!-- not seen", "no end"),
        ("hidden mark <!\u200b-- not seen -->.", "hidden mark  ."),
        ("--> <!-->", "-->"),
        ("<!<!-- seen -->-- not a comment -->", "<! -- not a comment -->"),
        ("naïve 日本 ❤️ 😀", "naïve 日本 ❤️ 😀"),
    ],
)
def test_what_is_hidden_is_taken_out(said, left):
    assert clean_text(said, 1000) == left


def test_what_is_long_is_cut_between_characters():
    assert clean_text("äöü", 3) == "ä [cut]"
    assert clean_text("äöü", 6) == "äöü"


@given(st.lists(st.sampled_from(["<!", "--", ">", "<!--", "-->", "\u200b", " ", "a"]) | st.text()).map("".join))
def test_what_was_cleaned_is_clean(text):
    once = clean_text(text, 10_000)
    assert not has_hidden(once)
    assert "<!--" not in once
    assert clean_text(once, 10_000) == once


def test_many_open_comments_take_linear_time():
    assert clean_text("<!--" * 100_000, 10) == ""


def test_a_clean_schema_is_the_servers_own():
    schema = {"type": "object", "properties": {"a": {"description": "A number", "default": None}}}
    assert clean_schema(schema, 100) is schema


def test_texts_of_a_schema_are_cleaned_wherever_they_are():
    evil = "said<!-- more -->"
    schema = {
        "description": evil,
        "properties": {"description": {"type": "string", "title": evil}},
        "$defs": {"x": {"anyOf": [{"description": evil}]}},
    }
    assert clean_schema(schema, 100) == {
        "description": "said",
        "properties": {"description": {"type": "string", "title": "said"}},
        "$defs": {"x": {"anyOf": [{"description": "said"}]}},
    }
    assert schema["description"] == evil


def test_what_is_data_is_not_changed():
    schema = {"properties": {"a": {"enum": [{"description": "<!-- kept -->"}], "default": {"title": "<!-- kept -->"}}}}
    assert clean_schema(schema, 100) is schema


@table(
    ("schema", "told"),
    [
        ({"properties": {"a": {"enum": ["x" * SCHEMA_BYTES]}}}, "larger than 64 KB"),
        ({"properties": {f"p{at}": {} for at in range(MAX_PROPERTIES + 1)}}, "more than 512 properties"),
        (
            {"properties": {"a": {"properties": {f"p{at}": {} for at in range(MAX_PROPERTIES)}}}},
            "more than 512 properties",
        ),
        ({"properties": {"a\u200b": {}}}, "hidden characters outside of its descriptions"),
        ({"properties": {"a": {"enum": ["\U000e0041"]}}}, "hidden characters outside of its descriptions"),
    ],
)
def test_a_schema_that_is_too_much(schema, told):
    with pytest.raises(SchemaError) as caught:
        clean_schema(schema, 100)
    assert str(caught.value) == told

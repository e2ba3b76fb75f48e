"""Values of a call that nobody said are found; what was said in another form is not taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.modes.filters.grounding import ConversationText, find_made_up_options, find_ungrounded


def schema(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)}


TEXT = {"type": "string"}
NUMBER = {"type": "number"}


@table(
    ("text", "value"),
    [
        ("The weather in Paris", "Paris"),
        ("A Parisian restaurant", "Paris"),
        ("It costs 1,250 dollars", 1250),
        ("A rate of 5%", 0.05),
        ("A rate of 7 percent", 0.07),
        ("Three of them", 3),
        ("A dozen eggs", 12),
        ("2 million people", 2_000_000),
        ("Drop it from 10 m", -10),
        ("On June 3, 2024", "2024-06-03"),
        ("On Jan 28, 2021", "2021-01-28"),
        ("Since Sept. 2020", "09/2020"),
        ("San Francisco, please", "San Francisco, CA"),
        ("in C sharp major", "C#"),
        ("numbers 1, 2 and 3", [1, 2, 3]),
        ("sort [5,8,12]", [5, 8, 12]),
        ("12,5 kg", 12.5),
        ("1.250,50 EUR", 1250.5),
        ("-3", 3),
        ("on 03.06.2024", "2024-06-03"),
        ("1, 2 and 3", "1,2,3"),
        ("at 40.7127837 degrees", 40.7127837),
        ("G is 6.674e-11", 6.674e-11),
        ("\u0665\u0666 of them", 56),
        pytest.param("9" * 400, 10**400 - 1, id="400 digits"),
        ("Anna is 30", {"name": "Anna", "age": 30}),
        ("K\u00f6ln", "K\u00f6ln"),
        ("\u5929\u6c14\u600e\u4e48\u6837", "weather"),
        ("anything", True),
        ("anything", None),
        ("next month", 1),
    ],
)
def test_what_was_said_is_found(text, value):
    assert find_ungrounded({"x": value}, schema(x={}), ConversationText([text])) == []


@table(
    ("text", "value"),
    [
        ("What is the capital of France?", 42),
        ("What is the capital of France?", "Los Angeles"),
        ("Numbers 1 and 2", [1, 2, 3]),
        ("My name is Anna", {"name": "Anna", "age": 30}),
        ("It was in 2023", "2024-06-03"),
        ("anything", ""),
        pytest.param("What is the capital of France?", 10**400, id="400 digits"),
        pytest.param("What is the capital of France?", -(10**309), id="-309 digits"),
    ],
)
def test_what_nobody_said_is_found_out(text, value):
    assert find_ungrounded({"x": value}, schema(x={}), ConversationText([text])) == ["x"]


def test_only_what_is_required_and_free_is_looked_at():
    described = schema(unit={"enum": ["C", "F"]}, city=TEXT, limit={"type": "integer", "default": 10})
    described["properties"]["note"] = TEXT
    arguments = {"unit": "C", "city": "Oslo", "limit": 10, "note": "made up"}
    assert find_ungrounded(arguments, described, ConversationText(["Oslo?"])) == []
    assert find_ungrounded({"unit": "C"}, described, ConversationText(["Oslo?"])) == ["city", "limit"]
    assert find_ungrounded({**arguments, "limit": 7}, described, ConversationText(["Oslo?"])) == ["limit"]


@table("odd", [{}, {"properties": []}, {"properties": {}, "required": "x"}, {"required": [1, None]}])
def test_an_odd_schema_asks_for_nothing(odd):
    assert find_ungrounded({}, odd, ConversationText(["Hi"])) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from("abc"), JSON), st.text())
def test_no_arguments_break_it(arguments, text):
    found = find_ungrounded(arguments, schema(a={}, b=TEXT, c=NUMBER), ConversationText([text]))
    assert set(found) <= {"a", "b", "c"}


def test_a_text_that_repeats_the_value_grounds_it():
    @given(st.text(), st.text(st.characters(categories=["L", "N"]), min_size=1), st.text())
    def check(before, value, behind):
        assert find_ungrounded({"x": value}, schema(x=TEXT), ConversationText([f"{before} {value} {behind}"])) == []

    check()


def test_options_that_nobody_said_are_found():
    described = {"properties": {"sport": TEXT, "gender": TEXT, "team": TEXT, "limit": {"default": 10}, "live": {}}}
    described["required"] = ["sport"]
    arguments = {"sport": "chess", "gender": "women", "team": "Lakers", "limit": 10, "live": True, "other": "x"}
    text = ConversationText(["Who is the best woman in tennis?"])
    assert find_made_up_options(arguments, described, text) == ["team"]


def test_where_a_picture_was_shown_any_value_may_stand_in_it():
    text = ConversationText(["Add this receipt"], is_complete=False)
    assert find_ungrounded({"x": 42.5, "y": "Spar", "z": ""}, schema(x={}, y={}, z={}), text) == ["z"]
    assert find_made_up_options({"x": 42.5}, {"properties": {"x": {}}}, text) == []


@table("condition", [{"minProperties": 1}, {"anyOf": [{"required": ["team"]}]}])
def test_an_option_that_a_schema_may_ask_for_otherwise_is_none(condition):
    text = ConversationText(["Who is the best?"])
    assert find_made_up_options({"team": "Lakers"}, {"properties": {"team": TEXT}, **condition}, text) == []
    assert find_made_up_options({"team": "Lakers"}, {"properties": {"team": TEXT}}, text) == ["team"]

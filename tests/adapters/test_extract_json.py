"""JSON is found in whatever a model writes around it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.adapters import parse_json_response
from callboard.adapters.extract_json import json_values
from callboard.errors import CallerError

CALL = {"tool": "search", "arguments": {"query": "Python"}}
SPELLED = json.dumps(CALL)


@table(
    ("text", "expected"),
    [
        # What the seed's original finds.
        (SPELLED, CALL),
        (f"```json\n{SPELLED}\n```", CALL),
        (f"```\n{SPELLED}\n```", CALL),
        (f"<think>Let me see.</think>\n{SPELLED}", CALL),
        (f"{SPELLED}</think>", CALL),
        (f"[{SPELLED}]", [CALL]),
        ("{}", {}),
        ("[]", []),
        # What it does not find.
        (f"I will search.\n\n{SPELLED}\n\nThen I answer.", CALL),
        (f"Sure: {SPELLED}.", CALL),
        (f"<think>I should search. {SPELLED}", CALL),
        ('{"answer": "Write ```py\\nx = {}\\n``` there"}', {"answer": "Write ```py\nx = {}\n``` there"}),
        ('{"answer": "Write\n```json\n{\\"a\\": 1}\n```\nthere"}', {"answer": 'Write\n```json\n{"a": 1}\n```\nthere'}),
        (f'```python\nx = {{"a": 1}}\n```\n{SPELLED}', CALL),
        (f"```python\nx = {{}}\n```\n```json\n{SPELLED}\n```", CALL),
        ('{"answer": "the tag <think> and </think> opens"}', {"answer": "the tag <think> and </think> opens"}),
        (f"```json\n{SPELLED}", CALL),
        (f"~~~tool_call\n{SPELLED}\n~~~", CALL),
        (f"{{{SPELLED}}}", CALL),
        (f"See [1] and {{}}. {SPELLED}", CALL),
        # What is thought is not said.
        (f'<think>maybe {{"tool": "delete"}}</think>{SPELLED}', CALL),
        (f'maybe {{"tool": "delete"}}</think>{SPELLED}', CALL),
        ('<think>maybe {"tool": "delete"}</think>No, I do not.', None),
        # What is none.
        ("", None),
        ("No JSON here.", None),
        ('{"tool": "search", "arguments": {"query": "Pyt', None),
        ('{"a": 1,}', None),
        ("{'a': 1}", None),
        ('{"a": NaN}', None),
        ("5", None),
        ('"text"', None),
        ('```python\nx = {"a": 1}\n```', None),
        ("if (x) { return [y]; }", None),
    ],
)
def test_what_is_found(text, expected):
    assert parse_json_response(text) == expected


def test_content_that_is_none_holds_nothing():
    assert parse_json_response(None) is None


@table("text", [5, b"{}", {"a": 1}])
def test_what_is_no_text_is_refused(text):
    with pytest.raises(CallerError, match=r"is not a text; give the content of a message$"):
        parse_json_response(text)


def test_every_value_is_found_in_order():
    assert json_values(f'First {SPELLED}\nthen [1, 2] and\n```json\n{{"a": "}}"}}\n```\n') == [CALL, [1, 2], {"a": "}"}]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(), JSON, min_size=1, max_size=3)
PROSE = st.text("abc .,\n`~'()#/é", max_size=40).filter(lambda text: "```" not in text and "~~~" not in text)


@given(PROSE, OBJECTS, PROSE, st.sampled_from(["{}", "```json\n{}\n```", "<think>hm [</think>{}", "<think>{}"]))
def test_an_object_is_found_whatever_it_holds(before, value, after, around):
    held = around.replace("{}", json.dumps(value, ensure_ascii=False))
    assert parse_json_response(f"{before}\n{held}\n{after}") == value


@given(st.text('{}[]":,1atf\\n`~<>/think \n', max_size=200))
def test_nothing_that_is_written_breaks_it(text):
    found = parse_json_response(text)
    assert found is None or isinstance(found, (dict, list))


@table(
    "piece",
    ["{", "[", '{"a":', "[1,", '["', '{"a":{"b":[', "<think>", "</think>", "```\n", "[[],", "{}</think>", '{"\\'],
)
def test_hostile_text_ends(piece):
    """Without its bound some of these take minutes."""
    assert parse_json_response(piece * 200_000 + SPELLED) in (CALL, None, {}, [], [[]])


def test_what_is_too_deep_is_none():
    assert parse_json_response("[" * 100_000 + "]" * 100_000) in (None, [])

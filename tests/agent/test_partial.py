"""The value of an output while it is written."""

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import Agent
from callboard.agent.output_type import PartialObject
from callboard.core import ReplyEnded, ReplyStarted, TextPiece
from callboard.testing import ScriptedModel

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def grows(pieces):
    partial = PartialObject()
    for piece in pieces:
        partial.feed(piece)
    return partial.value


@given(st.dictionaries(st.text(), VALUES, max_size=4), st.booleans(), st.sampled_from([None, 1]))
def test_a_whole_object_is_the_value_whatever_the_pieces(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    clean = json.loads(text.encode("utf-8", "replace"))
    text = json.dumps(clean, ensure_ascii=ascii_only, indent=indent)
    assert grows([text]) == clean
    assert grows(text) == clean
    assert grows(["Here: ", *text, " That is all {of} it."]) == clean


@given(st.dictionaries(st.text(), VALUES, min_size=1, max_size=4))
def test_reading_it_on_the_way_changes_nothing(value):
    text = json.dumps(value)
    partial = PartialObject()
    for end, char in enumerate(text, 1):
        partial.feed(char)
        assert partial.value == grows([text[:end]])
    assert partial.value == json.loads(text)


@table(
    ("text", "value"),
    [
        ("Well, ", None),
        ("Well, {", {}),
        ('{"na', {}),
        ('{"name": ', {}),
        ('{"name": "Os', {"name": "Os"}),
        ('{"name": "a\\', {"name": "a"}),
        ('{"name": "a\\n\\ud83d', {"name": "a\n"}),
        ('{"name": "Oslo", "people": 7177', {"name": "Oslo"}),
        ('{"name": "Oslo", "people": 7177,', {"name": "Oslo", "people": 7177}),
        ('{"a": [1, {"b": [tru', {"a": [1, {"b": []}]}),
        ('{"a": ["x", "y', {"a": ["x", "y"]}),
        ("{x} is {1}: ", None),
        ('{x} is {"a": 1}', {"a": 1}),
        ('{"a": 01}', None),
        ('{"a": 1}}{"b": 2}', {"a": 1}),
    ],
)
def test_how_far_a_value_came(text, value):
    assert grows([text]) == grows(text) == value


def test_the_partial_output_of_a_run_grows_with_its_reply():
    pieces = ['{"answer": [', '"a', 'b", ', '"c"', "]}"]
    model = ScriptedModel([[TextPiece(piece) for piece in pieces]])
    with Agent(model, output=list[str]).stream_sync("?") as run:
        assert run.partial_output is None
        seen = [json.dumps(run.partial_output) for event in run if isinstance(event, TextPiece)]
    assert seen == ["[]", '["a"]', '["ab"]', '["ab", "c"]', '["ab", "c"]']
    assert run.result.output == ["ab", "c"]


def test_a_reply_that_is_made_anew_begins_a_new_partial_output():
    first = [TextPiece('{"a": 1, "b'), ReplyEnded("retry"), ReplyStarted(), TextPiece('{"a": 2}')]
    with Agent(ScriptedModel([first]), output=dict[str, int]).stream_sync("?") as run:
        for _ in run:
            pass
    assert run.partial_output == run.result.output == {"a": 2}


def test_an_agent_without_an_output_type_has_no_partial_output():
    with Agent(ScriptedModel(['{"a": 1}'])).stream_sync("?") as run:
        assert [run.partial_output for _ in run][-1] is None

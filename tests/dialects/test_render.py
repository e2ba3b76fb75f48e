from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.dialects import ACTION, DIALECTS, JSON, parse, render_call, render_in_prose, render_result, render_tools

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


@given(texts, st.dictionaries(texts, values, max_size=3), st.sampled_from(["json", "action", "auto"]))
def test_what_is_written_is_read_again(name, arguments, dialect):
    text = render_call(DIALECTS[dialect], core.InvocationCanister("c", name, arguments))
    read = [event for event in parse(text, None, dialect) if isinstance(event, core.InvocationEnded)]
    assert [(event.name, event.arguments) for event in read] == [(name, arguments)]


def test_a_call_whose_arguments_are_no_object_is_written_as_the_model_wrote_it():
    assert render_call(ACTION, core.InvocationCanister("c", "f", None, "{oops")) == (
        '{"action": {"tool": "f", "arguments": {oops}}'
    )


def test_the_tools_and_the_manner_are_in_the_prompt():
    text = render_tools(JSON, [core.ToolDeclaration("f", "Does it.", {"type": "object"})])
    assert '{"name":"f","description":"Does it.","parameters":{"type":"object"}}' in text
    assert JSON.instructions in text


@table(
    ("result", "text"),
    [
        (core.ResultCanister(invocation_id="c", content="6"), 'f(a="x", b=[1]) returned 6.'),
        (core.ResultCanister(invocation_id="c", content="6\n7"), 'f(a="x", b=[1]) returned:\n6\n7'),
        (core.error_result("c", "timeout", "too slow"), 'f(a="x", b=[1]) failed: Error: too slow'),
        (None, 'f(a="x", b=[1]) was not run.'),
    ],
)
def test_prose_says_what_was_called_and_what_came_of_it(result, text):
    assert render_in_prose(core.InvocationCanister("c", "f", {"a": "x", "b": [1]}), result) == text


def test_a_result_says_which_call_it_is_of():
    result = core.ResultCanister(invocation_id="c", content="6")
    assert render_result(JSON, result, "add", 2) == "Tool 2 (add) output:\n6"
    assert render_result(JSON, result) == "Tool 1 output:\n6"
    assert render_result(JSON, core.error_result("c", "timeout", "too slow"), "add") == "Tool 1 (add) error: too slow"
    assert render_result(DIALECTS["react"], result, "add", 2) == "Observation: 6"

"""A recorded conversation becomes a task."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.core import (
    AssistantCanister,
    InvocationCanister,
    ResultCanister,
    UserCanister,
    contents,
)
from callboard.errors import CallerError
from callboard.evaluation.check import check_step
from callboard.evaluation.recorded_task import Recording, decode_expected, decode_recording, make_task
from callboard.evaluation.task import Attempt, decode_task, encode_task

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
BODIES = {
    "chat": {
        "messages": [{"role": "user", "content": "Rome?"}],
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}],
    },
    "responses": {
        "input": "Rome?",
        "tools": [{"type": "function", "name": "weather", "parameters": PARAMETERS}],
    },
    "messages": {
        "max_tokens": 10,
        "messages": [{"role": "user", "content": "Rome?"}],
        "tools": [{"name": "weather", "input_schema": PARAMETERS}],
    },
}
REPLIES = {
    "chat": {
        "choices": [
            {
                "message": {
                    "tool_calls": [
                        {
                            "id": "c",
                            "function": {"name": "weather", "arguments": '{"city": "Rome"}'},
                            "type": "function",
                        }
                    ]
                },
                "finish_reason": "tool_calls",
            }
        ]
    },
    "responses": {
        "output": [{"type": "function_call", "call_id": "c", "name": "weather", "arguments": '{"city": "Rome"}'}],
        "status": "completed",
    },
    "messages": {
        "content": [{"type": "tool_use", "id": "c", "name": "weather", "input": {"city": "Rome"}}],
        "stop_reason": "tool_use",
    },
}


def call(name="weather", **arguments):
    return InvocationCanister("c", name, arguments, json.dumps(arguments))


def user(text):
    return UserCanister(contents(text))


TALK = Recording(
    (
        user("Rome?"),
        call(city="Rome"),
        ResultCanister(contents("31"), invocation_id="c"),
        AssistantCanister(contents("31 degrees.")),
        user("Oslo?"),
        call(city="Oslo"),
    )
)


def is_solved(task, *calls):
    return check_step(task, task.steps[0], Attempt(tuple(calls))).solved


@table("wire", BODIES)
def test_a_request_with_its_reply_is_a_task(wire):
    data = json.dumps({"request": BODIES[wire], "response": REPLIES[wire]}).encode()
    task = make_task(decode_recording(data))
    assert [tool.name for tool in task.tools] == ["weather"]
    assert task.tools[0].schema["required"] == ["city"]
    assert [each.name for each in task.steps[0].expected] == ["weather"]
    assert is_solved(task, call(city="rome"))
    assert not is_solved(task, call(city="Oslo"))
    assert decode_task(encode_task(task)) == task


def test_what_comes_before_the_turn_is_the_question():
    task = make_task(TALK)
    assert len(task.steps[0].canisters) == 5
    assert task.steps[0].expected[0].arguments == {"city": ("Oslo",)}
    first = make_task(TALK, turn=1)
    assert len(first.steps[0].canisters) == 1
    assert is_solved(first, call(city="Rome"))
    assert first.identifier != task.identifier


def test_a_turn_of_words_wants_no_call():
    task = make_task(Recording(TALK.canisters[:4]))
    assert task.steps[0].expected == ()
    assert is_solved(task)


def test_tools_that_are_not_known_are_described_by_their_calls():
    (tool,) = make_task(TALK).tools
    assert tool.schema == {"type": "object", "properties": {"city": {"type": "string"}}}


def test_who_knows_better_says_what_is_expected():
    data = json.dumps(BODIES["chat"]).encode()
    with pytest.raises(CallerError, match="--expect"):
        make_task(decode_recording(data))
    expected = decode_expected(['{"name": "weather", "arguments": {"city": "Rome"}}'])
    assert is_solved(make_task(decode_recording(data), expected=expected), call(city="Rome"))
    assert is_solved(make_task(decode_recording(data), expected=decode_expected(["none"])))


@table(
    ("action", "message"),
    [
        (lambda: decode_recording(b"[1]"), "not a JSON object"),
        (lambda: decode_recording(b"{"), "not JSON"),
        (lambda: make_task(TALK, turn=9), "no turn 9"),
        (lambda: decode_expected(["weather()"]), "not a call"),
        (lambda: make_task(Recording((user("x"), InvocationCanister("c", "f", None, "{")))), "not a JSON object"),
    ],
)
def test_a_mistake_is_refused(action, message):
    with pytest.raises(CallerError, match=message):
        action()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(min_size=1, max_size=8), JSON, max_size=4))
def test_the_recorded_call_solves_its_task(arguments):
    recorded = InvocationCanister("c", "tool", arguments, "")
    assert is_solved(make_task(Recording((user("go"), recorded))), recorded)


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_whatever_a_file_holds_is_a_recording_or_a_mistake(data):
    with contextlib.suppress(CallerError):
        decode_recording(data)

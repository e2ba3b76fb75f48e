"""The labels that a reply gets at run time."""

from __future__ import annotations

from typing import get_args

import pytest

from callboard.core import (
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    ReplyEnded,
    Request,
    TextPiece,
    ToolDeclaration,
)
from callboard.evaluation.task import Label
from callboard.servers.gateway.failure_labels import FailureLabel, label_failures

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "unit": {"enum": ["c", "f"]},
        "near": {"type": ["string", "null"]},
        "on": {"type": "boolean"},
    },
    "required": ["city"],
}


def labels(*events, choice="auto", schema=SCHEMA):
    request = Request("m", (), (ToolDeclaration("weather", "", schema),), tool_choice=choice)
    found = [(each.name, each.tool) for each in label_failures(request, events)]
    assert {name for name, _ in found} <= {*get_args(Label)}
    return found


def call(arguments, name="weather"):
    return InvocationEnded(0, "a", name, arguments, "")


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        ({"city": "Rome"}, ""),
        ({"city": "Rome", "days": 3, "unit": "c", "near": None, "on": True}, ""),
        ({"city": "Rome", "days": "3"}, "type_coercion"),
        ({"city": "Rome", "days": 3.0}, "type_coercion"),
        ({"city": ["Rome"]}, "type_coercion"),
        ({"city": "Rome", "on": "true"}, "type_coercion"),
        ({"city": "Rome", "on": 1}, "schema_violation"),
        ({"city": "Rome", "days": "three"}, "schema_violation"),
        ({"city": "Rome", "days": True}, "schema_violation"),
        ({"city": "Rome", "unit": "k"}, "schema_violation"),
        ({"town": "Rome"}, "missing_required"),
        ({"city": "Rome", "town": "Rome"}, "hallucinated_param"),
        (None, "malformed_json"),
    ],
)
def test_calls(arguments, label):
    assert labels(call(arguments)) == ([(label, "weather")] if label else [])


def test_replies():
    assert labels(call({}, "wether")) == [("wrong_tool", "wether")]
    assert labels(TextPiece("x"), ReplyEnded("length")) == [("truncation", "")]
    assert labels(InvocationIncomplete(0, "a", "weather", "{", "cut"), ReplyEnded("length")) == [
        ("truncation", "weather")
    ]
    assert labels(ReplyEnded("no_call"), choice="required") == [("no_call", "")]
    assert labels(InvocationStarted(0, "a", "weather"), choice="none") == [("should_not_have_called", "weather")]
    assert labels(TextPiece("x"), ReplyEnded("stop")) == []


def test_calls_of_a_request_without_tools_are_not_judged():
    assert label_failures(Request("m", ()), [call({})]) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": 5, "required": 7},
        {"properties": {"city": 5, "days": {"type": 7}}, "required": [["city"], 3]},
        {"properties": {"city": {"type": [7, "nothing"], "enum": 3}}, "additionalProperties": []},
        {"properties": {"city": {"$ref": "#"}}},
    ],
)
def test_no_schema_raises(schema):
    labels(call({"city": "Rome", "days": "[" * 10_000, "more": {}}), schema=schema)


def test_values_that_are_too_deep_to_be_compared_are_not_judged():
    def nest():
        value = []
        for _ in range(5000):
            value = [value]
        return value

    assert labels(call({"city": nest()}), schema={"properties": {"city": {"enum": [nest()]}}}) == []


def test_an_argument_that_the_schema_allows_is_no_invention():
    assert labels(call({"x": 1}), schema={"properties": {"y": {}}, "additionalProperties": {}}) == []
    assert labels(call({"x": 1}), schema={"properties": {"y": {}}, "patternProperties": {"^x": {}}}) == []
    assert labels(call({"x": 1}), schema={"properties": {"y": {}}, "additionalProperties": False}) == [
        ("hallucinated_param", "weather")
    ]
    assert FailureLabel("no_call").tool == ""

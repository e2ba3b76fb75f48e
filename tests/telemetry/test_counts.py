"""Tool calls are counted without any extra: how many, how long, and how they failed."""

import asyncio

import pytest

from callboard import Agent, Context, tool
from callboard.core import InvocationEnded, InvocationStarted, ReplyEnded
from callboard.errors import ToolExecutionFailure
from callboard.execution import run_invoker
from callboard.providers.scripted import ScriptedModel
from callboard.telemetry import counts, tool_counts
from callboard.tools import Invoker, as_invoker


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(counts, "_tallies", {})
    monkeypatch.setattr(counts, "_listeners", [])


@tool
def divide(a: int, b: int) -> float:
    """Divide."""
    return a / b


@tool
def ask() -> str:
    """Ask."""
    raise PermissionError("no")


def figures():
    return {each.name: (each.calls, dict(each.failures)) for each in tool_counts()}


def call(function, arguments, **options):
    return asyncio.run(run_invoker(as_invoker(function), arguments, Context(), **options))


def test_calls_and_failures_by_category():
    call(divide, {"a": 1, "b": 2})
    call(divide, {"a": 1, "b": 0}, on_error="feedback")
    call(divide, {"a": "x"})
    call(ask, {}, on_error="feedback")
    with pytest.raises(ToolExecutionFailure):
        call(ask, {}, on_error="fail_fast")
    assert figures() == {"divide": (3, {"execution": 1, "validation": 1}), "ask": (2, {"permission": 2})}
    assert tool_counts()[1].failed == 2
    assert tool_counts()[1].seconds > 0


def test_a_name_that_no_tool_has_is_not_told_apart():
    """It is whatever the model wrote."""
    replies = [
        [
            InvocationStarted(0, "1", "secret-of-the-user", known=False),
            InvocationEnded(0, "1", "secret-of-the-user", {}, "{}"),
            ReplyEnded("invocations"),
        ],
        "done",
    ]
    asyncio.run(Agent(ScriptedModel(replies), [divide]).run("go"))
    assert figures() == {counts.UNKNOWN: (1, {"not_found": 1})}


def test_the_name_of_a_tool_that_a_client_runs_is_not_told_apart():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    theirs = Invoker("chosen-by-a-client", print, schema, deferred=True)
    replies = [
        [
            InvocationStarted(0, "1", theirs.name),
            InvocationEnded(0, "1", theirs.name, {}, "{}"),
            ReplyEnded("invocations"),
        ],
        "done",
    ]
    asyncio.run(Agent(ScriptedModel(replies), [theirs]).run("go"))
    assert figures() == {counts.DEFERRED: (1, {"validation": 1})}


def test_listeners_and_too_many_names(monkeypatch):
    monkeypatch.setattr(counts, "MAX_TOOLS", 2)
    calls = []
    counts.listen_to_tool_calls(lambda *call: calls.append(call))
    for name in "abcd":
        counts.count_tool_call(name, 1.0)
    assert set(figures()) == {"a", "b", counts.OTHERS}
    assert [name for name, _, _ in calls] == ["a", "b", counts.OTHERS, counts.OTHERS]

"""Entries as the steps that a direct run records."""

from callboard.coding.job import Notice, PromptSent
from callboard.core import (
    AssistantCanister,
    InvocationCanister,
    InvocationEnded,
    ReasoningContent,
    ReasoningPiece,
    ReplyEnded,
    ResultCanister,
    ResultReady,
    RoundStarted,
    TextPiece,
    UserCanister,
)
from callboard.jobs.entries import JobEntry, encode_entry
from callboard.jobs.steps import read_steps

CALL = InvocationCanister(identifier="a", name="add", arguments={"x": 1}, raw='{"x":1}')
RESULT = ResultCanister("2", invocation_id="a")


def steps(*items):
    """The steps of items, each with the round it belongs to."""
    return [*read_steps(JobEntry(at, number, encode_entry(item)) for at, (number, item) in enumerate(items, 1))]


def test_a_conversation_becomes_what_a_direct_run_records():
    said = AssistantCanister([ReasoningContent("hm"), "Let me add."])
    assert steps((0, UserCanister("1+1")), (1, said), (1, CALL), (1, RESULT), (2, AssistantCanister("2"))) == [
        PromptSent("1+1"),
        RoundStarted(1),
        ReasoningPiece("hm"),
        TextPiece("Let me add."),
        InvocationEnded(0, "a", "add", {"x": 1}, '{"x":1}'),
        ReplyEnded("invocations"),
        ResultReady(RESULT),
        RoundStarted(2),
        TextPiece("2"),
        ReplyEnded("stop"),
    ]


def test_steps_stay_as_they_are_and_nothing_is_told_twice():
    begun = [PromptSent("1+1"), RoundStarted(1)]
    said = AssistantCanister("2")
    recorded = [(0, begun[0]), (0, UserCanister("1+1")), (0, begun[1]), (1, said), (1, Notice("done"))]
    assert steps(*recorded) == [*begun, TextPiece("2"), ReplyEnded("stop"), Notice("done")]


def test_a_reply_that_another_follows_at_once_is_closed():
    assert steps((1, AssistantCanister("a")), (2, AssistantCanister("b"))) == [
        RoundStarted(1),
        TextPiece("a"),
        ReplyEnded("stop"),
        RoundStarted(2),
        TextPiece("b"),
        ReplyEnded("stop"),
    ]


def test_a_second_prompt_is_shown_where_no_step_told_it():
    assert steps((0, PromptSent("a")), (0, UserCanister("a")), (1, UserCanister("b"))) == [
        PromptSent("a"),
        PromptSent("b"),
    ]

"""Entries as the steps that a direct run records."""

from callboard import core
from callboard.coding.job import Notice, PromptSent
from callboard.jobs.entries import JobEntry, encode_entry
from callboard.jobs.steps import read_steps

CALL = core.InvocationCanister(identifier="a", name="add", arguments={"x": 1}, raw='{"x":1}')
RESULT = core.ResultCanister("2", invocation_id="a")


def steps(*items):
    """The steps of items, each with the round it belongs to."""
    return [*read_steps(JobEntry(at, number, encode_entry(item)) for at, (number, item) in enumerate(items, 1))]


def test_a_conversation_becomes_what_a_direct_run_records():
    said = core.AssistantCanister([core.ReasoningContent("hm"), "Let me add."])
    assert steps(
        (0, core.UserCanister("1+1")), (1, said), (1, CALL), (1, RESULT), (2, core.AssistantCanister("2"))
    ) == [
        PromptSent("1+1"),
        core.RoundStarted(1),
        core.ReasoningPiece("hm"),
        core.TextPiece("Let me add."),
        core.InvocationEnded(0, "a", "add", {"x": 1}, '{"x":1}'),
        core.ReplyEnded("invocations"),
        core.ResultReady(RESULT),
        core.RoundStarted(2),
        core.TextPiece("2"),
        core.ReplyEnded("stop"),
    ]


def test_steps_stay_as_they_are_and_nothing_is_told_twice():
    begun = [PromptSent("1+1"), core.RoundStarted(1)]
    said = core.AssistantCanister("2")
    recorded = [(0, begun[0]), (0, core.UserCanister("1+1")), (0, begun[1]), (1, said), (1, Notice("done"))]
    assert steps(*recorded) == [*begun, core.TextPiece("2"), core.ReplyEnded("stop"), Notice("done")]


def test_a_reply_that_another_follows_at_once_is_closed():
    assert steps((1, core.AssistantCanister("a")), (2, core.AssistantCanister("b"))) == [
        core.RoundStarted(1),
        core.TextPiece("a"),
        core.ReplyEnded("stop"),
        core.RoundStarted(2),
        core.TextPiece("b"),
        core.ReplyEnded("stop"),
    ]


def test_a_second_prompt_is_shown_where_no_step_told_it():
    assert steps((0, PromptSent("a")), (0, core.UserCanister("a")), (1, core.UserCanister("b"))) == [
        PromptSent("a"),
        PromptSent("b"),
    ]

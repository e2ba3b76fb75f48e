from __future__ import annotations

from pathlib import Path

from tests.tables import table

from callboard.coding.job import Notice, PromptSent
from callboard.coding.workspace.changed_files import ChangedFile
from callboard.core import (
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Note,
    PictureContent,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyFailed,
    ResultCanister,
    ResultReady,
    RoundStarted,
    TextPiece,
    Usage,
)
from callboard.servers.acp.updates import UpdateEncoder

START = InvocationStarted(0, "call_1", "bash")
END = InvocationEnded(0, "call_1", "bash", {"command": "ls"}, '{"command": "ls"}')
RUN = ReplyEnded("invocations")
RESULT = ResultReady(ResultCanister("a\nb", invocation_id="call_1"))


def encode(*steps, **options):
    """What the client is told, and how each call ends."""
    encoder = UpdateEncoder(Path("/project"), lambda name, arguments: name, **options)
    return [update for step in steps for update in encoder.feed(step)], encoder


def told(*steps, **options):
    updates, _ = encode(*steps, **options)
    return [(each.session_update, getattr(each, "status", None) or each.content.text) for each in updates]


def test_what_is_said_and_thought():
    steps = [RoundStarted(1), ReasoningPiece("Hm."), TextPiece(""), TextPiece("Yes."), RefusalPiece("No.")]
    assert told(*steps) == [
        ("agent_thought_chunk", "Hm."),
        ("agent_message_chunk", "Yes."),
        ("agent_message_chunk", "No."),
    ]


def test_callboards_own_words_are_told_apart():
    assert told(Notice("no\nsandbox"), Note("alert", "a cut reply"), Note("dropped", "a field")) == [
        ("agent_message_chunk", "\n\n> no sandbox\n\n"),
        ("agent_message_chunk", "\n\n> a cut reply\n\n"),
    ]


def test_a_prompt_is_shown_where_it_was_not_typed():
    step = PromptSent("hello", (PictureContent(b"x"),))
    assert told(step) == []
    encoder = UpdateEncoder(Path("/project"), lambda name, arguments: name)
    encoder.replays = True
    assert [each.content.type for each in encoder.feed(step)] == ["text", "image"]


def test_calls_have_one_identifier_each_though_the_model_repeats_its_own():
    updates, _ = encode(START, END, RUN, RESULT, START, END, RUN, RESULT)
    ends = [each.tool_call_id for each in updates if getattr(each, "status", None) == "completed"]
    assert len(ends) == len({*ends}) == 2
    assert {each.tool_call_id for each in updates} == {*ends}


@table(
    "step",
    [
        ReplyEnded("retry"),
        ReplyFailed("provider", "cut", "gone"),
        InvocationIncomplete(0, "call_1", "bash", "{", "cut"),
    ],
)
def test_a_call_that_began_also_ends(step):
    updates, encoder = encode(START, step)
    assert [each.status for each in updates] == ["pending", "failed"]
    assert encoder.finish() == []


def test_a_turn_that_is_cut_ends_its_calls():
    _, encoder = encode(START, END, RUN)
    assert [each.status for each in encoder.finish()] == ["failed"]


def test_a_change_is_shown_with_the_call_that_made_it():
    encoder = UpdateEncoder(Path("/project"), lambda name, arguments: name)
    for step in (START, END, RUN):
        encoder.feed(step)
    encoder.add_change(ChangedFile("a", b"1\n", b"2\n"))
    (end,) = encoder.feed(RESULT)
    assert [each.type for each in end.content] == ["diff"]
    for step in (START, END, RUN):
        encoder.feed(step)
    (end,) = encoder.feed(RESULT)
    assert [each.type for each in end.content] == ["content"]


def test_a_change_of_a_call_that_was_cut_is_not_the_next_ones():
    encoder = UpdateEncoder(Path("/project"), lambda name, arguments: name)
    for step in (START, END, RUN):
        encoder.feed(step)
    encoder.add_change(ChangedFile("a", b"1\n", b"2\n"))
    encoder.finish()
    for step in (START, END, RUN):
        encoder.feed(step)
    (end,) = encoder.feed(RESULT)
    assert [each.type for each in end.content] == ["content"]


def test_how_full_the_context_is():
    assert encode(Usage(input=10, output=5))[0] == []
    ((usage,), _) = encode(Usage(input=10, output=5), context_tokens=100)
    assert (usage.used, usage.size) == (15, 100)

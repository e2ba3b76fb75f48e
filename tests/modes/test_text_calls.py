from hypothesis import given
from hypothesis import strategies as st

from callboard.core import (
    ArgumentsPiece,
    InvocationEnded,
    InvocationStarted,
    Note,
    ReasoningPiece,
    ReplyEnded,
    ReplyFailed,
    ReplyStarted,
    TextPiece,
    ToolDeclaration,
    Usage,
    identify_in_turn,
)
from callboard.dialects import JSON, get_dialect
from callboard.modes import Watcher
from callboard.testing import coalesce

TOOLS = [ToolDeclaration("f")]
CALL = '{"name": "f", "arguments": {"a": 1}}'


def watch(events, tools=TOOLS):
    watcher = Watcher(JSON, tools, identify_in_turn(3, "t"))
    return coalesce([*[out for event in events for out in watcher.feed(event)], *watcher.finish()])


def plain(events):
    return [getattr(event, "text", None) or type(event).__name__ for event in events]


def test_a_call_in_text_becomes_a_call_and_the_reply_ends_with_invocations():
    events = watch([ReplyStarted("r"), TextPiece(f"So:\n```json\n{CALL}\n```\n"), Usage(1, 2), ReplyEnded("stop")])
    assert events == [
        ReplyStarted("r"),
        TextPiece("So:\n", (0, 4)),
        InvocationStarted(0, "call_3_t0", "f", offsets=(4, 39), found_in="text"),
        ArgumentsPiece(0, '{"a": 1}', (39, 47)),
        InvocationEnded(0, "call_3_t0", "f", {"a": 1}, '{"a": 1}', (4, 48)),
        Usage(1, 2),
        ReplyEnded("invocations"),
    ]


def test_native_calls_and_calls_in_text_share_one_sequence():
    native = [InvocationStarted(0, "n", "f"), ArgumentsPiece(0, "{}"), InvocationEnded(0, "n", "f", {}, "{}")]
    events = watch([TextPiece(CALL + "\n"), *native, TextPiece(CALL), ReplyEnded("invocations")])
    assert [(e.index, e.identifier) for e in events if isinstance(e, InvocationEnded)] == [
        (0, "call_3_t0"),
        (1, "n"),
        (2, "call_3_t1"),
    ]


def test_what_is_held_comes_before_whatever_follows():
    assert plain(watch([TextPiece('{"na'), ReasoningPiece("hm"), TextPiece("x")])) == ['{"na', "hm", "x"]
    assert plain(watch([TextPiece("```"), ReplyFailed("provider", "cut", "gone")])) == ["```", "ReplyFailed"]


def test_usage_and_notes_do_not_end_what_is_being_read():
    events = watch([TextPiece(CALL[:20]), Usage(1, 1), Note("coerced", "n"), TextPiece(CALL[20:]), ReplyEnded("stop")])
    assert [event.name for event in events if isinstance(event, InvocationEnded)] == ["f"]


def test_without_tools_text_is_left_alone():
    assert watch([TextPiece(CALL), ReplyEnded("stop")], []) == [TextPiece(CALL, (0, len(CALL))), ReplyEnded("stop")]


def test_a_reply_that_takes_the_place_of_another_counts_its_calls_anew():
    events = watch([TextPiece(CALL), ReplyEnded("retry"), ReplyStarted(), TextPiece(CALL), ReplyEnded("stop")])
    assert [event.index for event in events if isinstance(event, InvocationEnded)] == [0, 0]


@given(st.lists(st.integers(1, 9)))
def test_however_the_text_is_cut(sizes):
    text, at, pieces = f"a\n{CALL}\nb\n```\n{CALL}\n```\nc", 0, []
    for size in sizes:
        pieces.append(TextPiece(text[at : at + size]))
        at += size
    pieces.append(TextPiece(text[at:]))
    assert watch([*pieces, ReplyEnded("stop")]) == watch([TextPiece(text), ReplyEnded("stop")])


def test_calls_in_reasoning_are_found_where_that_is_asked():
    watcher = Watcher(JSON, TOOLS, identify_in_turn(3, "r"), watched=ReasoningPiece)
    given = [ReasoningPiece(f"So\n```json\n{CALL}\n```"), TextPiece("Done."), ReplyEnded("stop")]
    events = coalesce([out for event in given for out in watcher.feed(event)])
    assert plain(events) == ["So\n", "InvocationStarted", "ArgumentsPiece", "InvocationEnded", "Done.", "ReplyEnded"]


def test_opaque_reasoning_passes_untouched():
    watcher = Watcher(JSON, TOOLS, identify_in_turn(3, "r"), watched=ReasoningPiece)
    sealed = ReasoningPiece(CALL, "sealed")
    assert watcher.feed(sealed) == [sealed]


HERMES = get_dialect("hermes")
HERMES_CALL = f"<tool_call>{CALL}</tool_call>"


def missed(events):
    return [event.text for event in watch_hermes(events) if isinstance(event, Note) and event.code == "missed_call"]


def watch_hermes(events):
    watcher = Watcher(HERMES, TOOLS, identify_in_turn(3, "t"))
    return [out for event in events for out in watcher.feed(event)]


def test_a_marker_in_a_final_answer_is_noted_once_before_the_end():
    events = coalesce(watch_hermes([TextPiece("A <tool_call> and a <tool_call>."), ReplyEnded("stop")]))
    assert [type(event) for event in events] == [TextPiece, Note, ReplyEnded]
    assert missed([TextPiece("A <tool_call>."), ReplyEnded("stop")]) == [
        "the reply contains '<tool_call>' at character 2, but no call was found"
    ]
    assert missed([TextPiece("A <tool_call>"), TextPiece(" is it."), ReplyEnded("length")])


def test_a_marker_beside_a_call_is_not_noted():
    native = [InvocationStarted(0, "n", "f"), ArgumentsPiece(0, "{}"), InvocationEnded(0, "n", "f", {}, "{}")]
    assert missed([TextPiece("A <tool_call>."), *native, ReplyEnded("invocations")]) == []
    assert missed([TextPiece(f"A `<tool_call>`: {HERMES_CALL}"), ReplyEnded("stop")]) == []


def test_each_reply_is_noted_on_its_own():
    one = [TextPiece("A <tool_call>."), ReplyEnded("stop")]
    assert len(missed([*one, TextPiece(HERMES_CALL), ReplyEnded("stop"), *one])) == 2

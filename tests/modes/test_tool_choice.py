from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import table

from callboard.core import (
    ArgumentsPiece,
    HostedTool,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    NamedTool,
    Note,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyFailed,
    ReplyStarted,
    Request,
    TextPiece,
    ToolDeclaration,
    Usage,
    UserCanister,
)
from callboard.modes import create_choice_check, remind

TOOLS = (ToolDeclaration("a"), ToolDeclaration("b"))
SEARCH = (HostedTool("responses", "web_search"),)
CALLS = (InvocationStarted, ArgumentsPiece, InvocationEnded, InvocationIncomplete)
SPOKEN = (TextPiece, RefusalPiece, *CALLS)


def asked(wanted="auto", parallel=None, *, last=False, tools=TOOLS, hosted=()):
    request = Request("m", (UserCanister("Hi"),), tools, wanted, parallel, hosted=hosted)
    return create_choice_check(request, last=last)


def call(index, name="a"):
    return [
        InvocationStarted(index, f"c{index}", name),
        ArgumentsPiece(index, "{}"),
        InvocationEnded(index, f"c{index}", name, {}, "{}"),
    ]


def through(check, events):
    return [out for event in events for out in check.feed(event)] + check.finish()


def texts(events):
    return "".join([event.text for event in events if isinstance(event, TextPiece)])


def started(events):
    return [(event.index, event.name) for event in events if isinstance(event, InvocationStarted)]


@table(
    ("wanted", "parallel", "hosted", "checked"),
    [
        ("auto", None, (), False),
        ("none", None, (), False),
        ("auto", True, (), False),
        ("required", None, (), True),
        (NamedTool("a"), None, (), True),
        ("required", None, SEARCH, False),  # which may have been called
        (NamedTool("a"), None, SEARCH, True),
        ("auto", False, (), True),
    ],
)
def test_when_there_is_something_to_check(wanted, parallel, hosted, checked):
    assert (asked(wanted, parallel, hosted=hosted) is not None) == checked
    assert asked(wanted, parallel, hosted=hosted, tools=()) is None


def test_text_waits_for_the_call_that_was_asked_for():
    check = asked("required")
    assert check.feed(ReplyStarted()) == [ReplyStarted()]
    assert check.feed(ReasoningPiece("hm")) == [ReasoningPiece("hm")]
    assert check.feed(TextPiece("Let me ")) == []
    assert check.feed(TextPiece("see.")) == []
    begun, *rest = call(0)
    assert check.feed(begun) == [TextPiece("Let me "), TextPiece("see."), begun]
    assert through(check, [*rest, TextPiece("!"), ReplyEnded("invocations")]) == [
        *rest,
        TextPiece("!"),
        ReplyEnded("invocations"),
    ]


def test_a_reply_without_the_call_is_to_be_asked_for_again():
    check = asked("required")
    assert through(check, [ReplyStarted(), TextPiece("No."), Usage(3, 2), ReplyEnded("stop")]) == [
        ReplyStarted(),
        Usage(3, 2),
        ReplyEnded("retry"),
    ]
    assert check.held_text == "No."


def test_the_last_attempt_says_that_no_call_came():
    events = [ReplyStarted(), TextPiece("No."), ReplyEnded("stop")]
    *given, note, end = through(asked("required", last=True), events)
    assert given == events[:2]
    assert (note.kind, note.code, end) == ("alert", "incomplete", ReplyEnded("no_call"))


def test_only_the_named_tool_may_be_called():
    check = asked(NamedTool("b"))
    found = through(check, [*call(0, "a"), TextPiece("x"), *call(1, "b"), ReplyEnded("invocations")])
    assert started(found) == [(0, "b")]
    assert [note.kind for note in found if isinstance(note, Note)] == ["dropped"]
    assert texts(found) == "x"
    assert found[-1] == ReplyEnded("invocations")


@table("last", [False, True])
def test_a_call_of_another_tool_is_none(last):
    found = through(asked(NamedTool("b"), last=last), [*call(0, "a"), ReplyEnded("invocations")])
    assert started(found) == []
    assert found[-1] == ReplyEnded("no_call" if last else "retry")


def test_one_call_where_one_was_asked_for():
    one, two = call(0), call(1, "b")
    mixed = [one[0], two[0], one[1], two[1], one[2], two[2]]
    found = through(asked(parallel=False), [*mixed, ReplyEnded("invocations")])
    assert [event for event in found if isinstance(event, CALLS)] == one
    assert found[-1] == ReplyEnded("invocations")


@table("end", [ReplyEnded("length"), ReplyEnded("filter"), ReplyEnded("refusal"), ReplyFailed("provider", "cut", "x")])
def test_no_other_end_is_changed(end):
    assert through(asked("required"), [TextPiece("No."), end]) == [TextPiece("No."), end]


def test_a_refusal_is_an_answer():
    events = [TextPiece("Well. "), RefusalPiece("I won't."), ReplyEnded("refusal")]
    assert through(asked("required"), events) == events


def test_a_stream_that_stops_gives_what_was_held():
    assert through(asked("required"), [TextPiece("x")]) == [TextPiece("x")]


@table(("wanted", "word"), [("required", "one of the tools"), (NamedTool("a"), "the tool a")])
@table("said", ["", " \n", "No."])
def test_what_a_model_is_told_that_disobeyed(wanted, word, said):
    request = Request("m", (UserCanister("Hi"),), TOOLS, wanted)
    again = remind(request, said)
    assert [each.text for each in again.canisters[:-1]] == ["Hi", *([said] if said.strip() else [])]
    assert word in again.canisters[-1].text
    assert (again.tools, again.tool_choice) == (request.tools, request.tool_choice)


# Any reply: pieces of text, thoughts, and calls whose steps may be interleaved, with any end or none.
PIECES = st.sampled_from(["text", "thought", "refusal", "note", "usage", "begin", "piece", "end", "break"])


@st.composite
def replies(draw):
    events, begun, open_calls = [ReplyStarted()], 0, []
    for what in draw(st.lists(PIECES, max_size=25)):
        match what:
            case "text":
                events.append(TextPiece(draw(st.text(max_size=3))))
            case "thought":
                events.append(ReasoningPiece("hm"))
            case "refusal" if draw(st.booleans()):
                events.append(RefusalPiece("no"))
            case "note":
                events.append(Note("recovered", "x"))
            case "usage":
                events.append(Usage(1, 1))
            case "begin":
                name = draw(st.sampled_from(["a", "b", "c"]))
                events.append(InvocationStarted(begun, f"c{begun}", name))
                open_calls.append((begun, name))
                begun += 1
            case _ if open_calls:
                index, name = draw(st.sampled_from(open_calls))
                if what == "piece":
                    events.append(ArgumentsPiece(index, "x"))
                else:
                    open_calls.remove((index, name))
                    ended = InvocationEnded(index, f"c{index}", name, {}, "{}")
                    broken = InvocationIncomplete(index, f"c{index}", name, "{", "length")
                    events.append(ended if what == "end" else broken)
    ends = [ReplyEnded(reason) for reason in ("stop", "invocations", "length", "filter", "refusal")]
    return [*events, draw(st.sampled_from([*ends, ReplyFailed("provider", "cut", "x")]))]


@settings(max_examples=4 * settings.default.max_examples)
@given(
    events=replies(),
    wanted=st.sampled_from(["auto", "required", NamedTool("a")]),
    parallel=st.sampled_from([None, False]),
    last=st.booleans(),
)
def test_laws(events, wanted, parallel, last):
    check = asked(wanted, parallel, last=last)
    if check is None:
        return
    name = wanted.name if isinstance(wanted, NamedTool) else ""
    found = through(check, events)

    assert [event for event in found if isinstance(event, (ReplyEnded, ReplyFailed))] == found[-1:]
    calls = started(found)
    assert [index for index, _ in calls] == list(range(len(calls)))  # no gap where one was left out
    assert all(not name or each == name for _, each in calls)
    assert parallel is None or len(calls) <= 1
    announced = set()
    for event in found:
        if isinstance(event, InvocationStarted):
            announced.add(event.index)
        assert not isinstance(event, CALLS) or event.index in announced

    if found[-1] == ReplyEnded("retry"):
        assert not last
        assert wanted != "auto"
        assert [event for event in found if isinstance(event, SPOKEN)] == []
        assert check.held_text == texts(events)
    else:
        assert texts(found) == texts(events)
        first = next((at for at, event in enumerate(found) if isinstance(event, InvocationStarted)), len(found))
        wished = wanted != "auto" and isinstance(found[-1], ReplyEnded) and found[-1].reason in {"stop", "invocations"}
        refused = any(isinstance(event, RefusalPiece) for event in found[:first])
        assert not wished or calls or last or refused
    if found[-1] == ReplyEnded("invocations"):
        assert calls

    kept = [event for event in found if not isinstance(event, (*CALLS, Note, TextPiece, ReplyEnded))]
    assert kept == [event for event in events if not isinstance(event, (*CALLS, Note, TextPiece, ReplyEnded))]


@given(
    st.lists(
        st.one_of(
            st.builds(ArgumentsPiece, st.integers(0, 2), st.text(max_size=2)),
            *map(st.just, [*call(0), *call(1, "b"), TextPiece("x"), ReplyEnded("stop")]),
        )
    )
)
def test_events_in_no_order_do_no_harm(events):
    check = asked(NamedTool("a"), parallel=False)
    found = through(check, events)
    assert {event.index for event in found if isinstance(event, CALLS)} <= {0}

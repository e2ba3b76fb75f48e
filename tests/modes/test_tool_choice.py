from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.modes import create_choice_check, remind

TOOLS = (core.ToolDeclaration("a"), core.ToolDeclaration("b"))
SEARCH = (core.HostedTool("responses", "web_search"),)
CALLS = (core.InvocationStarted, core.ArgumentsPiece, core.InvocationEnded, core.InvocationIncomplete)
SPOKEN = (core.TextPiece, core.RefusalPiece, *CALLS)


def asked(wanted="auto", parallel=None, *, last=False, tools=TOOLS, hosted=()):
    request = core.Request("m", (core.UserCanister("Hi"),), tools, wanted, parallel, hosted=hosted)
    return create_choice_check(request, last=last)


def call(index, name="a"):
    return [
        core.InvocationStarted(index, f"c{index}", name),
        core.ArgumentsPiece(index, "{}"),
        core.InvocationEnded(index, f"c{index}", name, {}, "{}"),
    ]


def through(check, events):
    return [out for event in events for out in check.feed(event)] + check.finish()


def texts(events):
    return "".join([event.text for event in events if isinstance(event, core.TextPiece)])


def started(events):
    return [(event.index, event.name) for event in events if isinstance(event, core.InvocationStarted)]


@table(
    ("wanted", "parallel", "hosted", "checked"),
    [
        ("auto", None, (), False),
        ("none", None, (), False),
        ("auto", True, (), False),
        ("required", None, (), True),
        (core.NamedTool("a"), None, (), True),
        ("required", None, SEARCH, False),  # which may have been called
        (core.NamedTool("a"), None, SEARCH, True),
        ("auto", False, (), True),
    ],
)
def test_when_there_is_something_to_check(wanted, parallel, hosted, checked):
    assert (asked(wanted, parallel, hosted=hosted) is not None) == checked
    assert asked(wanted, parallel, hosted=hosted, tools=()) is None


def test_text_waits_for_the_call_that_was_asked_for():
    check = asked("required")
    assert check.feed(core.ReplyStarted()) == [core.ReplyStarted()]
    assert check.feed(core.ReasoningPiece("hm")) == [core.ReasoningPiece("hm")]
    assert check.feed(core.TextPiece("Let me ")) == []
    assert check.feed(core.TextPiece("see.")) == []
    begun, *rest = call(0)
    assert check.feed(begun) == [core.TextPiece("Let me "), core.TextPiece("see."), begun]
    assert through(check, [*rest, core.TextPiece("!"), core.ReplyEnded("invocations")]) == [
        *rest,
        core.TextPiece("!"),
        core.ReplyEnded("invocations"),
    ]


def test_a_reply_without_the_call_is_to_be_asked_for_again():
    check = asked("required")
    assert through(check, [core.ReplyStarted(), core.TextPiece("No."), core.Usage(3, 2), core.ReplyEnded("stop")]) == [
        core.ReplyStarted(),
        core.Usage(3, 2),
        core.ReplyEnded("retry"),
    ]
    assert check.held_text == "No."


def test_the_last_attempt_says_that_no_call_came():
    events = [core.ReplyStarted(), core.TextPiece("No."), core.ReplyEnded("stop")]
    *given, note, end = through(asked("required", last=True), events)
    assert given == events[:2]
    assert (note.kind, note.code, end) == ("alert", "incomplete", core.ReplyEnded("no_call"))


def test_only_the_named_tool_may_be_called():
    check = asked(core.NamedTool("b"))
    found = through(check, [*call(0, "a"), core.TextPiece("x"), *call(1, "b"), core.ReplyEnded("invocations")])
    assert started(found) == [(0, "b")]
    assert [note.kind for note in found if isinstance(note, core.Note)] == ["dropped"]
    assert texts(found) == "x"
    assert found[-1] == core.ReplyEnded("invocations")


@table("last", [False, True])
def test_a_call_of_another_tool_is_none(last):
    found = through(asked(core.NamedTool("b"), last=last), [*call(0, "a"), core.ReplyEnded("invocations")])
    assert started(found) == []
    assert found[-1] == core.ReplyEnded("no_call" if last else "retry")


def test_one_call_where_one_was_asked_for():
    one, two = call(0), call(1, "b")
    mixed = [one[0], two[0], one[1], two[1], one[2], two[2]]
    found = through(asked(parallel=False), [*mixed, core.ReplyEnded("invocations")])
    assert [event for event in found if isinstance(event, CALLS)] == one
    assert found[-1] == core.ReplyEnded("invocations")


@table(
    "end",
    [
        core.ReplyEnded("length"),
        core.ReplyEnded("filter"),
        core.ReplyEnded("refusal"),
        core.ReplyFailed("provider", "cut", "x"),
    ],
)
def test_no_other_end_is_changed(end):
    assert through(asked("required"), [core.TextPiece("No."), end]) == [core.TextPiece("No."), end]


def test_a_refusal_is_an_answer():
    events = [core.TextPiece("Well. "), core.RefusalPiece("I won't."), core.ReplyEnded("refusal")]
    assert through(asked("required"), events) == events


def test_a_stream_that_stops_gives_what_was_held():
    assert through(asked("required"), [core.TextPiece("x")]) == [core.TextPiece("x")]


@table(("wanted", "word"), [("required", "one of the tools"), (core.NamedTool("a"), "the tool a")])
@table("said", ["", " \n", "No."])
def test_what_a_model_is_told_that_disobeyed(wanted, word, said):
    request = core.Request("m", (core.UserCanister("Hi"),), TOOLS, wanted)
    again = remind(request, said)
    assert [each.text for each in again.canisters[:-1]] == ["Hi", *([said] if said.strip() else [])]
    assert word in again.canisters[-1].text
    assert (again.tools, again.tool_choice) == (request.tools, request.tool_choice)


# Any reply: pieces of text, thoughts, and calls whose steps may be interleaved, with any end or none.
PIECES = st.sampled_from(["text", "thought", "refusal", "note", "usage", "begin", "piece", "end", "break"])


@st.composite
def replies(draw):
    events, begun, open_calls = [core.ReplyStarted()], 0, []
    for what in draw(st.lists(PIECES, max_size=25)):
        match what:
            case "text":
                events.append(core.TextPiece(draw(st.text(max_size=3))))
            case "thought":
                events.append(core.ReasoningPiece("hm"))
            case "refusal" if draw(st.booleans()):
                events.append(core.RefusalPiece("no"))
            case "note":
                events.append(core.Note("recovered", "x"))
            case "usage":
                events.append(core.Usage(1, 1))
            case "begin":
                name = draw(st.sampled_from(["a", "b", "c"]))
                events.append(core.InvocationStarted(begun, f"c{begun}", name))
                open_calls.append((begun, name))
                begun += 1
            case _ if open_calls:
                index, name = draw(st.sampled_from(open_calls))
                if what == "piece":
                    events.append(core.ArgumentsPiece(index, "x"))
                else:
                    open_calls.remove((index, name))
                    ended = core.InvocationEnded(index, f"c{index}", name, {}, "{}")
                    broken = core.InvocationIncomplete(index, f"c{index}", name, "{", "length")
                    events.append(ended if what == "end" else broken)
    ends = [core.ReplyEnded(reason) for reason in ("stop", "invocations", "length", "filter", "refusal")]
    return [*events, draw(st.sampled_from([*ends, core.ReplyFailed("provider", "cut", "x")]))]


@settings(max_examples=4 * settings.default.max_examples)
@given(
    events=replies(),
    wanted=st.sampled_from(["auto", "required", core.NamedTool("a")]),
    parallel=st.sampled_from([None, False]),
    last=st.booleans(),
)
def test_laws(events, wanted, parallel, last):
    check = asked(wanted, parallel, last=last)
    if check is None:
        return
    name = wanted.name if isinstance(wanted, core.NamedTool) else ""
    found = through(check, events)

    assert [event for event in found if isinstance(event, (core.ReplyEnded, core.ReplyFailed))] == found[-1:]
    calls = started(found)
    assert [index for index, _ in calls] == list(range(len(calls)))  # no gap where one was left out
    assert all(not name or each == name for _, each in calls)
    assert parallel is None or len(calls) <= 1
    announced = set()
    for event in found:
        if isinstance(event, core.InvocationStarted):
            announced.add(event.index)
        assert not isinstance(event, CALLS) or event.index in announced

    if found[-1] == core.ReplyEnded("retry"):
        assert not last
        assert wanted != "auto"
        assert [event for event in found if isinstance(event, SPOKEN)] == []
        assert check.held_text == texts(events)
    else:
        assert texts(found) == texts(events)
        first = next((at for at, event in enumerate(found) if isinstance(event, core.InvocationStarted)), len(found))
        wished = (
            wanted != "auto" and isinstance(found[-1], core.ReplyEnded) and found[-1].reason in {"stop", "invocations"}
        )
        refused = any(isinstance(event, core.RefusalPiece) for event in found[:first])
        assert not wished or calls or last or refused
    if found[-1] == core.ReplyEnded("invocations"):
        assert calls

    kept = [event for event in found if not isinstance(event, (*CALLS, core.Note, core.TextPiece, core.ReplyEnded))]
    assert kept == [
        event for event in events if not isinstance(event, (*CALLS, core.Note, core.TextPiece, core.ReplyEnded))
    ]


@given(
    st.lists(
        st.one_of(
            st.builds(core.ArgumentsPiece, st.integers(0, 2), st.text(max_size=2)),
            *map(st.just, [*call(0), *call(1, "b"), core.TextPiece("x"), core.ReplyEnded("stop")]),
        )
    )
)
def test_events_in_no_order_do_no_harm(events):
    check = asked(core.NamedTool("a"), parallel=False)
    found = through(check, events)
    assert {event.index for event in found if isinstance(event, CALLS)} <= {0}

import json
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.tables import table

from callboard import core
from callboard.modes.filters.duplicates import DuplicateFilter

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "unit": {"type": "string", "default": "C"}}}
TOOLS = [core.ToolDeclaration("f", schema=SCHEMA), core.ToolDeclaration("g")]
ENDED = core.ReplyEnded("invocations")


def begin(index, place, name="f"):
    return core.InvocationStarted(index, f"call_{index}", name, found_in=place)


def end(index, arguments, name="f"):
    raw = json.dumps(arguments)
    return core.InvocationEnded(index, f"call_{index}", name, arguments, raw)


def call(index, place, arguments, name="f"):
    return [begin(index, place, name), core.ArgumentsPiece(index, json.dumps(arguments)), end(index, arguments, name)]


def check(events, tools=TOOLS):
    stage = DuplicateFilter(tools)
    return [*[out for event in events for out in stage.feed(event)], *stage.finish()]


def given_calls(events):
    return [event.index for event in events if isinstance(event, core.InvocationEnded)]


@table(
    ("one", "other"),
    [
        ({"n": 1}, {"n": 1}),
        ({"n": 1, "unit": "K"}, {"unit": "K", "n": 1}),
        ({"n": 1}, {"n": "1"}),
        ({"n": 1}, {"n": 1.0}),
        ({"n": 1}, {"n": 1, "unit": "C"}),
        ({"n": "one"}, {"n": "one"}),
        ({"other": [1.0, {"a": None}]}, {"other": [1, {"a": None}]}),
    ],
)
def test_the_same_arguments_in_another_spelling_are_the_same_call(one, other):
    events = check([*call(0, "text", one), *call(1, "wire", other), ENDED])
    assert given_calls(events) == [0]
    (note,) = [event for event in events if isinstance(event, core.Note)]
    assert (note.kind, note.code) == ("dropped", "duplicate")
    assert note.text == "a call of f in the wire's field repeats a call from another place and was dropped"


@table(("one", "other"), [({"n": 1}, {"n": 2}), ({"n": 1}, {"n": True}), ({"x": "1"}, {"x": 1})])
def test_other_arguments_are_another_call(one, other):
    assert given_calls(check([*call(0, "text", one), *call(1, "wire", other), ENDED])) == [0, 1]


@table("size", [1, 3])
def test_the_indices_of_later_calls_close_the_gap(size):
    first = [begin(0, "wire"), *[core.ArgumentsPiece(0, piece) for piece in ('{"n"', ": 1}")[:size]], end(0, {"n": 1})]
    replies = [*first, *call(1, "text", {"n": 1}), *call(2, "text", {"n": 2}), *call(3, "wire", {}, "g")]
    events = check([*replies, ENDED, *replies, ENDED])
    indexed = [event.index for event in events if hasattr(event, "index")]
    assert [event.index for event in events if isinstance(event, core.InvocationStarted)] == [0, 1, 2, 0, 1, 2]
    assert sorted(set(indexed)) == [0, 1, 2]
    by_index = [(event.index, event.identifier) for event in events if isinstance(event, core.InvocationEnded)]
    assert by_index[:3] == [(0, "call_0"), (1, "call_2"), (2, "call_3")]


def test_a_call_of_another_tool_is_another_call():
    assert given_calls(check([*call(0, "text", {"n": 1}), *call(1, "wire", {"n": 1}, "g"), ENDED])) == [0, 1]


def test_arguments_that_are_no_object_are_the_same_where_they_are_spelled_alike():
    broken = [
        event
        for index, place in enumerate(["text", "wire"])
        for event in (begin(index, place), core.InvocationEnded(index, "c", "f", None, '{"n": '))
    ]
    assert given_calls(check([*broken, ENDED])) == [0]


def test_a_call_in_text_waits_for_the_open_one_in_the_field():
    stage = DuplicateFilter(TOOLS)
    assert stage.feed(begin(0, "wire")) == [begin(0, "wire")]
    held = [*call(1, "text", {"n": 1}), core.TextPiece("Done.")]
    assert [stage.feed(event) for event in held] == [[], [], [], []]
    note, *events = [*stage.feed(end(0, {"n": 1})), *stage.feed(ENDED)]
    assert isinstance(note, core.Note)
    assert events == [core.TextPiece("Done."), end(0, {"n": 1}), ENDED]


def test_a_call_of_a_tool_that_was_not_called_elsewhere_is_not_held():
    stage = DuplicateFilter(TOOLS)
    events = [*call(0, "text", {"n": 1}), *call(1, "wire", {"n": 1}, "g"), *call(2, "text", {"n": 1})]
    assert [stage.feed(event) for event in events] == [[event] for event in events]


def test_a_call_that_was_repeated_once_holds_no_other():
    stage = DuplicateFilter(TOOLS)
    for event in [*call(0, "text", {"n": 1}), *call(1, "wire", {"n": 1})]:
        stage.feed(event)
    assert stage.feed(begin(2, "wire")) == [core.InvocationStarted(1, "call_2", "f", found_in="wire")]


@table("terminal", [core.ReplyEnded("length"), core.ReplyFailed("provider", "cut", "gone")])
def test_an_incomplete_call_is_told_as_one(terminal):
    incomplete = [begin(1, "wire"), core.InvocationIncomplete(1, "call_1", "f", '{"n"', "cut")]
    events = [*call(0, "text", {"n": 1}), *incomplete, terminal]
    assert check(events) == events


def test_a_reply_that_breaks_off_leaves_nothing_held():
    events = [*call(0, "text", {"n": 1}), begin(1, "wire"), core.ArgumentsPiece(1, "{")]
    assert check(events) == events


def test_a_reply_in_the_place_of_another_is_its_own():
    events = [*call(0, "text", {"n": 1}), core.ReplyEnded("retry"), *call(0, "wire", {"n": 1}), ENDED]
    assert check(events) == events


def test_a_schema_that_cannot_be_compiled_leaves_the_arguments_as_they_are():
    tools = [core.ToolDeclaration("f", schema={"$ref": "https://elsewhere.example"})]
    assert given_calls(check([*call(0, "text", {"n": 1}), *call(1, "wire", {"n": 1}), ENDED], tools)) == [0]


@st.composite
def replies(draw):
    """Calls at three places, each begun in the order of its index, their events mingled as they may arrive."""
    calls = draw(st.lists(st.tuples(st.sampled_from(["wire", "text", "reasoning"]), st.integers(0, 2)), max_size=8))
    waiting = [call(index, place, {"n": n}) for index, (place, n) in enumerate(calls)]
    events, open_calls = [], []
    while waiting or open_calls:
        if waiting and (not open_calls or draw(st.booleans())):
            open_calls.append(waiting.pop(0))
        at = draw(st.integers(0, len(open_calls) - 1))
        events.append(open_calls[at].pop(0))
        if not open_calls[at]:
            del open_calls[at]
        if draw(st.booleans()):
            events.append(core.TextPiece(str(len(events))))
    return calls, [*events, ENDED]


@given(replies())
def test_a_call_is_given_as_often_as_the_place_that_says_it_most_often(reply):
    calls, events = reply
    out = check(events)
    most = Counter()
    for place in ("wire", "text", "reasoning"):
        most |= Counter(n for at, n in calls if at == place)
    starts = [event for event in out if isinstance(event, core.InvocationStarted)]
    came_as = [int(event.identifier.removeprefix("call_")) for event in starts]
    assert Counter(calls[index][1] for index in came_as) == most
    assert [event.index for event in starts] == [*range(len(starts))], "later indices close the gap"
    passed = [event for event in events if getattr(event, "index", None) in {None, *came_as}]
    came = [replace(event, index=came_as[event.index]) if hasattr(event, "index") else event for event in out]
    assert [event for event in came if not isinstance(event, core.Note)] == passed
    assert len([event for event in out if isinstance(event, core.Note)]) == len(calls) - len(came_as)

"""Calls that stand word for word in a source of their conversation.

The rows of `vectors/quotations/echoes.jsonl` are conversations: what the model was shown, and a reply. Those with
`runs` false repeat a source.
"""

import html
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.dialects import DIALECTS, NotSpellable, get_dialect, render_calls
from callboard.modes import Sources, TextCall, Watcher
from callboard.modes.filters import echoes
from callboard.testing import coalesce

VECTORS = Path(__file__).parents[2] / "vectors" / "quotations"
ROWS = [json.loads(line) for line in (VECTORS / "echoes.jsonl").read_text().splitlines()]
ECHOES = [row for row in ROWS if not row["runs"]]
OWN = [row for row in ROWS if row["runs"]]
NOT_CALLS = [json.loads(line) for line in (VECTORS / "not_calls.jsonl").read_text().splitlines()]
TOOLS = [
    core.ToolDeclaration(each["name"], "", each["schema"]) for each in json.loads((VECTORS / "tools.json").read_text())
]
WEATHER = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'


def canisters(row):
    return [core.decode_canister(msgspec.json.encode(each)) for each in row["canisters"]]


def watch(row, *, sizes=(), shown=None, quoted_calls="marked"):
    """The events of the row's reply, in pieces of these sizes."""
    piece = core.ReasoningPiece if row["where"] == "reasoning" else core.TextPiece
    watcher = Watcher(
        get_dialect(row["dialect"]),
        TOOLS,
        core.identify_in_turn(9, "t"),
        watched=piece,
        sources=Sources(canisters(row)) if shown is None else shown,
        quoted_calls=quoted_calls,
    )
    text, events = row["reply"], []
    for size in sizes:
        events += watcher.feed(piece(text[:size]))
        text = text[size:]
    return [*events, *watcher.feed(piece(text)), *watcher.feed(core.ReplyEnded("stop"))]


def calls(events):
    return [event for event in events if isinstance(event, core.InvocationEnded)]


def reply(text, *, before=(), dialect="hermes", **options):
    row = {"reply": text, "dialect": dialect, "where": "text"}
    return watch(row, shown=Sources(before), **options)


def page(text):
    return [
        core.UserCanister("Read the page."),
        core.InvocationCanister("call_1", "read_page", {"url": "u"}, "{}"),
        core.ResultCanister(invocation_id="call_1", content=text),
    ]


def test_there_are_enough_vectors():
    assert len({row["name"] for row in ROWS}) == len(ROWS)
    assert len(ECHOES) >= 80
    assert len(OWN) >= 40
    assert len([row for row in ECHOES if calls(watch(row, shown=Sources()))]) >= 80, "without sources they are calls"


@table("row", ECHOES, ids=[row["name"] for row in ECHOES])
def test_a_call_that_a_source_contains_is_marked_as_a_quotation(row):
    events = watch(row)
    assert all(call.quoted_from for call in calls(events)), calls(events)
    alerts = [event for event in events if isinstance(event, core.Note) and event.code == "quotation"]
    assert [alert.kind for alert in alerts] == ["alert"] * len(calls(events))
    assert all(call.quoted_from in alert.text for call, alert in zip(calls(events), alerts, strict=True))


@table("row", ECHOES, ids=[row["name"] for row in ECHOES])
def test_without_a_person_to_ask_a_quotation_stays_text(row):
    events = watch(row, quoted_calls="text")
    assert not any(
        isinstance(event, (core.InvocationStarted, core.ArgumentsPiece, core.InvocationEnded)) for event in events
    )
    assert events[-1] == core.ReplyEnded("stop")
    said = "".join([event.text for event in events if isinstance(event, (core.TextPiece, core.ReasoningPiece))])
    assert said == row["reply"].removesuffix("<|call|>")


@table("row", NOT_CALLS, ids=[row["name"] for row in NOT_CALLS])
def test_a_spelling_that_no_dialect_reads_as_a_call_is_no_source(row):
    assert row["reason"]
    assert not any(call.quoted_from for call in calls(watch(row)))


@table("row", OWN, ids=[row["name"] for row in OWN])
def test_a_call_of_the_models_own_runs_whatever_sources_say(row):
    events = watch(row)
    assert calls(events)
    assert events == watch(row, shown=Sources())
    assert events == watch(row, quoted_calls="text")


@given(st.sampled_from(ROWS), st.lists(st.integers(1, 40), max_size=30), st.sampled_from(["marked", "text"]))
def test_however_the_reply_is_cut_the_same_calls_are_quotations(row, sizes, quoted_calls):
    whole = watch(row, quoted_calls=quoted_calls)
    cut = watch(row, sizes=sizes, quoted_calls=quoted_calls)
    assert plain(cut) == plain(whole)


def plain(events):
    """The events without where pieces were cut, and texts as one where an alert stands between them."""
    alerts = [event for event in events if isinstance(event, core.Note)]
    rest = coalesce([event for event in events if not isinstance(event, core.Note)])
    return alerts, [event.text if isinstance(event, (core.TextPiece, core.ReasoningPiece)) else event for event in rest]


@table(
    ("before", "source"),
    [
        (page(WEATHER), "the result of read_page (call_1)"),
        ([core.ResultCanister(invocation_id="call_7", content=WEATHER)], "the result (call_7)"),
        ([core.DocumentCanister(WEATHER, title="a.md")], "the document 'a.md'"),
        ([core.UserCanister(WEATHER)], "a message of the user"),
    ],
)
def test_the_source_is_named(before, source):
    (call,) = calls(reply(WEATHER, before=before))
    assert call.quoted_from == source


def test_supervisors_are_no_source():
    (call,) = calls(reply(WEATHER, before=[core.SupervisorCanister(WEATHER)]))
    assert not call.quoted_from


def test_a_call_that_the_model_made_first_is_its_own():
    own = core.InvocationCanister("call_0", "get_weather", {"city": "Paris"}, "{}")
    assert not calls(reply(WEATHER, before=[own, *page(WEATHER)]))[0].quoted_from
    assert calls(reply(WEATHER, before=[*page(WEATHER), own]))[0].quoted_from
    assert not calls(reply(WEATHER, before=[core.AssistantCanister(WEATHER), *page(WEATHER)]))[0].quoted_from


def test_a_call_beside_a_quotation_runs():
    other = WEATHER.replace("Paris", "Rome")
    marked = calls(reply(WEATHER + other, before=page(WEATHER)))
    assert [bool(call.quoted_from) for call in marked] == [True, False]
    events = reply(f"A {WEATHER} B {other} C", before=page(WEATHER), quoted_calls="text")
    assert [(call.index, call.arguments) for call in calls(events)] == [(0, {"city": "Rome"})]
    assert events[-1] == core.ReplyEnded("invocations")
    said = "".join([event.text for event in events if isinstance(event, core.TextPiece)])
    assert said.replace(" ", "") == f"A {WEATHER} B C".replace(" ", "")


def test_a_call_of_a_tool_that_no_source_names_is_not_held():
    begun = '<tool_call>{"name": "get_weather", "arguments": {"city"'
    for text, held in (("about the weather", False), (WEATHER, True)):
        watcher = Watcher(
            get_dialect("hermes"), TOOLS, core.identify_in_turn(1), sources=Sources(page(text)), quoted_calls="text"
        )
        events = watcher.feed(core.TextPiece(begun))
        assert (not events) is held, events


def test_a_long_call_goes_on_as_soon_as_it_stands_in_no_source():
    watcher = Watcher(
        get_dialect("hermes"),
        TOOLS,
        core.identify_in_turn(1),
        sources=Sources(page('{"name": "write_file", "arguments": {"path": "a", "content": "b"}}')),
        quoted_calls="text",
    )
    text = '<tool_call>{"name": "write_file", "arguments": {"path": "a", "content": "' + "new text " * 400
    given = [(place, watcher.feed(core.TextPiece(text[place : place + 50]))) for place in range(0, len(text), 50)]
    first = next(place for place, events in given if events)
    assert 0 < first < 1500
    assert [type(event) for _, events in given for event in events][:2] == [core.InvocationStarted, core.ArgumentsPiece]


# Any call, in any dialect and any coat.

WORDS = st.text(st.sampled_from("abcXYZ012 .,/-_'\"\\\n{}[]()<>:=&é"), min_size=1, max_size=30).filter(str.strip)
VALUES = st.recursive(
    WORDS | st.integers(-999, 999) | st.booleans(), lambda inner: st.lists(inner, max_size=3), max_leaves=4
)
COATS = [
    str,
    json.dumps,
    lambda text: json.dumps({"page": json.dumps({"body": text})}),
    html.escape,
    lambda text: f"Before.\n{text}\nBehind.",
    lambda text: "\n".join(f"{number}: {line}" for number, line in enumerate(text.split("\n"), 1)) + "\n99: the end",
]


@example({"path": ["0", "["]}, str)
@example({"path": "\\é"}, json.dumps)
@given(st.dictionaries(st.sampled_from(["path", "query", "x"]), VALUES, max_size=3), st.sampled_from(COATS))
def test_any_call_is_found_in_any_coat(arguments, coat):
    spelled = json.dumps({"name": "do_it", "arguments": arguments})
    call = TextCall("do_it", arguments, json.dumps(arguments))
    assert call.source(Sources([core.UserCanister(coat(f"<tool_call>{spelled}</tool_call>"))]))


@given(st.sampled_from(sorted(DIALECTS)), st.text(st.sampled_from("abc 1/.-"), min_size=1).filter(str.strip))
def test_a_call_is_found_in_every_dialect_that_spells_it(name, command):
    command = f"{command.strip()} | sh"
    call = core.InvocationCanister("call_0", "bash", {"command": command}, "")
    try:
        text = render_calls(get_dialect(name), [call], TOOLS)
    except NotSpellable:
        return
    written = f"```bash\n{command}\n```" if name == "markdown_bash" else ""
    found = TextCall("bash", call.arguments, "", written, dialect=get_dialect(name), tools=TOOLS)
    assert found.source(Sources([core.UserCanister(text)]))


@given(st.text(), st.sampled_from(OWN))
def test_a_text_without_the_tools_name_is_no_source(text, row):
    names = {call.name for call in calls(watch(row, shown=Sources()))}
    shown = Sources([core.UserCanister(text)])
    if not any(name in text for name in names) and "`" not in text and "$" not in text:
        assert watch(row, shown=shown) == watch(row, shown=Sources())


# Costs.


@pytest.fixture
def read(monkeypatch):
    """The lengths of the texts that were read."""
    lengths = []
    original = echoes.spellings

    def counted(text):
        lengths.append(len(text))
        return original(text)

    monkeypatch.setattr(echoes, "spellings", counted)
    return lengths


def test_without_a_call_in_the_text_no_source_is_read(read):
    reply("It is sunny in Paris, as get_weather says.", before=page(WEATHER * 100))
    assert read == []


def test_each_source_is_read_once_however_many_rounds_follow(read):
    conversation, before = [], None
    for number in range(200):
        conversation += page(f"page {number}: get_weather says nothing\n{WEATHER}")
        before = Sources(conversation, before)
        if number % 3 == 0:
            assert TextCall("get_weather", {"city": "Paris"}, "").source(before)
    assert len(read) <= len(conversation)


def test_a_later_round_takes_over_what_was_read():
    first = Sources(page("a"))
    assert first.texts
    second = Sources([*first.canisters, core.UserCanister("b")], first)
    third = Sources([*second.canisters, core.UserCanister("c")], second)
    assert [id(text) for text in third.texts[: len(first.texts)]] == [id(text) for text in first.texts]
    assert len(third.texts) == len(first.texts) + 2

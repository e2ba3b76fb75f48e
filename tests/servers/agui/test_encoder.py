import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from tests.servers.agui.agui_client import read_events, show
from tests.tables import table

from callboard.coding.job import Notice, PhaseEnded, PhaseStarted, PromptSent, Resumed, TreeSnapshot
from callboard.core import (
    ApprovalAnswered,
    ApprovalAsked,
    ArgumentsPiece,
    Canister,
    Fold,
    HandedOver,
    InvocationCanister,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Nested,
    Note,
    PictureContent,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyFailed,
    ReplyStarted,
    ResultCanister,
    ResultReady,
    RolledBack,
    RoundStarted,
    RunEnded,
    SupervisorCanister,
    TextPiece,
    ToolProgress,
    Usage,
    UserCanister,
    error_result,
)
from callboard.jobs.entries import JobEntry, encode_entry
from callboard.jobs.handle import JobEvent
from callboard.jobs.job import Approval, JobSummary
from callboard.jobs.streams import PIECES
from callboard.servers.agui import AguiEncoder

RUN_END = RunEnded("completed", "done", Usage(5, 7))


def encode(items, **options):
    encoder = AguiEncoder("thread", "run", **options)
    return [event for item in items for event in encoder.feed(item)] + encoder.finish()


def kinds(events):
    return [each["type"] for each in read_events(events) if each["type"] != "CUSTOM"]


def call(identifier, name="look", arguments=None, *, index=0):
    arguments = {"at": 1} if arguments is None else arguments
    raw = json.dumps(arguments)
    return [
        InvocationStarted(index, identifier, name),
        ArgumentsPiece(index, raw[:3]),
        ArgumentsPiece(index, raw[3:]),
        InvocationEnded(index, identifier, name, arguments, raw),
    ]


def result(identifier, text="seen"):
    return ResultReady(ResultCanister(text, invocation_id=identifier))


def test_a_run():
    events = encode(
        [
            RoundStarted(1),
            ReplyStarted("r", "m"),
            ReasoningPiece("I look."),
            TextPiece("Let me "),
            TextPiece("look."),
            *call("c1"),
            ReplyEnded("invocations"),
            result("c1"),
            RoundStarted(2),
            TextPiece("It is there."),
            ReplyEnded("stop"),
            RUN_END,
        ]
    )
    assert kinds(events) == [
        "RUN_STARTED",
        "STEP_STARTED",
        *("REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT"),
        *("REASONING_MESSAGE_END", "REASONING_END"),
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"),
        *("STEP_FINISHED", "STEP_STARTED"),
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        *("STEP_FINISHED", "RUN_FINISHED"),
    ]
    client = show(events)
    assert client.conversation() == [
        ("reasoning", "I look.", "None"),
        ("assistant", "Let me look.", "None"),
        ("call", "c1", "look", '{"at": 1}'),
        ("result", "c1", "seen", "None"),
        ("assistant", "It is there.", "None"),
    ]
    assert client.end["usage"] == [{"inputTokens": 5, "outputTokens": 7, "totalTokens": 12}]
    assert client.end["result"] == "done"


def test_rounds_of_a_job_are_counted_through_its_runs():
    items = [RoundStarted(1), *fold([TextPiece("one")]), RoundStarted(1), *fold([TextPiece("two")])]
    lines = [JobEntry(number, 1 + (number > 2), encode_entry(each)) for number, each in enumerate(items, 1)]
    steps = [each for each in read_events(encode(lines)) if each["type"] == "STEP_STARTED"]
    assert [each["stepName"] for each in steps] == ["round 1", "round 2"]


def test_a_reply_that_is_asked_for_again_is_no_part_of_the_conversation():
    events = encode([TextPiece("wro"), *call("c1"), ReplyEnded("retry"), TextPiece("right"), ReplyEnded("stop")])
    assert "MESSAGES_SNAPSHOT" in kinds(events)
    assert show(events).conversation() == [("assistant", "right", "None")]


def test_an_approval_that_waits_is_an_interrupt():
    invocation = InvocationCanister("c1", "deploy", {"to": "prod"}, '{"to":"prod"}')
    asked = [ApprovalAsked(invocation, "it is live"), ApprovalAnswered(invocation, "defer"), RunEnded("pending")]
    client = show(encode([*call("c1", "deploy", {"to": "prod"}), ReplyEnded("invocations"), *asked]))
    (interrupt,) = client.end["outcome"]["interrupts"]
    assert interrupt["reason"] == "tool_call"
    assert interrupt["toolCallId"] == "c1"
    assert interrupt["message"] == "it is live"
    assert interrupt["metadata"]["callboard"]["arguments"] == {"to": "prod"}
    assert [each["name"] for each in client.customs] == [
        "callboard.approval_asked",
        "callboard.approval_answered",
        "callboard.run_ended",
    ]


def test_a_call_of_a_tool_of_the_client_is_left_to_the_client():
    waiting = Approval(call_id="c1", name="confirm", arguments={}, digest="d", is_question=True)
    events = [*call("c1", "confirm"), ReplyEnded("invocations"), waiting, RunEnded("pending")]
    end = show(encode(events, client_tools={"confirm"})).end
    assert end["outcome"] == {"type": "success", "pendingToolCallIds": ["c1"]}
    assert show(encode(events)).end["outcome"]["interrupts"][0]["reason"] == "input_required"


@table(
    ("state", "kind", "outcome"),
    [
        ("completed", "RUN_FINISHED", "success"),
        ("cancelled", "RUN_FINISHED", "cancelled"),
        ("incomplete", "RUN_FINISHED", "cancelled"),
        ("failed", "RUN_ERROR", None),
    ],
)
def test_how_a_run_ends(state, kind, outcome):
    end = show(encode([ReplyFailed("provider", "overloaded", "come back"), RunEnded(state)])).end
    assert end["type"] == kind
    assert (end.get("outcome") or {}).get("type") == outcome
    if state == "failed":
        assert (end["message"], end["code"]) == ("come back", "overloaded")


NOW = datetime(2026, 11, 23, tzinfo=UTC)


def row(state, **fields):
    times = {"created_at": NOW, "updated_at": NOW}
    return JobSummary(id="job", kind="agent", state=state, model="m", **times, **fields)


@table(
    ("state", "kind", "outcome"),
    [
        ("completed", "RUN_FINISHED", "success"),
        ("cancelled", "RUN_FINISHED", "cancelled"),
        ("failed", "RUN_ERROR", None),
        ("interrupted", "RUN_ERROR", None),
    ],
)
def test_how_a_job_ends(state, kind, outcome):
    """What it had used before the run is not the run's."""
    before = row("pending", usage={"input": 10, "output": 3})
    client = show(encode([before, row(state, error="it broke", usage={"input": 15, "output": 4, "cached": 2})]))
    assert client.end["type"] == kind
    assert (client.end.get("outcome") or {}).get("type") == outcome
    usage = {"model": "m", "inputTokens": 5, "outputTokens": 1, "totalTokens": 6, "cachedInputTokens": 2}
    assert client.end["usage"] == [usage]
    if kind == "RUN_ERROR":
        assert (client.end["message"], client.end["code"]) == ("it broke", state)
    assert [each["value"]["state"] for each in client.customs] == ["pending", state]


def test_a_run_within_the_run_is_a_subagent():
    inner = [RoundStarted(1), TextPiece("inside"), ReplyEnded("stop"), RunEnded("completed")]
    nested = [Nested("c1", "ask_expert", each) for each in inner]
    events = encode([*call("c1", "ask_expert"), ReplyEnded("invocations"), *nested, *nested, result("c1")])
    started = [each for each in read_events(events) if each["type"] == "SUBAGENT_STARTED"]
    assert [each["subagentRunId"] for each in started] == ["c1/1", "c1/2"]
    assert {each["parentToolCallId"] for each in started} == {"c1"}
    assert [each[1] for each in show(events).conversation(nested=True)] == ["c1", "inside", "inside", "c1"]


def test_a_call_within_a_run_is_none_of_the_run_itself():
    inner = [*call("c1"), ReplyEnded("invocations"), result("c1", "inner"), RunEnded("completed")]
    nested = [Nested("c1", "ask_expert", each) for each in inner]
    client = show(encode([*call("c1", "ask_expert"), ReplyEnded("invocations"), *nested, result("c1", "outer")]))
    results = [each for each in client.messages.values() if each["role"] == "tool"]
    assert [(each["toolCallId"], each["content"]) for each in results] == [("c1-2", "inner"), ("c1", "outer")]
    cut = [*call("c1", "ask_expert"), ReplyEnded("invocations"), *nested[:5], result("c1", "outer"), RUN_END]
    assert show(encode(cut)).end["outcome"] == {"type": "success"}


def test_a_conversation_that_is_rolled_back_is_sent_anew():
    entries = [UserCanister("one"), *Fold().feed(ReplyEnded("stop")), UserCanister("two"), RolledBack(1)]
    assert [each[1] for each in show(encode(entries)).conversation()] == ["one"]
    run = [*call("c1"), ReplyEnded("invocations"), result("c1"), RolledBack(3)]
    earlier = [{"id": "u", "role": "user", "content": "hello"}]
    client = show(encode(run, messages=earlier, canisters=3), earlier)
    assert [each[1] for each in client.conversation()] == ["hello"]


def test_a_result_with_a_picture_has_parts():
    canister = ResultCanister(("seen", PictureContent(b"png")), invocation_id="c1")
    (message,) = show(encode([canister])).messages.values()
    assert [each["type"] for each in message["content"]] == ["text", "image"]


def test_an_identifier_that_a_model_gives_twice_is_another_call():
    replies = [*call("c"), ReplyEnded("invocations"), result("c"), *call("c"), ReplyEnded("invocations"), result("c")]
    client = show(encode(replies))
    assert [each["toolCallId"] for each in client.messages.values() if each["role"] == "tool"] == ["c", "c-2"]


# Whatever the order of pieces and entries

words = st.text('ab{}"é ', min_size=1, max_size=4)
names = st.sampled_from(["look", "pay"])
arguments = st.dictionaries(st.sampled_from("xyz"), st.integers(0, 9) | words, max_size=2)


@st.composite
def calls(draw, index):
    identifier, name, values = draw(st.sampled_from(["c1", "c2", ""])), draw(names), draw(arguments)
    raw = json.dumps(values, ensure_ascii=False)
    cut = draw(st.integers(0, len(raw)))
    pieces = [ArgumentsPiece(index, piece) for piece in (raw[:cut], raw[cut:])]
    end = InvocationEnded(index, identifier, name, values, raw)
    if draw(st.integers(0, 7)) == 0:
        end = InvocationIncomplete(index, identifier, name, raw[:cut], "cut")
        pieces = pieces[:1]
    return [InvocationStarted(index, identifier, name), *pieces, end]


@st.composite
def replies(draw):
    """The events of a reply: what is said, and calls whose pieces come side by side."""
    said = draw(
        st.lists(
            st.builds(TextPiece, words)
            | st.builds(RefusalPiece, words)
            | st.builds(ReasoningPiece, words, st.sampled_from(["", "signed"]), st.sampled_from(["", "m"])),
            max_size=4,
        )
    )
    streams = [draw(calls(index)) for index in range(draw(st.integers(0, 3)))]
    events = [*said]
    while streams := [each for each in streams if each]:
        events.append(draw(st.sampled_from(streams)).pop(0))
    return events


def fold(events):
    folded = Fold()
    return [canister for event in events for canister in folded.feed(event)] + folded.finish()


@st.composite
def runs(draw):
    """A run three times: its events, its entries, and its entries with pieces before them."""
    events, entries, live = [], [], []
    for number in range(1, draw(st.integers(1, 3)) + 1):
        events.append(RoundStarted(number))
        for _ in range(draw(st.integers(0, 1))):
            void = draw(replies())
            events += [*void, ReplyEnded("retry")]
            live += void[: draw(st.integers(0, 9))]
        reply = draw(replies())
        canisters = fold(reply)
        events += [*reply, ReplyEnded("stop")]
        # A follower that is slow loses the first pieces, one that comes late as well.
        live += reply[draw(st.integers(0, 2)) : draw(st.integers(0, 99))]
        made = [each for each in canisters if isinstance(each, InvocationCanister)]
        answers = [ResultCanister(draw(words), invocation_id=each.identifier) for each in draw(st.permutations(made))]
        answers = [
            draw(st.sampled_from([each, error_result(each.invocation_id, "timeout", "late")])) for each in answers
        ]
        events += [ResultReady(each) for each in answers]
        entries += [*canisters, *answers]
        live += [*canisters, *answers]
    return events, entries, [each for each in live if isinstance(each, (Canister, *PIECES))]


@given(runs())
def test_pieces_and_entries_leave_the_same_conversation(run):
    events, entries, live = run
    expected = show(encode([JobEvent(number, each) for number, each in enumerate(entries, 1)])).conversation()
    follower = [JobEvent(isinstance(each, Canister), each) for each in live]
    assert show(encode(follower)).conversation() == expected
    assert show(encode(entries)).conversation() == expected
    lines = [JobEntry(number, number // 3, encode_entry(each)) for number, each in enumerate(entries, 1)]
    assert show(encode(lines)).conversation() == expected
    assert show(encode([*events, RUN_END])).conversation() == expected


def test_what_is_left_of_a_void_reply_is_gone_when_results_come():
    pieces = [InvocationStarted(0, "c1", "look"), InvocationStarted(1, "c1", "look")]
    entries = [InvocationCanister("c1", "look", {}, "{}"), ResultCanister("seen", invocation_id="c1")] * 2
    live = [JobEvent(0, each) for each in pieces] + [JobEvent(number, each) for number, each in enumerate(entries, 1)]
    assert [each[0] for each in show(encode(live)).conversation()] == ["call", "result", "call", "result"]


invocations = st.builds(InvocationCanister, st.sampled_from(["c1", "c2"]), names, arguments)
results = st.builds(lambda name, text: ResultCanister(text, invocation_id=name), st.sampled_from(["c1", "c9"]), words)
anything = st.one_of(
    calls(0).flatmap(st.sampled_from),
    calls(1).flatmap(st.sampled_from),
    st.builds(TextPiece, words),
    st.builds(ReasoningPiece, words, st.sampled_from(["", "signed"])),
    st.builds(ReplyStarted),
    st.builds(ReplyEnded, st.sampled_from(["stop", "retry", "length"])),
    st.just(ReplyFailed("provider", "cut", "no end", "secret")),
    st.builds(RoundStarted, st.integers(1, 3)),
    st.builds(RolledBack, st.integers(0, 4)),
    st.builds(ResultReady, results),
    results,
    invocations,
    st.builds(UserCanister, words),
    st.builds(SupervisorCanister, words),
    st.builds(fold, replies()).filter(bool).flatmap(st.sampled_from),
    st.builds(ApprovalAsked, invocations, words),
    st.builds(ApprovalAnswered, invocations, st.sampled_from(["allow", "deny", "defer"])),
    st.builds(Note, st.just("repaired"), words),
    st.builds(ToolProgress, st.sampled_from(["c1", "c9"]), st.just(0.5)),
    st.builds(HandedOver, words),
    st.builds(PhaseStarted, st.sampled_from(["plan", "build"]), st.just(3)),
    st.builds(PhaseEnded, st.sampled_from(["plan", "build"])),
    st.builds(PromptSent, words),
    st.builds(Notice, words),
    st.builds(TreeSnapshot, words),
    st.builds(Resumed),
    st.builds(RunEnded, st.sampled_from(["completed", "incomplete", "pending", "failed", "cancelled"])),
)
deep = st.recursive(
    anything, lambda inner: st.builds(Nested, st.sampled_from(["c1", "c2"]), names, inner), max_leaves=4
)


@given(st.lists(deep, max_size=25), st.sampled_from(["stop", "length", "cut", "cancelled"]))
def test_whatever_comes_a_client_takes_it(items, why):
    encoder = AguiEncoder("thread", "run")
    events = [event for item in items for event in encoder.feed(item)] + encoder.finish(why)
    client = show(events)
    assert [*client.messages.values()] == json.loads(json.dumps(encoder.messages))
    assert encoder.feed(TextPiece("behind the end")) == encoder.finish() == []
    assert "secret" not in json.dumps(read_events(events))

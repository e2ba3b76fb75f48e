"""The loop by itself: events in, actions out, no world."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.core import AssistantCanister, InvocationCanister, ResultCanister, UserCanister
from callboard.loop import AskApproval, CallModel, Execute, Finish, Limits, Loop, LoopRules
from callboard.loop.loop import _NEXT
from callboard.loop.pending_calls import find_called_turns
from callboard.tools import Ensemble, InvokerRegistry, Policy, tool

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@tool
def search(query: str) -> str:
    return query


@tool
def read(path: str) -> str:
    return path


ROSTER = InvokerRegistry([Ensemble("local", [search, read])])


class Driven:
    """A loop and what it last wanted."""

    def __init__(self, *, limits=None, **rules):
        self.loop = Loop([core.UserCanister("Go.")], ROSTER, rules=LoopRules(**rules), limits=limits)
        self.actions = self.loop.start(NOW)

    def reply(self, *events, reason="stop"):
        self.actions = [out for e in (*events, core.ReplyEnded(reason)) for out in self.loop.feed(e, NOW)]
        return self.actions

    def results(self, *results):
        self.actions = [out for result in results for out in self.loop.feed(core.ResultReady(result), NOW)]
        return self.actions

    @property
    def tail(self):
        return self.loop.transcript[1:]


def call(index=0, name="search", arguments=None, identifier=None):
    arguments = {"query": "x"} if arguments is None else arguments
    identifier = identifier or f"c{index}"
    return core.InvocationEnded(index, identifier, name, arguments, "")


def result(identifier="c0", text="found"):
    return core.ResultCanister(invocation_id=identifier, content=text)


def test_a_reply_without_invocations_completes_the_run():
    run = Driven()
    assert [type(each) for each in run.actions] == [CallModel]
    assert run.reply(core.TextPiece("Do"), core.TextPiece("ne."), core.Usage(3, 2)) == [Finish("completed", "Done.")]
    assert run.tail == [core.AssistantCanister("Done.")]
    assert run.tail[0].timestamp == NOW
    assert run.loop.usage == core.Usage(3, 2)


def test_text_before_a_call_never_ends_a_run():
    run = Driven()
    assert run.reply(core.TextPiece("I will look."), call()) == [
        Execute((core.InvocationCanister("c0", "search", {"query": "x"}),), {})
    ]
    (again,) = run.results(result())
    assert again.number == 2
    assert again.canisters == tuple(run.loop.transcript)
    assert not again.last
    assert run.reply(core.TextPiece("Done.")) == [Finish("completed", "Done.")]
    assert run.tail == [
        core.AssistantCanister("I will look."),
        core.InvocationCanister("c0", "search", {"query": "x"}),
        result(),
        core.AssistantCanister("Done."),
    ]


def test_results_stand_in_the_order_of_the_calls():
    run = Driven()
    run.reply(call(0), call(1, "read", {"path": "a"}))
    assert run.results(result("c1", "second")) == []
    run.results(result("c0", "first"))
    assert [each.text for each in run.tail if isinstance(each, core.ResultCanister)] == ["first", "second"]


def test_an_unknown_tool_is_answered_with_the_nearest_names():
    run = Driven()
    (execute,) = run.reply(call(name="serch"), call(1))
    assert execute.answered["c0"].error.category == "not_found"
    assert "did you mean 'search'?" in execute.answered["c0"].text
    assert "c1" not in execute.answered


def test_arguments_that_are_no_object_are_answered():
    run = Driven()
    (execute,) = run.reply(core.InvocationEnded(0, "c0", "search", None, "{oops"))
    assert execute.answered["c0"].error.category == "validation"
    assert "{oops" in execute.answered["c0"].text


def test_a_call_that_was_cut_is_not_run_and_the_model_is_told_why():
    run = Driven()
    cut = core.InvocationIncomplete(0, "c0", "search", '{"query": "a', "length")
    (execute,) = run.reply(core.InvocationStarted(0, "c0", "search"), cut, reason="length")
    assert "cut at the reply's length limit" in execute.answered["c0"].text
    assert run.tail == [core.InvocationCanister("c0", "search", None, '{"query": "a')]


def test_when_the_rounds_run_out_one_last_reply_is_asked_for():
    run = Driven(limits=Limits(rounds=2))
    run.reply(call())
    run.results(result())
    run.reply(call(arguments={"query": "y"}))
    (last,) = run.results(result())
    assert (last.number, last.last) == (3, True)
    assert run.reply(core.TextPiece("As far as I know.")) == [
        Finish("incomplete", "As far as I know.", "no answer within 2 rounds")
    ]


def test_calls_in_the_last_reply_are_not_run_but_paired():
    run = Driven(limits=Limits(rounds=1))
    run.reply(call())
    run.results(result())
    (finish,) = run.reply(core.TextPiece("Hm."), call(arguments={"query": "y"}, identifier="late"))
    assert (finish.state, finish.output) == ("incomplete", "Hm.")
    assert run.tail[-1].invocation_id == "late"
    assert run.tail[-1].error.category == "cancelled"


def test_where_the_profile_says_so_the_last_reply_follows_the_results():
    run = Driven(answer_after="results")
    run.reply(call())
    (last,) = run.results(result())
    assert last.last
    assert run.reply(core.TextPiece("Found.")) == [Finish("completed", "Found.")]


def test_a_failed_call_keeps_the_tools_on_offer():
    run = Driven(answer_after="results")
    run.reply(call())
    (again,) = run.results(core.error_result("c0", "validation", "no"))
    assert not again.last


def test_two_empty_replies_end_the_run():
    run = Driven()
    assert [type(each) for each in run.reply()] == [CallModel]
    assert run.reply() == [Finish("incomplete", "", "the model replied nothing")]


def test_a_thought_is_no_empty_reply_but_four_are_enough():
    run = Driven()
    for _ in range(3):
        (asked,) = run.reply(core.ReasoningPiece("hm"))
        assert asked.canisters[-1] == core.UserCanister("Go on.")
    assert run.reply(core.ReasoningPiece("hm")) == [Finish("incomplete", "", "the model thought without answering")]


@table(
    ("reason", "state", "why"),
    [
        ("length", "incomplete", "the reply reached its length limit"),
        ("filter", "incomplete", "the provider's filter ended the reply"),
        ("refusal", "completed", ""),
    ],
)
def test_how_a_reply_ends_tells_how_the_run_ends(reason, state, why):
    assert Driven().reply(core.TextPiece("So"), reason=reason) == [Finish(state, "So", why)]


def test_a_failed_reply_fails_the_run_and_leaves_no_call_unpaired():
    run = Driven()
    run.loop.feed(core.TextPiece("I will"), NOW)
    run.loop.feed(call(), NOW)
    assert run.loop.feed(core.ReplyFailed("provider", "cut", "gone"), NOW) == [Finish("failed", "I will", "gone")]
    assert [type(each) for each in run.tail] == [core.AssistantCanister, core.InvocationCanister, core.ResultCanister]


def test_a_reply_that_is_retried_leaves_nothing():
    run = Driven()
    assert run.reply(core.TextPiece("wrong"), core.Usage(1, 1), reason="retry") == []
    run.reply(core.TextPiece("right"), core.Usage(2, 2))
    assert run.tail == [core.AssistantCanister("right")]
    assert run.loop.usage == core.Usage(3, 3)


def test_what_is_denied_is_not_run_and_what_is_asked_waits():
    run = Driven(policy=Policy([("search", "deny"), ("read", "ask")]))
    asked = run.reply(call(), call(1, "read", {"path": "a"}), call(2, "read", {"path": "b"}))
    assert [(type(each), each.invocation.identifier) for each in asked] == [(AskApproval, "c1"), (AskApproval, "c2")]
    assert run.loop.feed(core.ApprovalAnswered(asked[0].invocation, "deny"), NOW) == []
    (execute,) = run.loop.feed(core.ApprovalAnswered(asked[1].invocation, "allow"), NOW)
    assert {name: answer.error.category for name, answer in execute.answered.items()} == {
        "c0": "permission",
        "c1": "permission",
    }


def test_a_run_that_is_stopped_keeps_what_was_said_and_pairs_what_was_called():
    run = Driven()
    run.reply(call(0), call(1, "read", {"path": "a"}))
    run.results(result("c0"))
    assert run.loop.stop(NOW).state == "cancelled"
    assert run.tail[2] == result("c0")
    assert (run.tail[3].invocation_id, run.tail[3].error.category) == ("c1", "cancelled")

    talking = Driven()
    talking.loop.feed(core.TextPiece("Once upon"), NOW)
    assert talking.loop.stop(NOW) == Finish("cancelled", "Once upon", "cancelled")


def test_usage_that_is_told_with_every_piece_counts_once_a_reply():
    run = Driven()
    run.reply(core.Usage(1, 1), core.TextPiece("a"), core.Usage(1, 5), call())
    run.results(result())
    run.reply(core.Usage(4, 1), core.TextPiece("b"))
    assert run.loop.usage == core.Usage(5, 6)


# Calls that repeat a source.


def quoted(name="search", **arguments):
    return [
        core.InvocationStarted(0, "q", name),
        core.InvocationEnded(0, "q", name, arguments, "{}", quoted_from="the result of read (r)"),
    ]


def test_a_quoted_call_is_asked_about_whatever_the_policy_allows():
    for policy in (Policy(), Policy([("*", "allow")])):
        run = Driven(policy=policy)
        (asked,) = run.reply(*quoted(query="a"))
        assert isinstance(asked, AskApproval)
        assert asked.why == "this call stands word for word in the result of read (r)"


def test_a_quoted_call_that_is_asked_about_anyway_has_both_reasons():
    (asked,) = Driven(policy=Policy([("search", "ask")])).reply(*quoted(query="a"))
    assert asked.why == "the rule 'search' says ask; this call stands word for word in the result of read (r)"


def test_a_quoted_call_that_is_denied_is_not_asked_about():
    (execute,) = Driven(policy=Policy([("search", "deny")])).reply(*quoted(query="a"))
    assert execute.answered["q"].error.category == "permission"


def test_a_loop_that_is_told_so_runs_quoted_calls():
    (execute,) = Driven(quoted_calls="run").reply(*quoted(query="a"))
    assert isinstance(execute, Execute)
    assert not execute.answered


def test_the_refusal_of_a_quoted_call_names_its_source():
    run = Driven()
    (asked,) = run.reply(*quoted(query="a"))
    (execute,) = run.loop.feed(core.ApprovalAnswered(asked.invocation, "deny"), NOW)
    assert "word for word in the result of read (r), and the answer was no. Its author" in execute.answered["q"].text


# States.


EVENTS = [
    core.TextPiece("So."),
    core.ReasoningPiece("hm"),
    call(),
    core.InvocationEnded(1, "c1", "nothing", {}, ""),
    core.Usage(1, 1),
    core.ReplyEnded("stop"),
    core.ReplyEnded("invocations"),
    core.ReplyEnded("retry"),
    core.ReplyFailed("provider", "cut", "gone"),
    core.ResultReady(result()),
    core.ResultReady(result("c1")),
    core.ApprovalAnswered(core.InvocationCanister("c0", "search", {"query": "x"}, ""), "allow"),
    core.ApprovalAnswered(core.InvocationCanister("c0", "search", {"query": "x"}, ""), "deny"),
]


@given(st.lists(st.sampled_from(EVENTS), max_size=30), st.sampled_from(["allow", "ask", "deny"]))
def test_whatever_comes_the_states_follow_each_other_as_the_table_says(events, permission):
    run = Driven(policy=Policy([("*", permission)]), limits=Limits(rounds=3))
    for event in events:
        state, transcript = run.loop.state, len(run.loop.transcript)
        actions = run.loop.feed(event, NOW)
        for action in actions:
            state = _NEXT[state, type(action)]
        assert run.loop.state == state
        if state == "ended" and not actions:
            assert len(run.loop.transcript) == transcript
    run.loop.stop(NOW)
    assert run.loop.state == "ended"
    assert run.loop.feed(core.ReplyEnded("stop"), NOW) == []


# The replies that called are found with what came of their calls.


def look(identifier):
    return InvocationCanister(identifier=identifier, name="look", arguments={})


def seen(identifier):
    return ResultCanister("seen", invocation_id=identifier)


CONVERSATION = [
    UserCanister("Go."),
    AssistantCanister("I look."),
    look("a"),
    look("b"),
    seen("b"),
    seen("a"),
    AssistantCanister("Nothing."),
    UserCanister("Again."),
    look("c"),
    look("d"),
    seen("d"),
]


def test_a_reply_has_its_calls_and_results_in_the_order_of_the_calls():
    turns = [*find_called_turns(CONVERSATION)]
    assert [[each.identifier for each in turn.invocations] for turn in turns] == [["a", "b"], ["c", "d"]]
    assert [[each.identifier for each, _ in turn.pairs] for turn in turns] == [["a", "b"], ["d"]]
    assert [turn.end for turn in turns] == [4, 10]


def test_turns_are_found_from_a_place_on():
    assert [turn.end for turn in find_called_turns(CONVERSATION, 7)] == [10]


def test_a_reply_without_results_and_a_conversation_without_calls():
    assert [turn.results for turn in find_called_turns([UserCanister("Go."), look("a")])] == [{}]
    assert [*find_called_turns([UserCanister("Go."), AssistantCanister("Hi.")])] == []
    assert [*find_called_turns([])] == []

"""Entries as the steps that a direct run records."""

from datetime import UTC, datetime, timedelta

from tests.tables import table

from callboard import Agent, core, jobs, tool
from callboard.coding.job import Notice, PromptSent
from callboard.core import AssistantCanister, InvocationCanister, ResultCanister, Usage
from callboard.jobs.database import VARIABLE
from callboard.jobs.entries import JobEntry, MeasuredReply, ReplyTook, encode_entry
from callboard.jobs.steps import build_trace, read_steps
from callboard.testing import Call, ScriptedModel

CALL = core.InvocationCanister(identifier="a", name="add", arguments={"x": 1}, raw='{"x":1}')
RESULT = core.ResultCanister("2", invocation_id="a")


def steps(*items):
    """Return the steps of items, each with its round."""
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


def test_steps_stay_unchanged_and_nothing_is_shown_twice():
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


def test_a_second_prompt_is_shown_if_no_step_has_it():
    assert steps((0, PromptSent("a")), (0, core.UserCanister("a")), (1, core.UserCanister("b"))) == [
        PromptSent("a"),
        PromptSent("b"),
    ]


BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def at(seconds):
    return BEGIN + timedelta(seconds=seconds)


def build(*items):
    """Return the rounds of canisters."""
    return build_trace(JobEntry(at, number, encode_entry(item)) for at, (number, item) in enumerate(items, 1))


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def fail() -> int:
    """Fail."""
    raise ValueError("no luck")


SCRIPT = [[Usage(100, 10), Call("add", {"a": 1, "b": 2}), Call("fail", {})], [Usage(200, 20), "Done."]]
worker = Agent(ScriptedModel(SCRIPT, profile={"prices": {"input": 1_000_000.0, "output": 0.0}}), [add, fail])


async def test_a_durable_job_has_times_tokens_and_cost_of_each_round(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, f"sqlite:///{tmp_path / 'jobs.db'}")
    job = await jobs.submit(f"{__name__}:worker", "Go on.")
    result = await job.result()
    first, second = rounds = build_trace(await job._store.read_entries(job.id))
    assert [(each.usage, each.cost) for each in rounds] == [
        ({"input": 100, "output": 10}, 100.0),
        ({"input": 200, "output": 20}, 200.0),
    ]
    assert result.cost == 300.0
    assert [(each.name, each.state) for each in first.calls] == [("add", "done"), ("fail", "failed")]
    assert first.calls[1].failure == "execution: ValueError: no luck"
    times = [first.began_at, first.replied_at, *[each.ended_at for each in first.calls], second.began_at]
    assert first.began_at <= first.replied_at <= first.calls[0].ended_at <= second.began_at <= second.replied_at
    assert None not in times


def test_a_job_that_was_recorded_without_times_has_rounds():
    call = InvocationCanister(identifier="c1", name="look", arguments={})
    rounds = build((1, call), (1, ResultCanister("x", invocation_id="c1")), (2, AssistantCanister("y")))
    assert [(each.seconds, len(each.calls)) for each in rounds] == [(None, 1), (None, 0)]
    assert [call.state for call in rounds[0].calls] == ["done"]


def test_a_result_without_a_call_is_skipped():
    assert build((1, ResultCanister("x", invocation_id="c9"))) == []


@table("text", ["plain", '"took":{"began_at":"x"}', '\\","took":1}'])
def test_a_models_text_is_not_read_as_a_measurement(text):
    said = AssistantCanister(text, timestamp=at(1))
    assert JobEntry(1, 1, encode_entry(said)).took is None
    took = ReplyTook(at(0), {"input": 1}, 0.5)
    entry = JobEntry(1, 1, encode_entry(MeasuredReply(said, took)))
    assert (entry.took, entry.item) == (took, said)

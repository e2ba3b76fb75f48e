"""Limits of starts per minute and costs per day hold over all workers."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from callboard import Agent, tool
from callboard.core import Usage, UserCanister
from callboard.jobs.agent_kind import AgentInput, AgentKind
from callboard.jobs.job import Completed, JobKind, JobSummary
from callboard.jobs.limits import JobLimits
from callboard.jobs.segment import SegmentControl, SegmentRunner
from callboard.testing import Call, ScriptedModel

NOW = datetime(2026, 1, 1, 21, tzinfo=UTC)
JOB = JobSummary(id="a", kind="test", created_at=NOW, updated_at=NOW)
PRICES = {"prices": {"input": 1_000_000.0, "output": 0.0}}


@tool
async def look() -> str:
    """Look."""
    return "fog"


async def test_workers_add_to_one_sum_that_starts_again_each_day(database):
    budgets = [JobLimits(database, {}, 3.0, clock=lambda: NOW) for _ in range(2)]
    await asyncio.gather(*[budgets[at % 2].add(0.5) for at in range(6)])
    pause, reason = await budgets[0].reserve(JOB, "scripted")
    assert (pause, budgets[0].is_spent) == (3 * 3600, True)
    assert reason == "the budget of all jobs for this day is spent: $3 of $3; it starts again at 00:00 UTC"
    tomorrow = JobLimits(database, {}, 3.0, clock=lambda: NOW + timedelta(hours=4))
    assert await tomorrow.reserve(JOB, "scripted") == (0, "")
    await tomorrow.add(1.0)
    assert (await budgets[1].reserve(JOB, "scripted"))[0] == 3 * 3600


def make_runner(store, database, script, *, dollars, profile=PRICES, clock=lambda: NOW):
    model = ScriptedModel(script, profile=profile)
    agent = Agent(model, [look])
    limits = JobLimits(database, {}, dollars, clock=clock)
    return model, SegmentRunner(store, [AgentKind({"a": agent})], limits=limits)


async def submit(store):
    job_input = AgentInput(agent="a", prompt=UserCanister("Go on."))
    return await store.create("agent", input=job_input.to_json())


async def run_segments(store, runner, job):
    """Run the job's segments until it waits or has ended."""
    while (job := await store.get(job.id)).state == "pending":
        await runner(job.id, job.segment, SegmentControl("one"))
    return job


@pytest.mark.usefixtures("queue")
async def test_a_job_that_finds_the_budget_spent_waits_and_asks_for_nothing(store, database):
    script = [[Usage(2, 0), Call("look", {})], [Usage(2, 0), "Fog."]]
    model, runner = make_runner(store, database, script, dollars=2.0)
    job = await run_segments(store, runner, await submit(store))
    assert (job.state, job.waits_for, job.cost, len(model.requests)) == ("waiting", "rate_limit", 2.0, 1)
    assert job.reason.startswith("the budget of all jobs for this day is spent: $2 of $2")
    other, runner = make_runner(store, database, [], dollars=2.0)
    assert (await run_segments(store, runner, await submit(store))).state == "waiting"
    assert not other.requests


@pytest.mark.parametrize(
    ("profile", "asked", "why"),
    [({}, 0, "a budget needs the price of scripted"), (PRICES, 1, "what a reply cost is not known")],
)
@pytest.mark.usefixtures("queue")
async def test_a_job_whose_cost_is_not_known_fails(store, database, *, profile, asked, why):
    model, runner = make_runner(store, database, ["Fog."], dollars=2.0, profile=profile)
    job = await run_segments(store, runner, await submit(store))
    assert (job.state, len(model.requests)) == ("failed", asked)
    assert why in job.error


MODEL = "openai:gpt-4o"


class Kind(JobKind):
    name = "test"

    async def run(self, _):
        return Completed({})

    def find_model(self, job):
        return job.input.get("asks", "")


@pytest.fixture
def limits(database):
    """Return the limits of two workers."""
    return [JobLimits(database, {MODEL: 6}, clock=lambda: NOW) for _ in range(2)]


def make_job(**fields):
    return JobSummary(id="a", kind="test", model=MODEL, created_at=NOW, updated_at=NOW, **fields)


async def test_the_starts_of_a_model_are_spaced_whichever_worker_asks(database, limits):
    pauses = await asyncio.gather(*[limits[at % 2].reserve(make_job(), MODEL) for at in range(8)])
    assert sorted(pause for pause, _ in pauses) == [0, 10, 20, 30, 40, 50, 60, 70]
    assert pauses[0][1] == "6 of openai:gpt-4o may start a minute"
    assert (await limits[0].reserve(make_job(), "openai:gpt-4o-mini"))[0] == 0
    later = JobLimits(database, {MODEL: 6}, clock=lambda: NOW + timedelta(minutes=5))
    assert [(await later.reserve(make_job(), MODEL))[0] for _ in range(2)] == [0, 10]


@pytest.mark.parametrize("fields", [{"model": MODEL}, {"input": {"asks": MODEL}}], ids=["row", "kind"])
async def test_a_segment_that_has_waited_starts(store, queue, limits, fields):
    runner = SegmentRunner(store, [Kind()], limits=limits[0])
    first, second = [await store.create("test", **fields) for _ in range(2)]
    for job in (first, second):
        await runner(job.id, 1, SegmentControl("a"))
    assert (await store.get(first.id)).state == "completed"
    waiting = await store.get(second.id)
    assert (waiting.state, waiting.waits_for, waiting.segment) == ("waiting", "rate_limit", 2)
    assert waiting.reason == "6 of openai:gpt-4o may start a minute"
    assert queue.segments(second)[2] == pytest.approx(10, abs=0.1)
    await runner(second.id, 2, SegmentControl("b"))
    assert (await store.get(second.id)).state == "completed"


async def test_a_job_that_was_removed_or_cancelled_waits_for_nothing(store, limits):
    runner = SegmentRunner(store, [Kind()], limits=limits[0])
    await limits[0].reserve(make_job(), MODEL)
    job = await store.create("test", model=MODEL)
    await store.claim(job.id, 1, "dead")
    await store.request_cancel(job.id)
    await runner(job.id, 1, SegmentControl("a"))
    assert (await store.get(job.id)).state == "cancelled"
    await store.remove(job.id)
    await runner(job.id, 1, SegmentControl("a"))

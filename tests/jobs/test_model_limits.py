"""Segments of a model start so many a minute, in all workers together; others wait, as for a provider's rate limit."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from callboard.jobs.job import Completed, JobSummary
from callboard.jobs.limits import JobLimits
from callboard.jobs.segment import SegmentControl, SegmentRunner

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MODEL = "openai:gpt-4o"


class Kind:
    name = "test"

    async def run(self, _):
        return Completed({})

    def find_obstacle(self, _):
        return ""

    def find_model(self, job):
        return job.input.get("asks", "")

    async def describe_interruption(self, _segment, _call):
        return ""


@pytest.fixture
def limits(database):
    """Those of two workers."""
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

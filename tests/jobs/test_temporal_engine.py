"""Temporal obeys the laws of the embedded engine. No job is lost if the server is away or loses its state."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace

import pytest
from tests.jobs import test_engine
from tests.jobs.temporal_server import TemporalServer
from tests.jobs.test_engine import PATIENCE, Runner, enqueue, make_job, serve, until
from tests.jobs.test_kill import kill_workers

from callboard.configuration.jobs import QueueSettings, TemporalSettings
from callboard.errors import CallerError
from callboard.jobs.store import DurableStore
from callboard.jobs.worker import Worker

pytest.importorskip("temporalio", reason="temporalio is not installed")

from callboard.jobs import temporal_engine
from callboard.jobs.temporal_engine import TemporalEngine

test_once = test_engine.test_a_segment_runs_once_however_often_it_is_queued
test_unnoticed_commit = test_engine.test_a_claim_whose_commit_went_unnoticed_is_not_lost
test_partitions = test_engine.test_one_job_of_a_partition_runs_at_a_time_and_both_queues_share_the_places
test_delay = test_engine.test_a_delayed_segment_waits_and_keeps_a_worker_until_it_is_due
test_lease_of_another = test_engine.test_a_segment_with_a_lease_is_left_to_its_worker_and_so_is_its_partition
test_handing_back = test_engine.test_a_worker_that_stops_hands_back_at_once_what_does_not_end
test_cancelling = test_engine.test_a_running_job_is_cancelled_within_a_second


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a shared server, and unused namespaces."""
    namespaces = [f"test-{number}" for number in range(12)]
    server = TemporalServer(tmp_path_factory.mktemp("temporal"), namespaces)
    server.start()
    yield server.address, iter(namespaces)
    server.kill()


@pytest.fixture
def url(empty_postgresql):
    return empty_postgresql


@pytest.fixture
def settings(server):
    address, namespaces = server
    return TemporalSettings(address=address, namespace=next(namespaces))


@pytest.fixture
def engine(settings, database, monkeypatch):
    monkeypatch.setattr(temporal_engine, "RETRY_PAUSE", timedelta(seconds=0.05))
    return TemporalEngine(database, settings)


def test_jobs_end_when_a_worker_is_killed(server, url, tmp_path):
    kill_workers(url, server[0], tmp_path, 1)


async def test_a_segment_is_signalled_again_if_the_server_forgot_it(database, temporal, monkeypatch):
    monkeypatch.setattr(temporal_engine, "WAITING_SECONDS", 0)
    monkeypatch.setattr(temporal_engine, "RETRY_PAUSE", timedelta(seconds=0.05))
    engine = TemporalEngine(database, TemporalSettings(address=temporal.address))
    runner = Runner(fail=["a"])
    await enqueue(engine, make_job("a"))
    async with serve(engine, runner):
        await until(lambda: runner.begun)
        temporal.kill()
        temporal.forget()
        temporal.start()
        await until(lambda: len(runner.begun) > 1)


async def test_a_signal_that_comes_once_more_runs_nothing(engine):
    runner = Runner()
    await enqueue(engine, make_job("a"))
    async with serve(engine, runner) as worker:
        await worker.run(until_idle=0.2)
        row = SimpleNamespace(job="a", segment=1, queue="callboard", kind="test", directory="", priority=0)
        assert await engine._signal(row) == ""
        async with asyncio.timeout(PATIENCE):
            await engine._client.get_workflow_handle("callboard-a").result()
    assert runner.begun == ["a-1"]


async def test_a_queue_that_is_limited_starts_no_more_than_its_limit(engine):
    runner = Runner()
    await enqueue(engine, *[make_job(f"slow{number}", queue="slow") for number in range(9)])
    queues = {"slow": QueueSettings(starts_per_minute=6), "fast": QueueSettings()}
    async with serve(engine, runner, queues=queues, concurrency=10):
        await until(lambda: runner.begun)
        for number in range(5):
            await enqueue(engine, make_job(f"fast{number}", queue="fast"))
            await until(lambda number=number: f"fast{number}-1" in runner.begun)
    assert sum(name.startswith("slow") for name in runner.begun) <= 4


async def test_a_failure_of_the_client_does_not_end_the_sweep(engine, monkeypatch):
    monkeypatch.setattr(temporal_engine, "SENDING_SECONDS", 0)
    runner = Runner()
    async with serve(engine, runner) as worker:
        start = engine._client.start_workflow

        async def fail_once(*_, **__):
            monkeypatch.setattr(engine._client, "start_workflow", start)
            raise ValueError("not of the server")

        monkeypatch.setattr(engine._client, "start_workflow", fail_once)
        await enqueue(engine, make_job("a"))
        await worker.run(until_idle=0.2)
    assert runner.begun == ["a-1"]


async def until_listed(client, query):
    async with asyncio.timeout(PATIENCE):
        while (await client.count_workflows(query)).count != 1:  # noqa: ASYNC110  # what is waited for is on a server
            await asyncio.sleep(0.05)


async def test_jobs_are_searched_for_by_state_and_agent(engine, settings):
    store = DurableStore(engine.database, engine.enqueue)

    async def run(job_id, number, control):
        claim = await store.claim(job_id, number, control.executor)
        await (claim.wait() if number == 1 else claim.end("completed"))

    job = await store.create("test", queue="callboard-agent:crew.py:clerk")
    async with Worker(engine, store, run, queues={job.queue: QueueSettings()}) as worker:
        await worker.run(until_idle=0.2)
        client = await temporal_engine.connect(settings)
        query = "CallboardAgent = 'crew.py:clerk' AND CallboardState = '{}' AND ExecutionStatus = '{}'"
        waiting, completed = query.format("waiting", "Running"), query.format("completed", "Completed")
        await until_listed(client, waiting)
        await store.request_cancel(job.id)
        await store.resume(job.id)
        await worker.run(until_idle=0.2)
        await until_listed(client, completed)


async def test_a_server_that_does_not_answer_is_named(database, tmp_path):
    address = TemporalServer(tmp_path).address
    message = f"^{address}, namespace default: the Temporal server cannot be used"
    with pytest.raises(CallerError, match=message):
        async with serve(TemporalEngine(database, TemporalSettings(address=address)), Runner()):
            pass

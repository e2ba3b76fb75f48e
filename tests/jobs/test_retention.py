"""Only jobs that ended long ago are removed, with their files."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from callboard.coding.job_folders import JobFolders
from callboard.configuration.jobs import JobSettings
from callboard.jobs import services as retention
from callboard.jobs.database import DatabaseUnavailable
from callboard.jobs.services import open_services, remove_old_jobs
from callboard.jobs.store import DurableStore

KEEP = timedelta(days=30)
QUEUES = ["callboard", "callboard-here"]


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """The directory with the files of coding jobs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


async def make_ended(store, count, **changes):
    jobs = [await store.create("agent", **changes) for _ in range(count)]
    for job in jobs:
        await store.request_cancel(job.id)
    return jobs


async def wait_until_empty(store):
    async with asyncio.timeout(60):
        while await store.list():  # noqa: ASYNC110  # what is waited for happens in a database
            await asyncio.sleep(0.01)


async def test_old_jobs_of_the_workers_queues_are_removed_with_their_files(database, monkeypatch):
    monkeypatch.setattr(retention, "REMOVED_AT_ONCE", 2)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    store = DurableStore(database, clock=lambda: now)
    old = await make_ended(store, 3, queue="callboard-here")
    others = await make_ended(store, 1, queue="callboard-elsewhere")
    runs = await store.create("agent")
    tree = JobFolders().folder(old[0].id) / "tree"
    tree.mkdir(parents=True)
    now += KEEP
    assert await remove_old_jobs(store, KEEP, QUEUES) == 0
    now += timedelta(seconds=1)
    new = await make_ended(store, 1)
    assert await remove_old_jobs(store, KEEP, QUEUES) == 3
    assert {each.id for each in await store.list()} == {each.id for each in [*others, runs, *new]}
    assert not tree.parent.exists()


async def test_a_job_that_was_resumed_or_removed_meanwhile_is_left(database, monkeypatch):
    now = datetime(2026, 1, 1, tzinfo=UTC)
    store = DurableStore(database, clock=lambda: now)
    resumed, gone, _ = await make_ended(store, 3)
    now += KEEP * 2
    find = store.find_old

    async def find_and_change(*arguments):
        found = await find(*arguments)
        if len(found) == 3:
            await store.resume(resumed.id)
            await store.remove(gone.id)
        return found

    monkeypatch.setattr(store, "find_old", find_and_change)
    assert await remove_old_jobs(store, KEEP, QUEUES) == 1
    assert [each.id for each in await store.list()] == [resumed.id]


async def test_it_is_done_beside_a_worker_and_again_after_a_failure(database, monkeypatch):
    monkeypatch.setattr(retention, "LOOK_SECONDS", 0.01)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    store = DurableStore(database, clock=lambda: now)
    await make_ended(store, 2)
    now += KEEP * 2
    told = []
    async with open_services(store, JobSettings(), QUEUES, told.append):
        assert len(await store.list()) == 2
    remove = store.remove

    async def fail_once(_):
        monkeypatch.setattr(store, "remove", remove)
        raise DatabaseUnavailable("it is away", path="jobs.db")

    monkeypatch.setattr(store, "remove", fail_once)
    async with open_services(store, JobSettings(keep="30d"), QUEUES, told.append):
        await wait_until_empty(store)
    assert told == ["old jobs could not be removed; trying again: jobs.db: it is away"]


async def test_a_row_that_names_a_path_removes_no_files(database, tmp_path):
    store = DurableStore(database)
    await make_ended(store, 1)
    with database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE callboard_jobs SET id = '..'")
    (tmp_path / "callboard").mkdir(exist_ok=True)
    assert await remove_old_jobs(store, timedelta(0), QUEUES) == 1
    assert (tmp_path / "callboard").is_dir()

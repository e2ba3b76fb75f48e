"""Jobs that run in the user's process, and report a full disk."""

import asyncio

import pytest

from callboard.coding.agents.job_request import JobRequest
from callboard.coding.job_folders import JobFolders
from callboard.configuration import load_settings
from callboard.errors import CallerError
from callboard.jobs.chat import open_chat
from callboard.jobs.database import PATIENCE, Database, DatabaseUnavailable
from callboard.jobs.direct import make_queue, run_direct
from callboard.jobs.job import JobKind
from callboard.jobs.store import DurableStore
from callboard.testing import ScriptedModel


class FullDatabase(Database):
    is_full = False

    def run_blocking(self, work, *, patience=PATIENCE):
        if self.is_full:
            raise DatabaseUnavailable("its disk is full")
        return super().run_blocking(work, patience=patience)


class Kind(JobKind):
    name = "test"

    def __init__(self, database, *, loses_lease):
        self._database = database
        self._loses_lease = loses_lease

    async def run(self, segment):
        self._database.is_full = True
        if self._loses_lease:  # then the worker cancels the segment
            raise asyncio.CancelledError
        await segment.claim.append((), phase="later")


async def run_job(store, folder, case):
    if case != "chat":
        job = await store.create("test", queue=make_queue())
        await run_direct(store, job, Kind(store.database, loses_lease=case == "lease"))
        return
    request = JobRequest(kind="chat", directory=folder, settings=load_settings({}, folder, {}))
    async with open_chat(request, ScriptedModel([]), store, print, None, folders=JobFolders(folder / "jobs")):
        store.database.is_full = True


@pytest.mark.parametrize("case", ["write", "lease", "chat"])
async def test_a_full_disk_ends_the_command_and_not_the_job(tmp_path, case):
    with FullDatabase.open(f"sqlite:///{tmp_path / 'jobs.db'}") as database:
        store = DurableStore(database)
        with pytest.raises(DatabaseUnavailable, match="its disk is full"):
            async with asyncio.timeout(120) as limit:
                await run_job(store, tmp_path, case)
        assert not limit.expired()
        assert [each.state for each in await store.list()] == ["running"]


class FullFolders(JobFolders):
    def make(self, identifier):
        raise OSError("no space left")


async def test_a_chat_that_does_not_begin_leaves_nothing(tmp_path, monkeypatch):
    request = JobRequest(kind="chat", directory=tmp_path, settings=load_settings({}, tmp_path, {}))
    with Database.open(f"sqlite:///{tmp_path / 'jobs.db'}") as database:
        store = DurableStore(database)
        with pytest.raises(OSError, match="no space left"):
            async with open_chat(request, ScriptedModel([]), store, print, None, folders=FullFolders(tmp_path)):
                pass
        assert await store.list() == []
        create = store.create

        async def create_and_cancel(*arguments, **fields):
            return await store.request_cancel((await create(*arguments, **fields)).id)

        monkeypatch.setattr(store, "create", create_and_cancel)
        with pytest.raises(CallerError, match="cancelled"):
            async with open_chat(request, ScriptedModel([]), store, print, None, folders=JobFolders(tmp_path)):
                pass
        assert await store.list() == []

"""The jobs of a database, as tests look at them; and a job that runs in this process, without a worker."""

import asyncio
import sqlite3
from contextlib import closing
from types import SimpleNamespace

import msgspec

from callboard.cli.durable_store import read_output
from callboard.coding.job_folders import JobFolders
from callboard.jobs import database_url
from callboard.jobs.coding_kind import CodingKind
from callboard.jobs.database import Database
from callboard.jobs.direct import submit_direct
from callboard.jobs.entries import read_conversation
from callboard.jobs.segment import SegmentRunner
from callboard.jobs.store import DurableStore


class StoredJobs(JobFolders):
    """The folders of jobs, and their rows in the database of a URL or a file."""

    def __init__(self, directory, database):
        super().__init__(directory)
        self.url = str(database) if "://" in str(database) else f"sqlite:///{database}"

    def ask(self, work):
        """What `work` gives of the store, which is open meanwhile."""

        async def scenario():
            with Database.open(self.url) as database:
                return await work(DurableStore(database))

        return asyncio.run(scenario())

    def end_lease(self):
        """Let the lease of a process that was killed pass now, not in eight seconds."""
        with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as connection:
            connection.execute("UPDATE callboard_segments SET lease_until = 0")
            connection.commit()

    def all(self):
        """All jobs, the newest first. For a process that died this waits until its lease has passed."""

        async def read(store):
            return [as_record(await store.end_abandoned(each.id)) for each in await store.list()]

        return self.ask(read)

    def load(self, identifier):
        return as_record(self.ask(lambda store: store.get(identifier)))

    def entries(self, identifier):
        """The entries of a job."""
        return [each.item for each in self.ask(lambda store: store.read_entries(identifier))]

    def conversation(self, identifier):
        return read_conversation(self.entries(identifier))


def user_jobs():
    """The jobs of the user of the commands."""
    return StoredJobs(None, database_url())


def as_record(job):
    """A job with its output as coding jobs and chats have it."""
    fields = {"type": job.kind, "output": read_output(job), "tree": job.memory.get("tree", {})}
    return SimpleNamespace(**{**msgspec.structs.asdict(job), **fields})


async def run_job(request, model, jobs, show, approver, *, others=None):
    """Run a job of the request to its end; the job as it ended. `others` are models by name."""
    models = {request.settings.model: model, **(others or {})}
    with Database.open(jobs.url) as database:
        store = DurableStore(database)
        job = await submit_direct(store, request, model.name)
        kind = CodingKind(
            job.kind,
            store,
            lambda settings: models[settings.model],
            jobs.directory,
            request=request,
            approver=approver,
            show=show,
        )
        control = SimpleNamespace(executor="test", stopping=asyncio.Event(), cancel_requested=False)
        await SegmentRunner(store, [kind])(job.id, job.segment, control)
        if kind.obstacle is not None:
            raise kind.obstacle
        return as_record(await store.get(job.id))

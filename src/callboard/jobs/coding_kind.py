"""The kinds build, debug, review and triage: jobs of the coding agents, which need the files of one host.

Each segment reads the model and the settings again, so a job continues with the present settings. Decisions for the
whole job are in its memory. A call that needs approval waits for an answer.

Law: one process at a time works in a job's tree, even if a process that lost the job still runs.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, get_args

from msgspec import structs

from callboard.coding.agents.job_models import JobModels, OpenModel, open_models
from callboard.coding.agents.job_record import open_job_span
from callboard.coding.agents.job_request import JobRequest, request_of
from callboard.coding.agents.job_runner import JobRunner, add_github_text
from callboard.coding.agents.job_tests import RunnerMissing
from callboard.coding.agents.job_workspace import COMMAND_OUTPUT, MAX_PRINTED, RESULTS, Approver
from callboard.coding.agents.prompts import describe_traces, task_text
from callboard.coding.chat.approver import FILE, SavedApprovals
from callboard.coding.git.open_tree import describe_change, fork_tree, is_closed, reopen_tree, undo_tree
from callboard.coding.git.repository import find_repository
from callboard.coding.git.tree import TreeRecord
from callboard.coding.job import Job, JobType, Step, TreeSnapshot
from callboard.coding.job_folders import JobFolders, jobs_directory
from callboard.configuration import load_coding_settings
from callboard.core import Answer, InvocationCanister, ResultCanister, ResultReady
from callboard.errors import CallerError
from callboard.jobs.coding_record import FORK, CodingRecord, encode_output, read_job
from callboard.jobs.entries import Item
from callboard.jobs.job import (
    QUEUE,
    CallIntent,
    Completed,
    DurableJob,
    Failed,
    GoesOn,
    JobKind,
    JobTemplate,
    Outcome,
    Waits,
)
from callboard.jobs.segment import JobSegment
from callboard.jobs.shared_database import check_directory, check_request
from callboard.jobs.store import DurableStore
from callboard.programs import exclude_repository
from callboard.sandbox.process import read_end
from callboard.text.surrogates import escape_surrogates
from callboard.tools import Rule

KINDS: Final[tuple[str, ...]] = tuple([each for each in get_args(JobType) if each != "chat"])
MAX_CHANGE: Final = 4000
"""Maximum characters of the diff in the result of an interrupted call."""
PATIENCE: Final = 30.0
"""Seconds that a process has to leave the tree of a job that it lost."""
_LOOK_SECONDS: Final = 0.2


def host_queue() -> str:
    """Return the queue of the jobs that need the files of this host."""
    return f"{QUEUE}-{platform.node()}"


def coding_kinds(store: DurableStore, open_model: OpenModel, folders: Path | None = None) -> list[JobKind]:
    """Return the four kinds, with the parameters of `CodingKind`."""
    return [CodingKind(name, store, open_model, folders) for name in KINDS]


async def submit_request(store: DurableStore, request: JobRequest, model: str, *, priority: int = 0) -> DurableJob:
    """Queue a job of a coding agent on this host. Raises CallerError, DatabaseUnavailable."""
    check_request(request, store.database)
    return await store.create(**structs.asdict(await describe_request(request, model, priority=priority)))


async def describe_request(request: JobRequest, model: str, *, priority: int = 0) -> JobTemplate:
    """Return the template of a job of a coding agent on this host. Raises CallerError."""
    exclude_repository(request.directory)
    for path in (str(request.directory), str(jobs_directory())):
        if escape_surrogates(path) != path:
            hint = "rename the folder, or set LC_ALL to a UTF-8 locale such as C.UTF-8"
            raise CallerError("the path is not UTF-8", path=escape_surrogates(path), hint=hint)
    request = await add_github_text(request)
    repository = await find_repository(request.directory)
    return JobTemplate(
        kind=request.kind,
        description=task_text(request),
        directory=str(request.directory),
        model=model,
        input=request.input,
        queue=host_queue(),
        partition=str(repository.common if repository else request.directory),
        priority=priority,
    )


async def settle_cancelled(job: DurableJob, folders: Path | None = None) -> None:
    """Commit the changes of a cancelled job to its branch, and remove its tree, if no process ran the job then.

    Raises CallerError.
    """
    jobs = JobFolders(folders)
    folder = jobs.folder(job.id)
    if job.kind not in KINDS or job.state != "cancelled" or TreeRecord.load(folder) is None or is_closed(folder):
        return
    with jobs.running(job.id):
        tree = await reopen_tree(Path(job.directory), folder, "")
        await tree.commit(f"Not finished: {job.title}")
        await tree.close(keep=False)


async def undo_job(identifier: str, tree: Mapping[str, Any], folders: JobFolders) -> str:
    """Undo the changes of a job that has ended. Return a sentence about what was done.

    Raises CallerError if a process works in the job's folder, or if the job cannot be undone.
    """
    with folders.running(identifier):
        return await undo_tree(tree, folders.folder(identifier))


class CodingKind(JobKind):
    """One of the four kinds.

    Args:
        name: The kind.
        store: The store of its jobs.
        open_model: Opens the model of a job. Called in a thread.
        folders: The folder of the trees. The default is next to the trees of direct runs.
        request: The request of a job that a user runs in this process. By default it is read from the job.
        approver: Asks that user. By default a call that needs approval waits for an answer.
        show: Receives each step.
    """

    def __init__(
        self,
        name: str,
        store: DurableStore,
        open_model: OpenModel,
        folders: Path | None = None,
        *,
        request: JobRequest | None = None,
        approver: Approver | None = None,
        show: Callable[[Step], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.obstacle: RunnerMissing | None = None
        self._store = store
        self._open_model = open_model
        self._jobs = JobFolders(folders)
        self._request = request
        self._approver = approver
        self._show = show

    async def run(self, segment: JobSegment) -> Outcome:
        async with self._enter(segment) as (folder, items):
            record = CodingRecord(segment, folder, items, is_direct=self._request is not None)
            request = self._request or self._read_request(record.job)
            current = record.job.memory.get("phase", {}).get("model", "")
            models = await asyncio.to_thread(open_models, request, self._open_model, current)
            try:
                models.check_prices(request, segment.clock())
                for each in models.by_name.values():
                    segment.check_price(each)
                with open_job_span(self.name, models.own, segment.job.id):
                    return await self._run(segment, record, request, models)
            except RunnerMissing as error:
                self.obstacle = error
                raise
            finally:
                await models.aclose()

    async def describe_interruption(self, segment: JobSegment, call: CallIntent) -> str:
        """Return the job's changes so far, and the output of the interrupted command."""
        async with self._enter(segment) as (folder, _):
            change = await describe_change(Path(segment.job.directory), folder, MAX_CHANGE)
            return describe_traces(change, read_end(folder / COMMAND_OUTPUT, MAX_PRINTED))

    async def _read_items(self, segment: JobSegment, folder: Path) -> list[Item]:
        """Return the entries that the job continues from. There are none if it starts from the beginning.

        Create the tree of a fork first. Raises CallerError.
        """
        job = segment.job
        entries = await self._store.read_entries(job.id)
        items = [each.item for each in entries]
        if job.parent and any(each.round for each in entries) and job.memory.get(FORK, {}).get("parent") != job.parent:
            await self._begin_fork(segment, folder, items)
        return items if TreeRecord.load(folder) is not None else []

    async def _begin_fork(self, segment: JobSegment, folder: Path, items: list[Item]) -> None:
        """Copy the tree and the notes of the other job after the round to a fork."""
        job = segment.job
        source = self._jobs.folder(job.parent.partition("@")[0])
        snapshot = _find_snapshot(items, job.parent)
        request = self._read_request(read_job(job, folder, is_new=True))
        tree = await fork_tree(
            source,
            snapshot.tree,
            request.directory,
            folder,
            request.branch_of(job.id),
            fetch=request.settings.coding.git.fetch,
        )
        if (source / RESULTS).is_dir():
            await asyncio.to_thread(shutil.copytree, source / RESULTS, folder / RESULTS, dirs_exist_ok=True)
        first = {"first_report": job.memory.get("memory", {}).get("first_report")}
        memory = {
            "tree": tree.record,
            "memory": {**first, **snapshot.memory},
            FORK: {"parent": job.parent, "entries": job.entries},
        }
        await segment.claim.append((), memory=memory)

    async def _run(self, segment: JobSegment, record: CodingRecord, request: JobRequest, models: JobModels) -> Outcome:
        answers = DurableApprover(record, self._jobs.directory.parent / FILE, request.directory)

        def show(step: Step) -> None:
            segment.publish(step)  # type: ignore[arg-type]  # it takes the pieces of these
            self._show(step)

        runner = JobRunner(
            request,
            models,
            record,
            show=show,
            approver=self._approver or answers,
            clock=segment.clock,
        )
        try:
            job = await runner.run_to_end()
        except asyncio.CancelledError:
            if segment.cancel_requested and not record.is_left:
                await record.save()
                await segment.end_cancelled(encode_output(record.job.output))
            raise
        await record.save()
        if runner.pending:
            return Waits(
                approvals=record.journal.ask(runner.pending, answers.reasons, runner.find_schema),
                reason=answers.describe(),
            )
        if record.failure is not None:
            return await segment.wait_for_provider(record.failure)
        if record.is_left:
            return GoesOn()
        if job.state == "completed":
            return Completed(encode_output(job.output))
        return Failed(job.reason, job.error, encode_output(job.output))

    def _read_request(self, job: Job) -> JobRequest:
        """Return the request, with the present settings. Raises CallerError."""
        directory = Path(job.directory)
        if not directory.is_dir():
            raise CallerError("the directory of the job is gone", path=job.directory)
        exclude_repository(directory)
        flags = {**job.input, "max_rounds": job.input.get("rounds")}
        names = ("model", "base_url", "dialect", "context", "effort", "max_rounds", "budget")
        request = request_of(
            job.type,
            job.directory,
            job.input,
            load_coding_settings({name: flags.get(name) for name in names}, directory, os.environ),
        )
        check_request(request, self._store.database)
        return request

    @asynccontextmanager
    async def _enter(self, segment: JobSegment) -> AsyncIterator[tuple[Path, list[Item]]]:
        """Hold the lock of the job's folder, and return the folder and the entries that the job continues from.

        Wait for the lock, because a process that lost the job needs a moment to leave the folder.
        """
        job = segment.job
        if self._request is None:
            check_directory(job.directory, self._store.database)
        folder = self._jobs.make(job.id)
        end = time.monotonic() + PATIENCE
        with ExitStack() as resources:
            while True:
                try:
                    resources.enter_context(self._jobs.running(job.id))
                    break
                except CallerError:
                    if time.monotonic() > end:
                        raise
                await asyncio.sleep(_LOOK_SECONDS)
            yield folder, await self._read_items(segment, folder)


class DurableApprover:
    """Returns the users' answers, and defers calls without an answer. Calls that are always allowed stay allowed."""

    def __init__(self, record: CodingRecord, file: Path, project: Path) -> None:
        self.reasons: dict[str, str] = {}
        """Reasons why the waiting calls need approval, by their identifiers."""
        self._record = record
        self._saved = SavedApprovals(project, file)

    @property
    def rules(self) -> list[Rule]:
        return self._saved.rules

    async def message(self) -> str:
        return ""

    async def __call__(self, invocation: InvocationCanister, why: str) -> Answer:
        approvals, _ = self._record.find_answers([invocation])
        if invocation.identifier in approvals:
            return approvals[invocation.identifier]
        self.reasons[invocation.identifier] = why
        return "defer"

    def describe(self) -> str:
        return "; ".join(dict.fromkeys(self.reasons.values()))


def _find_snapshot(items: Sequence[Item], path: str) -> TreeSnapshot:
    """Return the files and notes after the last of the entries. Raises CallerError if there is no snapshot of them."""
    # A call after the snapshot may have changed files.
    kinds = (TreeSnapshot, ResultCanister, ResultReady)
    last = next((each for each in reversed(items) if isinstance(each, kinds)), None)
    if isinstance(last, TreeSnapshot) and last.tree:
        return last
    raise CallerError("the files after that round were not saved", path=path, hint="fork an earlier round")

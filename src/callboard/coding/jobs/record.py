"""Where a job that runs is recorded: its steps, and what is known of it besides.

`FolderRecord` is a job's folder, for a job that a command runs itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from callboard.coding.jobs.job import Job
from callboard.coding.jobs.log import EVENTS, JobLog, Step, replay_steps
from callboard.coding.jobs.store import JobStore
from callboard.core import Answer, Canister, InvocationCanister, Journal, RunProgress
from callboard.errors import CallboardError


class JobLeft(Exception):
    """The process leaves a job that another one goes on with, as it is recorded."""


class JobRecord(Protocol):
    """What the runner of a job writes to."""

    @property
    def job(self) -> Job:
        """The job as it is recorded."""
        ...

    @property
    def folder(self) -> Path:
        """The folder for the job's files: its tree, and what was too long for the model."""
        ...

    @property
    def is_left(self) -> bool:
        """Whether another process goes on with the job: then nothing is handed over, and its tree stays as it is."""
        ...

    @property
    def is_journaled(self) -> bool:
        """Whether the model's runs write a journal; else their steps alone say how far they came."""
        ...

    @property
    def begins_fork(self) -> bool:
        """Whether all that is recorded is of the job that this one is a fork of."""
        ...

    def should_leave(self) -> bool:
        """Whether this process leaves the job now, at the beginning of a round; then it is left."""
        ...

    def should_wait(self, failure: CallboardError) -> bool:
        """Return whether the job waits until its model can be asked again. Then this process leaves the job."""
        ...

    def open_journal(self, name: str, start: RunProgress | None = None) -> Journal | None:
        """The journal of a run, by a name that no other run of the job has; `start` is the progress where none is saved."""
        ...

    def find_answers(self, calls: Sequence[InvocationCanister]) -> tuple[Mapping[str, Answer], Mapping[str, Any]]:
        """What people have answered about calls that wait: approvals and results, by the calls' identifiers."""
        ...

    def steps(self) -> Iterable[Step | Canister]:
        """The steps that earlier processes recorded."""
        ...

    def add(self, step: Step) -> None:
        """Record a step. Raises CallerError, OSError."""
        ...

    def update(self, **changes: Any) -> None:
        """Change fields of the job. Raises OSError."""
        ...

    async def save(self) -> None:
        """Return when another process would find all of it, but for a reply that is not whole."""
        ...


class FolderRecord:
    """A job's folder, as a context manager; who enters it holds the job's lock."""

    def __init__(self, jobs: JobStore, job: Job) -> None:
        self.job = job
        self.folder = jobs.folder(job.id)
        self.is_left = False
        self.is_journaled = False
        self.begins_fork = False
        self._jobs = jobs

    def __enter__(self) -> Self:
        self._log = JobLog(self.folder)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._log.__exit__(kind, error, at)

    def should_leave(self) -> bool:
        return False

    def should_wait(self, failure: CallboardError) -> bool:
        return False

    def open_journal(self, name: str, start: RunProgress | None = None) -> None:
        """There is none."""

    def find_answers(self, calls: Sequence[InvocationCanister]) -> tuple[Mapping[str, Answer], Mapping[str, Any]]:
        return {}, {}

    def steps(self) -> Iterable[Step]:
        return replay_steps(self.folder) if (self.folder / EVENTS).exists() else ()

    def add(self, step: Step) -> None:
        self._log.add(step)

    def update(self, **changes: Any) -> None:
        self.job = self._jobs.update(self.job, **changes)

    async def save(self) -> None:
        """What `add` and `update` wrote is there already."""

"""Where a job that runs is recorded: its steps, and what is known of it besides.

`FolderRecord` is a job's folder, for a job that a command runs itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from callboard.coding.jobs.job import Job
from callboard.coding.jobs.log import EVENTS, JobLog, Step, replay_steps
from callboard.coding.jobs.store import JobStore
from callboard.core import Canister


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
        """Return when another process would find all that was recorded."""
        ...


class FolderRecord:
    """A job's folder, as a context manager; who enters it holds the job's lock."""

    def __init__(self, jobs: JobStore, job: Job) -> None:
        self.job = job
        self.folder = jobs.folder(job.id)
        self.is_left = False
        self._jobs = jobs

    def __enter__(self) -> Self:
        self._log = JobLog(self.folder)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._log.__exit__(kind, error, at)

    def steps(self) -> Iterable[Step]:
        return replay_steps(self.folder) if (self.folder / EVENTS).exists() else ()

    def add(self, step: Step) -> None:
        self._log.add(step)

    def update(self, **changes: Any) -> None:
        self.job = self._jobs.update(self.job, **changes)

    async def save(self) -> None:
        """A step is in the file when `add` returns, but for the pieces of a reply that is not whole."""

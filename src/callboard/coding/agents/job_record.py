"""Where a job that runs is recorded: its steps, and what is known of it besides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from callboard.coding.output import Job
from callboard.coding.steps import Step
from callboard.core import Answer, Canister, InvocationCanister, Journal, RunProgress
from callboard.errors import CallboardError


class RunRecord(Journal, Protocol):
    """The journal of a run of a job."""

    def find_unsaved(self, canisters: Sequence[Canister]) -> list[Canister]:
        """Those of a run's canisters that are not written, because the run was stopped."""
        ...


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
    def begins_fork(self) -> bool:
        """Whether all that is recorded is of the job that this one is a fork of."""
        ...

    def should_leave(self) -> bool:
        """Whether this process leaves the job now, at the beginning of a round; then it is left."""
        ...

    def should_wait(self, failure: CallboardError) -> bool:
        """Return whether the job waits until its model can be asked again. Then this process leaves the job."""
        ...

    def open_journal(self, name: str, start: RunProgress | None = None) -> RunRecord:
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

    async def save(self, canisters: Sequence[Canister] = ()) -> None:
        """Write all of it, and these canisters. A reply that is not whole is not written."""
        ...

"""The kinds of durable jobs: what a segment of one does, and what may come of it.

A kind is found by the name that the job's row has, so a worker runs the kinds that it was given and no others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from callboard.jobs.job import Approval, CallIntent, DurableJob, WaitsFor

if TYPE_CHECKING:
    from callboard.jobs.segment import JobSegment


class Completed(msgspec.Struct, frozen=True):
    """The job has done what it was asked for."""

    output: dict[str, Any]


class Failed(msgspec.Struct, frozen=True):
    """The job has ended without that. `reason` says what it fell short of, `error` what went wrong."""

    reason: str
    error: str = ""
    output: dict[str, Any] | None = None


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """The job goes on when all `approvals` were answered, or, with a `delay`, when so many seconds have passed."""

    approvals: tuple[Approval, ...] = ()
    waits_for: WaitsFor = "approval"
    reason: str = ""
    delay: float | None = None


class GoesOn(msgspec.Struct, frozen=True):
    """The job has more to do, in a next segment."""


Outcome: TypeAlias = Completed | Failed | Waits | GoesOn


class JobKind(Protocol):
    """What runs the jobs of one kind."""

    @property
    def name(self) -> str:
        """As the row of a job has it."""
        ...

    def find_obstacle(self, job: DurableJob, /) -> str:
        """Why this process cannot run a job of the kind, and what to start that can; empty where it can.

        The job is left to another process then, and its row says why.
        """
        ...

    def find_model(self, job: DurableJob, /) -> str:
        """The name of the model that a job asks whose row does not say so; empty where none is known."""
        ...

    async def run(self, segment: JobSegment) -> Outcome:
        """Go on with the job from its conversation and memory. A CallboardError fails it, and its text is the error.

        It is cancelled where the job is, and where the process ends: then another one goes on with the same segment.
        """
        ...

    async def describe_interruption(self, segment: JobSegment, call: CallIntent) -> str:
        """What can be seen of a call whose outcome is unknown, for the model to read; empty where nothing can."""
        ...

"""A durable job: a run that survives its process, as one row of a database; and the kinds of jobs.

The job's conversation is not in here: it is the job's entries (`entries.py`), which only ever grow. The row says where
the job is: its state, the segment that runs or will, and what its kind remembers from one segment to the next.

A kind is found by the name in the job's row, so a worker runs only the kinds that it was started with.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict

import msgspec
from msgspec import structs

from callboard.text.surrogates import encode_json

if TYPE_CHECKING:
    from callboard.jobs.segment import JobSegment

DurableState: TypeAlias = Literal["pending", "running", "waiting", "completed", "failed", "cancelled", "interrupted"]
"""Pending jobs wait for a worker, waiting ones for a person or the time; interrupted ones may be resumed."""
WaitsFor: TypeAlias = Literal["", "approval", "question", "rate_limit"]

END_STATES: Final[frozenset[DurableState]] = frozenset({"completed", "failed", "cancelled", "interrupted"})
TITLE: Final = 120
"""Characters of a job's title."""
QUEUE: Final = "callboard"
"""The queue of jobs that any host may run."""
DIRECT: Final = "direct-"
"""How the queue of a job begins that its command runs; behind a colon is the queue of workers of its host."""
CHAT: Final = "chat"
TRACE: Final = "traceparent"
"""The key of the job's trace in its input."""


def new_identifier(now: datetime, token: Callable[[], str] = lambda: secrets.token_hex(3)) -> str:
    """Return an identifier that sorts by time, such as `20261123-081500-042-9f3c1a`; `now` is in UTC."""
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03}-{token()}"


def find_worker_queue(queue: str) -> str:
    """Return the queue in which a job goes on without its command."""
    return queue.partition(":")[2] if queue.startswith(DIRECT) else queue


def agent_queue(reference: str) -> str:
    """Return the queue of an agent's jobs: only workers that know the agent take them."""
    return f"{QUEUE}-agent:{reference}"


def normalize_reference(reference: str) -> str:
    """Return the reference of an agent with an absolute path, so that it does not depend on the current directory."""
    place, colon, attribute = reference.rpartition(":")
    return f"{Path(place).resolve()}:{attribute}" if colon and place.endswith(".py") else reference


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of jobs shows. Times are in UTC."""

    id: str
    """Sorts by the time at which the job was made."""
    kind: str
    state: DurableState = "pending"
    reason: str = ""
    """Why it is in its state."""
    waits_for: WaitsFor = ""
    title: str = ""
    directory: str = ""
    model: str = ""
    error: str = ""
    phase: str = ""
    queue: str = QUEUE
    partition: str = ""
    """One job of a partition, such as a repository, runs at a time; "" is none."""
    priority: int = 0
    """The lowest comes first."""
    segment: int = 1
    """The number of the segment that is queued or runs, or was the last."""
    attempts: int = 0
    """Number of times that a segment of the job was begun."""
    executor: str = ""
    """The executor that claimed it last."""
    cancel_requested: bool = False
    parent: str = ""
    """`JOB@ROUND` that it was forked from."""
    schedule: str = ""
    rounds: int = 0
    calls: int = 0
    usage: dict[str, int] = {}
    cost: float | None = None
    entries: int = 0
    """Number of entries; they are numbered from 1."""
    created_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    updated_at: datetime

    @property
    def has_ended(self) -> bool:
        return self.state in END_STATES

    def as_json(self) -> dict[str, Any]:
        """The job as programs read it: without its memory, which may have another form in the next release."""
        fields: dict[str, Any] = msgspec.json.decode(encode_json(self))
        fields.pop("memory", None)
        return fields


class DurableJob(JobSummary, frozen=True, kw_only=True):
    """A job with its long fields."""

    description: str = ""
    input: dict[str, Any] = {}
    """What it was asked with."""
    memory: dict[str, Any] = {}
    """The notes of its kind, written in the same transaction as entries."""
    output: dict[str, Any] | None = None


class JobTemplate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of a new job. See `DurableJob`."""

    kind: str
    description: str = ""
    directory: str = ""
    model: str = ""
    input: dict[str, Any] = {}
    memory: dict[str, Any] = {}
    queue: str = QUEUE
    partition: str = ""
    priority: int = 0

    def make_job(self, identifier: str, now: datetime, **fields: Any) -> DurableJob:
        """Return a new pending job with these other fields."""
        title = make_title(self.description)
        return DurableJob(**structs.asdict(self), id=identifier, title=title, created_at=now, updated_at=now, **fields)


def make_title(description: str) -> str:
    return description.strip().partition("\n")[0][:TITLE]


class Changes(TypedDict, total=False):
    """What the runner of a job may change beside adding entries."""

    title: str
    description: str
    model: str
    phase: str
    rounds: int
    calls: int
    usage: dict[str, int]
    cost: float | None
    memory: dict[str, Any]


class CallIntent(msgspec.Struct, frozen=True):
    """A call that was begun and has no result yet. It was committed before its tool started."""

    call_id: str
    name: str
    begun_at: datetime
    segment: int
    entries: int
    """Number of entries that the job had then."""


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a person is asked about, or a question of the model, and what was answered."""

    call_id: str
    name: str
    arguments: dict[str, Any] | None = None
    why: str = ""
    """The reason, or the question."""
    digest: str = ""
    """Digest of what will run; an answer to something else is refused. "" is not compared."""
    is_question: bool = False
    asked_at: datetime | None = None
    verdict: Literal["", "allow", "deny"] = ""
    """"" while it is open. A question is answered by "allow" with a `text`, a denial has a `reason`."""
    reason: str = ""
    text: str = ""
    edited: dict[str, Any] | None = None
    """Arguments that replace the model's."""
    answered_at: datetime | None = None


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


class JobKind(ABC):
    """Runs the jobs of one kind. `name` is the kind in the row of a job."""

    name: str

    def find_obstacle(self, _job: DurableJob, /) -> str:
        """Return why this process cannot run a job of the kind, and what to start that can; "" if it can.

        The job is left to another process then, and its row says why.
        """
        return ""

    def find_model(self, _job: DurableJob, /) -> str:
        """Return the name of the model of a job whose row does not have it, "" if it is not known."""
        return ""

    @abstractmethod
    async def run(self, segment: JobSegment) -> Outcome:
        """Go on with the job from its conversation and memory. A CallboardError fails it, and its text is the error.

        It is cancelled if the job is, and if the process ends. Then another process goes on with the same segment.
        """

    async def describe_interruption(self, _segment: JobSegment, _call: CallIntent, /) -> str:
        """Return what can be seen of a call whose outcome is unknown, for the model to read; "" if nothing can."""
        return ""

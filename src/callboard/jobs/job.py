"""A durable job, which is one row of a database and survives its process; and the kinds of jobs.

The conversation is in the job's entries (`entries.py`), which are never changed. The row has the job's state, its
present segment, and the notes that its kind keeps between segments.

The row names the job's kind. A worker runs only the kinds that it was started with.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict

import msgspec
from msgspec import structs

from callboard.errors import SchemaError
from callboard.text.surrogates import encode_json

if TYPE_CHECKING:
    from callboard.jobs.segment import JobSegment
    from callboard.schema import Mistake

DurableState: TypeAlias = Literal["pending", "running", "waiting", "completed", "failed", "cancelled", "interrupted"]
"""A pending job waits for a worker, a waiting job for a person or a time. An interrupted job may be resumed."""
WaitsFor: TypeAlias = Literal["", "approval", "question", "rate_limit"]

END_STATES: Final[frozenset[DurableState]] = frozenset({"completed", "failed", "cancelled", "interrupted"})
TITLE: Final = 120
"""Maximum characters of a job's title."""
QUEUE: Final = "callboard"
"""The queue of jobs that any host may run."""
DIRECT: Final = "direct-"
"""Prefix of the queue of a job that a command runs. After a colon comes the queue of its host's workers."""
CHAT: Final = "chat"
TRACE: Final = "traceparent"
"""The key of the job's trace in its input."""


def new_identifier(now: datetime, token: Callable[[], str] = lambda: secrets.token_hex(3)) -> str:
    """Return an identifier that sorts by time, such as `20261123-081500-042-9f3c1a`; `now` is in UTC."""
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03}-{token()}"


def find_worker_queue(queue: str) -> str:
    """Return the queue in which a job continues without its command."""
    return queue.partition(":")[2] if queue.startswith(DIRECT) else queue


def agent_queue(reference: str) -> str:
    """Return the queue of an agent's jobs. Only workers that know the agent serve it."""
    return f"{QUEUE}-agent:{reference}"


def normalize_reference(reference: str) -> str:
    """Return the reference of an agent with an absolute path, independent of the current directory."""
    place, colon, attribute = reference.rpartition(":")
    return f"{Path(place).resolve()}:{attribute}" if colon and place.endswith(".py") else reference


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a job in a list. Times are in UTC."""

    id: str
    """Id that sorts by the time of creation."""
    kind: str
    state: DurableState = "pending"
    reason: str = ""
    """Reason for the state."""
    waits_for: WaitsFor = ""
    title: str = ""
    directory: str = ""
    model: str = ""
    error: str = ""
    phase: str = ""
    queue: str = QUEUE
    partition: str = ""
    """Group of jobs, such as a repository, of which one runs at a time. "" for none."""
    priority: int = 0
    """Priority; the lowest number runs first."""
    segment: int = 1
    """Number of the present or last segment."""
    attempts: int = 0
    """Number of claims of the job's segments."""
    executor: str = ""
    """Id of the executor that claimed the job last."""
    cancel_requested: bool = False
    parent: str = ""
    """Origin of a fork, as `JOB@ROUND`."""
    schedule: str = ""
    rounds: int = 0
    calls: int = 0
    usage: dict[str, int] = {}
    cost: float | None = None
    entries: int = 0
    """Number of entries, which are numbered from 1."""
    created_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    updated_at: datetime

    @property
    def has_ended(self) -> bool:
        return self.state in END_STATES

    def as_json(self) -> dict[str, Any]:
        """Return the job as JSON, without its memory, whose format may change in any release."""
        fields: dict[str, Any] = msgspec.json.decode(encode_json(self))
        fields.pop("memory", None)
        return fields


class DurableJob(JobSummary, frozen=True, kw_only=True):
    """A job with its long fields."""

    description: str = ""
    input: dict[str, Any] = {}
    """Input of the job; each kind has its own format."""
    memory: dict[str, Any] = {}
    """Notes of the kind, written in the same transaction as entries."""
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
        """Return a new pending job with additional `fields`."""
        title = make_title(self.description)
        return DurableJob(**structs.asdict(self), id=identifier, title=title, created_at=now, updated_at=now, **fields)


def make_title(description: str) -> str:
    """Return the first line of a description. A long one ends after a word, with three points."""
    line = description.strip().partition("\n")[0]
    if len(line) <= TITLE:
        return line
    begin = line[: TITLE - 3]
    return f"{begin.rpartition(' ')[0] or begin}..."


class Changes(TypedDict, total=False):
    """The fields of a job that its runner may change."""

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
    """A call that has started and has no result yet. It is committed before its tool starts."""

    call_id: str
    name: str
    begun_at: datetime
    segment: int
    entries: int
    """Number of the job's entries at that time."""


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A call that needs approval, or a question of the model, and the answer."""

    call_id: str
    name: str
    arguments: dict[str, Any] | None = None
    why: str = ""
    """Reason for the approval, or the question."""
    digest: str = ""
    """Digest of the call. An answer with another digest is refused. "" is not compared."""
    is_question: bool = False
    asked_at: datetime | None = None
    verdict: Literal["", "allow", "deny"] = ""
    """Answer, "" if it is open. An answered question has "allow" and a `text`; a denial has a `reason`."""
    reason: str = ""
    text: str = ""
    edited: dict[str, Any] | None = None
    """Arguments that replace the model's."""
    parameters: dict[str, Any] | None = None
    """JSON Schema that edited arguments must fit. Empty or None if they are not checked before the call."""
    answered_at: datetime | None = None


def find_mistakes(approval: Approval, arguments: Mapping[str, Any]) -> Sequence[Mistake]:
    """Return what is wrong with edited arguments. A schema that cannot be compiled refuses nothing."""
    from callboard.schema import ArgumentsInvalid, compile_schema  # noqa: PLC0415  # only for edited arguments

    try:
        if approval.parameters:
            compile_schema(approval.parameters).validate(arguments)
    except ArgumentsInvalid as invalid:
        return invalid.mistakes
    except SchemaError:
        pass
    return ()


class Completed(msgspec.Struct, frozen=True):
    """The job has done its task."""

    output: dict[str, Any]


class Failed(msgspec.Struct, frozen=True):
    """The job has ended without doing its task. `reason` is its shortfall, `error` the text of an error."""

    reason: str
    error: str = ""
    output: dict[str, Any] | None = None


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """The job continues when all `approvals` are answered, or after `delay` seconds."""

    approvals: tuple[Approval, ...] = ()
    waits_for: WaitsFor = "approval"
    reason: str = ""
    delay: float | None = None


class GoesOn(msgspec.Struct, frozen=True):
    """The job continues in the next segment."""


Outcome: TypeAlias = Completed | Failed | Waits | GoesOn


class JobKind(ABC):
    """Runs the jobs of one kind. `name` is the kind in the row of a job."""

    name: str

    def find_obstacle(self, _job: DurableJob, /) -> str:
        """Return why this process cannot run a job, and what to start instead. Return "" if it can run the job.

        Another process may then run the job. Its row has the reason.
        """
        return ""

    def find_model(self, _job: DurableJob, /) -> str:
        """Return the name of the job's model if its row does not have it, "" if it is not known."""
        return ""

    @abstractmethod
    async def run(self, segment: JobSegment) -> Outcome:
        """Continue the job from its conversation and memory. A CallboardError fails the job, with the error's text.

        It is cancelled if the job is cancelled or the process ends. After the latter, another process runs the segment.
        """

    async def describe_interruption(self, _segment: JobSegment, _call: CallIntent, /) -> str:
        """Return the visible effects of a call with an unknown outcome, as text for the model, "" if there are none."""
        return ""

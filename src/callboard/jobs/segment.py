"""One segment of a job: claim it, read its entries, answer interrupted calls, run its kind, write the outcome.

Laws:
- A call that has started and has no result gets a result. It is never run again, because it may have had effects.
- A segment that lost its claim stops at once, with everything that runs in it, and writes nothing more.
- A segment whose process ends writes nothing. Another process starts the same segment again from the written entries.

A job is one trace, even if several processes run its segments. Its input keeps the `traceparent` of its submitter, or
of a span of its own. The spans of the segments are children of that span.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter
from typing import Any, Final, Protocol, TypeAlias

from msgspec.structs import replace

from callboard.core import Canister, Event, InvocationCanister, Model, error_result
from callboard.core.ports import Clock
from callboard.errors import CallboardError, CallerError, ProviderError
from callboard.jobs.activity import store_drafts
from callboard.jobs.claim import Claim, Superseded
from callboard.jobs.database import DatabaseUnavailable
from callboard.jobs.entries import JobEntry, order_results, read_conversation
from callboard.jobs.job import TRACE, CallIntent, Completed, DurableJob, Failed, GoesOn, JobKind, Outcome, Waits
from callboard.jobs.limits import JobLimits
from callboard.jobs.store import DurableStore
from callboard.jobs.streams import JobStreams
from callboard.modes import get_plan
from callboard.profiles.prices import require_price
from callboard.telemetry import names, open_span
from callboard.telemetry.logs import set_log_subject

_log = logging.getLogger("callboard.jobs")

OnSegment: TypeAlias = Callable[[DurableJob, DurableJob, float], None]
"""Called with the job before and after a segment, and the segment's duration in seconds."""
ROUNDS: Final = 50
"""Replies after which a segment gives way to the next one."""
INTERRUPTED: Final = (
    "interrupted, outcome unknown: the process ended while {name} ran, so it may have done all, part or nothing of its "
    "work. Look before you call it again."
)

CANCELLED: Final = (
    "cancelled while {name} ran, so it may have done all, part or nothing of its work. Look before you call it again."
)

RATE_LIMITS: Final = frozenset({"rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED", "overloaded_error"})
"""Error codes of providers for requests that should be sent later."""
OUTAGES: Final = frozenset({"unreachable", "cut", "timeout", "backend_unavailable", "UNAVAILABLE", "DEADLINE_EXCEEDED"})
"""Error codes of refused, broken or silent connections, and of servers that could not reach another server."""
FIRST_PAUSE: Final = 30.0
"""Seconds of the first wait. Each further wait doubles, up to `LONGEST_PAUSE`."""
LONGEST_PAUSE: Final = 900.0
LONGEST_WAIT: Final = 86400.0
"""Maximum seconds to wait for a provider, even if it asks for a longer wait."""


@dataclass
class SegmentControl:
    """The worker's control over a segment. `executor` is the id of this process for claims."""

    executor: str
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the worker stops. Then leave the job to the next segment at a safe point."""
    cancel_requested: bool = False
    """True if the task is cancelled because the job is cancelled, False if the process ends."""


class JobBudget(Protocol):
    """A budget that several jobs share. `setting` is the name of its setting."""

    setting: str

    @property
    def is_spent(self) -> bool:
        """True if the budget is used up, as far as this process knows."""
        ...

    async def add(self, dollars: float) -> None:
        """Add the cost of a reply."""
        ...


class JobSegment:
    """The interface between a kind and its job while a segment runs.

    `conversation` is the conversation at the start of the segment. `call_counts` counts the identifiers of calls in all
    entries, including rolled-back entries.
    """

    def __init__(
        self,
        claim: Claim,
        watch: SegmentControl,
        entries: Sequence[JobEntry],
        streams: JobStreams,
        clock: Clock,
        *,
        budget: JobBudget | None = None,
    ) -> None:
        items = [each.item for each in entries]
        self.claim = claim
        self.conversation: list[Canister] = read_conversation(items)
        self.call_counts = Counter([each.identifier for each in items if isinstance(each, InvocationCanister)])
        self.failure: CallboardError | None = None
        self._call_numbers = {
            item.identifier: entry.number
            for entry, item in zip(entries, items, strict=True)
            if isinstance(item, InvocationCanister)
        }
        self._watch = watch
        self._streams = streams
        self.clock = clock
        self.budgets = [] if budget is None else [budget]
        """The daily budget, and budgets that a kind adds before its run starts."""
        self._task = asyncio.current_task()

    @property
    def job(self) -> DurableJob:
        return self.claim.job

    @property
    def cancel_requested(self) -> bool:
        return self._watch.cancel_requested

    def should_leave(self, rounds: int) -> bool:
        """Return whether the segment should end after so many rounds, so that the job continues in the next segment."""
        is_spent = any(each.is_spent for each in self.budgets)
        return rounds >= ROUNDS or is_spent or self._watch.stopping.is_set()

    def check_price(self, model: Model) -> None:
        """Raise CallerError if there is a budget and the model's price is not known."""
        for budget in self.budgets:
            require_price(get_plan(model).prices, model.name, self.clock(), path=budget.setting)

    def publish(self, event: Event) -> None:
        """Show an event to followers of the job in this process."""
        self._streams.publish(self.job.id, event)

    def announce(self) -> None:
        """Announce committed entries to followers of the job in this process."""
        self._streams.announce(self.job.id, self.job.entries)

    async def commit(self, writing: Awaitable[None]) -> None:
        """Wait for a write of the claim, and announce it. If it fails, cancel the segment at once."""
        try:
            await writing
        except CallboardError as failure:
            if self.failure is None and self._task is not None and self._task is not asyncio.current_task():
                self._task.cancel()
            self.failure = self.failure or failure
            raise
        self.announce()

    async def answer_open_calls(self, kind: JobKind) -> None:
        """Add a result with an unknown outcome for each call that has started and has no result."""
        waiting = [each for each in self.claim.open_calls if self._is_waiting(each)]
        results = []
        for call in waiting:
            details = await kind.describe_interruption(self, call)
            text = "\n".join([each for each in (INTERRUPTED.format(name=call.name), details) if each])
            results.append(replace(error_result(call.call_id, "cancelled", text), timestamp=self.clock()))
        await asyncio.gather(*[self.claim.end_call(each) for each in results])
        self.conversation = order_results([*self.conversation, *results])

    async def end_cancelled(self, output: dict[str, Any] | None = None) -> None:
        """End a cancelled job. Each stopped call gets a result that reports the cancellation."""
        for call_id, name in [*self.claim.running.items()]:
            result = error_result(call_id, "cancelled", CANCELLED.format(name=name))
            await self.claim.end_call(replace(result, timestamp=self.clock()))
        await self.claim.end("cancelled", "cancelled", output)

    async def wait_for_provider(self, failure: CallboardError) -> Waits:
        """Return a wait for the provider of the job's model, at least as long as the provider asks for.

        A request waits for up to a minute within the run. After that the job waits outside of any process. Each wait
        without a reply in between is longer than the last.
        """
        job = self.job
        round_before, pause = job.memory.get("rate_limit", (-1, 0.0))
        pause = min(pause * 2, LONGEST_PAUSE) if round_before == job.rounds else FIRST_PAUSE
        await self.claim.append((), memory={**job.memory, "rate_limit": (job.rounds, pause)})
        retry_after = failure.retry_after if isinstance(failure, ProviderError) else None
        delay = max(pause, min(retry_after or 0.0, LONGEST_WAIT))
        return Waits(waits_for="rate_limit", reason=str(failure), delay=delay)

    def _is_waiting(self, call: CallIntent) -> bool:
        """Return whether the call is in the conversation. A rolled-back call of the same identifier does not count."""
        calls = {each.identifier for each in self.conversation if isinstance(each, InvocationCanister)}
        return call.call_id in calls and call.entries >= self._call_numbers[call.call_id]


class SegmentRunner:
    """Runs segments of these kinds.

    Args:
        store: The store of the jobs.
        kinds: The kinds of jobs that it can run.
        streams: The followers of jobs in this process.
        limits: Limits of starts per minute, and the daily budget of all jobs.
        on_segment: Called after each segment.
        clock: Returns the time in UTC.
    """

    def __init__(
        self,
        store: DurableStore,
        kinds: Iterable[JobKind],
        streams: JobStreams | None = None,
        *,
        limits: JobLimits | None = None,
        on_segment: OnSegment | None = None,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._on_segment = on_segment
        self._limits = limits
        self._budget = limits if limits is not None and limits.dollars is not None else None
        self._kinds = {each.name: each for each in kinds}
        self._streams = streams or JobStreams()
        self._clock = clock

    async def __call__(self, identifier: str, number: int, watch: SegmentControl) -> None:
        """Run a segment. Return when its outcome is written, or when another runner has the job.

        Raises:
            LeftToOthers: This runner cannot run the job. The job's row has the reason.
            DatabaseUnavailable: The outcome could not be written.
            asyncio.CancelledError: The process ends.
        """
        try:
            pause, reason = await self._limit(identifier)
            claim = await self._store.claim(identifier, number, watch.executor, self._find_obstacle, self._find_model)
            if pause and not claim.job.cancel_requested:
                await claim.wait(waits_for="rate_limit", reason=reason, delay=pause)
            else:
                with _observe_segment(claim, self._on_segment):
                    await self._run(claim, watch)
            self._streams.announce(identifier, claim.job.entries)
        except Superseded:
            return

    def _find_obstacle(self, job: DurableJob) -> str:
        if (kind := self._kinds.get(job.kind)) is not None:
            return kind.find_obstacle(job)
        return f"the worker that took it runs no jobs of the kind {job.kind!r}; start one that does"

    def _find_model(self, job: DurableJob) -> str:
        return job.model or (self._kinds[job.kind].find_model(job) if job.kind in self._kinds else "")

    async def _limit(self, identifier: str) -> tuple[float, str]:
        """Return how many seconds a segment must wait for the limits, and why."""
        if self._limits is None:
            return 0, ""
        try:
            job = await self._store.get(identifier)
        except CallerError:  # the job was removed, and its claim raises
            return 0, ""
        if self._find_obstacle(job):
            return 0, ""
        return await self._limits.reserve(job, self._find_model(job))

    async def _run(self, claim: Claim, watch: SegmentControl) -> None:
        if claim.job.cancel_requested:
            await claim.end("cancelled", "cancelled")
            return
        kind = self._kinds[claim.job.kind]
        entries = await self._store.read_entries(claim.job.id)
        try:
            segment = JobSegment(claim, watch, entries, self._streams, self._clock, budget=self._budget)
        except CallerError as error:  # an unreadable entry stays unreadable
            await claim.end("failed", error=str(error))
            return
        segment.announce()
        try:
            async with store_drafts(self._store.database, claim, self._streams):
                outcome = await self._run_kind(kind, segment)
        except asyncio.CancelledError:
            if segment.failure is not None:
                _resume_task()
                raise segment.failure from None
            if not watch.cancel_requested:
                raise
            _resume_task()
            await segment.end_cancelled()
        else:
            await _write_outcome(claim, outcome)

    async def _run_kind(self, kind: JobKind, segment: JobSegment) -> Outcome:
        try:
            await segment.answer_open_calls(kind)
            return await kind.run(segment)
        except (Superseded, DatabaseUnavailable):
            raise
        except CallboardError as error:
            return Failed("", str(error))
        except Exception as error:  # noqa: BLE001  # of the kind's or the agent's code: the job has failed, not the worker
            return Failed("", f"{type(error).__name__}: {error}")


async def _write_outcome(claim: Claim, outcome: Outcome) -> None:
    match outcome:
        case Completed(output=output):
            await claim.end("completed", output=output)
        case Failed(reason=reason, error=error, output=output):
            await claim.end("failed", reason, output, error=error)
        case Waits():
            await claim.wait(outcome.approvals, waits_for=outcome.waits_for, reason=outcome.reason, delay=outcome.delay)
        case GoesOn():
            await claim.go_on()


def may_pass(failure: CallboardError | None) -> bool:
    """Return whether the same request may succeed later."""
    if not isinstance(failure, ProviderError) or failure.party == "caller":
        return False
    return failure.retry_after is not None or failure.code in RATE_LIMITS | OUTAGES


def _resume_task() -> None:
    """Undo the cancellation of this task, which has something left to write."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


@contextmanager
def _observe_segment(claim: Claim, on_segment: OnSegment | None) -> Generator[None]:
    """Report the segment in a span, in the log, and to `on_segment`."""
    job = claim.job
    set_log_subject(job=job.id)
    began = perf_counter()
    attributes: dict[str, str | int] = {
        names.OPERATION: names.INVOKE_WORKFLOW,
        names.WORKFLOW_NAME: job.kind,
        names.JOB_ID: job.id,
        names.JOB_SEGMENT: job.segment,
        names.CONVERSATION_ID: job.id,
    }
    trace = job.input.get(TRACE)
    parent = {TRACE: trace} if isinstance(trace, str) else None
    with open_span(f"{names.INVOKE_WORKFLOW} {job.kind}", "consumer", attributes, parent=parent) as span:
        model = f" by {job.model}" if job.model else ""
        _log.info("job %s, segment %d: %s%s begins", job.id, job.segment, job.kind, model)
        try:
            yield
        finally:
            seconds, after = perf_counter() - began, claim.job
            span.set({names.JOB_STATE: after.state})
            if after.state == "failed":
                span.fail(after.reason or "failed")
            _log.info("job %s, segment %d: %s in %.3f s", job.id, job.segment, after.state, seconds)
            if on_segment is not None:
                on_segment(job, after, seconds)

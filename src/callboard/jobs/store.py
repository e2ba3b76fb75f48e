"""The store of durable jobs: their rows, their entries, and the requests of people.

The runner of a job writes through its `Claim`; everybody else writes through the store. A change from outside raises
the job's fence, so that a runner that does not know of the change cannot overwrite it.

Laws: a change that makes a job continue (creation, answer, resumption) queues the next segment in the same transaction,
so a failure changes nothing. You may retry each method if the acknowledgement of its commit was lost.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar

from msgspec.structs import replace
from sqlalchemy import Connection, bindparam, delete, select, update

from callboard.core import ApprovalAnswered, InvocationCanister
from callboard.core.ports import Clock
from callboard.errors import CallboardError, CallerError
from callboard.jobs import queries
from callboard.jobs.claim import Claim, Enqueue, LeftToOthers, Superseded
from callboard.jobs.database import Database
from callboard.jobs.declared_tools import copy_tools, remove_tools
from callboard.jobs.engine import enqueue
from callboard.jobs.entries import Item, encode_entry
from callboard.jobs.job import (
    CHAT,
    END_STATES,
    TRACE,
    Approval,
    CallIntent,
    DurableJob,
    DurableState,
    JobSummary,
    JobTemplate,
    find_mistakes,
    find_worker_queue,
    new_identifier,
)
from callboard.jobs.queries import EntryChange, JobReader, StoredJob
from callboard.jobs.tables import (
    PARTS,
    approvals,
    entries,
    from_rows,
    has_lease,
    jobs,
    lock_claims,
    open_calls,
    segments,
    to_microseconds,
    to_row,
)
from callboard.telemetry import current_headers, names, open_span, switch

SomeJob = TypeVar("SomeJob", bound=JobSummary)

MAX_FAILURES: Final = 5
"""Maximum restarts of a segment, without progress, after its runner died or it raised."""
GIVEN_UP: Final = f"its worker died or failed {MAX_FAILURES + 1} times at the same place"
DEAD: Final = "its worker died"
_LOOK_SECONDS: Final = 0.2
_OPEN_CALLS: Final = select(open_calls).where(open_calls.c.job == bindparam("job")).order_by(open_calls.c.begun_at)


class DurableStore(JobReader):
    """The jobs of a database.

    Args:
        database: The database.
        enqueue: Queues a job's segment in the present transaction.
        clock: Returns the time in UTC.
    """

    def __init__(
        self,
        database: Database,
        enqueue: Enqueue = enqueue,
        *,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__(database)
        self._enqueue = enqueue
        self._clock = clock

    async def create(self, kind: str, *, items: Iterable[Item] = (), **fields: Any) -> DurableJob:
        """Add a pending job and queue its first segment.

        Args:
            kind: The kind of the job.
            items: The first entries, of round 0.
            fields: Other fields of a `JobTemplate`.
        """
        now = self._clock()
        lines = [encode_entry(item) for item in items]
        template = JobTemplate(kind=kind, **fields)
        template = replace(template, input={**template.input, **_trace_of_new_job(kind)})
        job = template.make_job(new_identifier(now), now, entries=len(lines))

        def make(connection: Connection, job: DurableJob) -> DurableJob:
            key = queries.add_job(connection, job)
            queries.add_rows(connection, entries, queries.entry_rows(key, 0, 0, lines))
            return job

        return await self._add(job, make)

    async def claim(
        self,
        identifier: str,
        segment: int,
        executor: str,
        find_obstacle: Callable[[DurableJob], str] = lambda _: "",
        find_model: Callable[[DurableJob], str] = lambda job: job.model,
    ) -> Claim:
        """Make this process the job's one runner.

        Args:
            identifier: The job.
            segment: The number of the segment to run.
            executor: The id of this process.
            find_obstacle: Returns why this process cannot run the job, "" if it can. Not called for a cancelled job.
            find_model: Returns the name of the job's model, "" if it is not known.

        Raises:
            Superseded: The segment must not run: the job has continued or ended, waits for a person, or was removed.
            LeftToOthers: This process cannot run the job. The job's reason has the obstacle.
        """

        def take(connection: Connection) -> Claim | CallboardError:
            stored = queries.lock_job(connection, identifier)
            if stored is None:
                raise Superseded("the job was removed", path=identifier)
            job = stored.job
            sleeps = job.state == "waiting" and job.waits_for == "rate_limit"
            if job.segment != segment or not (sleeps or job.state in {"pending", "running"}):
                message = f"segment {segment} is not to be run: the job is {job.state} at {job.segment}"
                raise Superseded(message, path=identifier)
            obstacle = "" if job.cancel_requested else find_obstacle(job)
            if obstacle:
                if (job.state, job.reason) != ("pending", obstacle):
                    self._change(connection, stored, state="pending", reason=obstacle, waits_for="")
                return LeftToOthers(obstacle, path=identifier)
            failures = stored.failures + 1 if job.state == "running" else 0
            if failures > MAX_FAILURES:
                self._end(connection, stored, "interrupted", GIVEN_UP)
                return Superseded(GIVEN_UP, path=identifier)
            if failures != stored.failures:
                queries.set_failures(connection, stored.key, failures)
            now = self._clock()
            claimed = self._change(
                connection,
                stored,
                state="running",
                reason="",
                waits_for="",
                executor=executor,
                model=find_model(job),
                attempts=job.attempts + 1,
                started_at=job.started_at or now,
            )
            return Claim(
                self.database,
                self._enqueue,
                StoredJob(stored.key, stored.fence + 1, claimed, failures),
                open_calls=list(from_rows(connection.execute(_OPEN_CALLS, {"job": stored.key}), CallIntent)),
                answers=[each for each in queries.read_approvals(connection, stored.key) if each.verdict],
                clock=self._clock,
            )

        taken = await self.database.run(take)
        if isinstance(taken, CallboardError):
            raise taken
        return taken

    async def answer(
        self,
        identifier: str,
        call_id: str,
        verdict: Literal["allow", "deny"] = "allow",
        *,
        digest: str = "",
        reason: str = "",
        text: str = "",
        edited: dict[str, Any] | None = None,
        by: str = "",
        via: str = "Python",
    ) -> DurableJob:
        """Answer an approval or a question. The last open answer queues the next segment.

        The same transaction adds the answer as an entry of the job. Later answers are refused.

        Args:
            identifier: The job.
            call_id: The call.
            verdict: "allow" or "deny". To answer a question, use "allow" and a text.
            digest: The digest of the approval that was reviewed.
            reason: Reason of a denial. The model reads it.
            text: Answer to a question.
            edited: Arguments that replace the model's.
            by: Name of the user, session, client or key that answers.
            via: Interface of the answer: terminal, board, AG-UI, ACP, MCP or Python.

        Raises:
            CallerError: There is no such call, its digest differs, it has an answer, the job has ended, or edited
                arguments do not fit the tool's schema.
        """
        if edited is not None:
            await self._check_edited(identifier, call_id, edited)
        token = secrets.token_hex(8)
        answered = {"verdict": verdict, "reason": reason, "text": text, "edited": edited, "token": token}

        def take(connection: Connection) -> DurableJob:
            stored = _lock(connection, identifier)
            question = (approvals.c.job == stored.key) & (approvals.c.call_id == call_id)
            mine = connection.scalar(select(approvals.c.token).where(question)) == token
            if mine:
                return stored.job
            known = queries.read_approvals(connection, stored.key)
            pending = next((each for each in known if each.call_id == call_id), None)
            if pending is not None and pending.verdict:
                answers = queries.read_answers(connection, stored.key)
                earlier = [each for each in answers if each.invocation.identifier == call_id]
                raise CallerError(_describe_earlier(stored.job, pending, earlier), path=f"{identifier}:{call_id}")
            pending = _check_answer(stored.job, pending, call_id, digest)
            now, number = self._clock(), stored.job.entries + 1
            connection.execute(update(approvals).where(question), to_row({**answered, "answered_at": now}))
            entry = ApprovalAnswered(
                InvocationCanister(call_id, pending.name, pending.arguments),
                verdict,
                reason,
                edited,
                is_question=pending.is_question,
                by=by,
                via=via,
                timestamp=now,
            )
            self._add_entries(connection, stored, [entry])
            if any(not each.verdict and each.call_id != call_id for each in known):
                return self._change(connection, stored, entries=number)
            return self._go_on(connection, stored, entries=number)

        return await self.database.run(take)

    async def _check_edited(self, identifier: str, call_id: str, edited: dict[str, Any]) -> None:
        question = next((each for each in await self.read_approvals(identifier) if each.call_id == call_id), None)
        mistakes = [] if question is None else await asyncio.to_thread(find_mistakes, question, edited)
        if mistakes:
            reasons = "; ".join([f"{each.path or 'arguments'}: {each.message}" for each in mistakes])
            raise CallerError(f"the edited arguments do not fit: {reasons}", path=f"{identifier}:{call_id}")

    async def request_cancel(self, identifier: str, reason: str = "cancelled") -> DurableJob:
        """Cancel a job. The runner of a running job ends it. Do nothing if the job has ended.

        Raises CallerError if the job does not exist.
        """

        def cancel(connection: Connection) -> DurableJob:
            stored = _lock(connection, identifier)
            if stored.job.has_ended:
                return stored.job
            if stored.job.state == "running":
                cancelled = replace(stored.job, cancel_requested=True)
                queries.change_job(connection, stored, cancelled, stored.fence)
                return cancelled
            return self._end(connection, stored, "cancelled", reason)

        return await self.database.run(cancel)

    async def resume(self, identifier: str, *, is_direct: bool = False) -> DurableJob:
        """Resume an interrupted, cancelled or failed job from its last entry.

        Args:
            identifier: The job.
            is_direct: True if this process runs the job. Then it keeps its queue, and may be a completed chat.
                Otherwise workers of its host run it.

        Raises:
            CallerError: The job completed, is a chat, has not ended, or does not exist.
        """
        target: list[int] = []

        def go_on(connection: Connection) -> DurableJob:
            stored = _lock(connection, identifier)
            if [stored.job.segment] == target:
                return stored.job
            is_chat = stored.job.kind == CHAT
            if is_chat and not is_direct:
                raise _refuse_chat(identifier)
            if (stored.job.state == "completed" and not is_chat) or not stored.job.has_ended:
                raise CallerError(f"the job is {stored.job.state}, so it cannot be resumed", path=identifier)
            target[:] = [stored.job.segment + 1]
            connection.execute(delete(approvals).where(approvals.c.job == stored.key, approvals.c.verdict == ""))
            queue = stored.job.queue if is_direct else find_worker_queue(stored.job.queue)
            return self._go_on(connection, stored, queue=queue)

        return await self.database.run(go_on)

    async def amend(self, identifier: str, items: Sequence[Item], output: dict[str, Any]) -> DurableJob:
        """Add entries to a job that has ended, and change its output. Raises CallerError if it has not ended."""

        def add(connection: Connection) -> DurableJob:
            stored = _lock(connection, identifier)
            if not stored.job.has_ended:
                raise CallerError(f"the job is {stored.job.state}", path=identifier)
            if stored.job.output == output:  # the commit went unnoticed
                return stored.job
            self._add_entries(connection, stored, items)
            return self._change(connection, stored, entries=stored.job.entries + len(items), output=output)

        return await self.database.run(add)

    async def retry(self, identifier: str) -> DurableJob:
        """Create and queue a job with the same input and initial entries. Its parent is `JOB@0`. Raises CallerError."""
        return await self.fork(identifier, 0, memory={})

    async def fork(
        self,
        identifier: str,
        at_round: int,
        *,
        memory: dict[str, Any] | None = None,
        change: EntryChange | None = None,
        changes: Mapping[str, Any] = MappingProxyType({}),
    ) -> DurableJob:
        """Create and queue a job with the entries of the first rounds. Its parent is `JOB@ROUND`.

        Args:
            identifier: The job to fork.
            at_round: Number of rounds to copy. 0 copies only the initial entries.
            memory: Memory of the new job. The default is the memory of the forked job.
            change: An entry of the copy that differs.
            changes: Fields of the `JobTemplate` that differ.

        Raises:
            CallerError: There is no such job, it is a chat, or it has fewer rounds.
        """
        source = await self.get(identifier)
        if source.kind == CHAT:
            raise _refuse_chat(source.id)
        if not 0 <= at_round <= source.rounds:
            raise CallerError(f"the job has {source.rounds} rounds", path=f"{source.id}@{at_round}")
        now = self._clock()
        fields = {name: getattr(source, name) for name in JobTemplate.__struct_fields__}
        fields |= {"queue": find_worker_queue(source.queue), "memory": source.memory if memory is None else memory}
        fields |= changes
        parent = f"{source.id}@{at_round}"
        job = JobTemplate(**fields).make_job(new_identifier(now), now, parent=parent, rounds=at_round)

        def make(connection: Connection, job: DurableJob) -> DurableJob:
            key = queries.add_job(connection, job)
            source_key = queries.key_of(connection, source.id)
            count = queries.copy_entries(connection, source_key, key, at_round)
            if change is not None:
                count = queries.change_entry(connection, key, change)
            copy_tools(connection, source_key, key, count)
            connection.execute(update(jobs).where(jobs.c.key == key), {"entries": count})
            return replace(job, entries=count)

        return await self._add(job, make)

    async def remove(self, identifier: str) -> None:
        """Delete a job that has ended, and all of its rows. Raises CallerError if it has not ended."""
        job = await self.get(identifier)

        def remove(connection: Connection) -> None:
            stored = queries.lock_job(connection, job.id)
            if stored is None:
                return
            if not stored.job.has_ended:
                hint = f"callboard jobs cancel {job.id} ends it"
                raise CallerError(f"the job is {stored.job.state}", path=job.id, hint=hint)
            remove_tools(connection, stored.key)
            for table in PARTS:
                connection.execute(delete(table).where(table.c.job == stored.key))
            connection.execute(delete(jobs).where(jobs.c.key == stored.key))

        await self.database.run(remove)

    async def find_old(self, age: timedelta, queues: Collection[str] | None, limit: int) -> list[str]:
        """Return up to `limit` jobs of these queues, or of all, that ended longer ago than `age`, the oldest first."""
        has_ended = jobs.c.state.in_(sorted(END_STATES))
        query = select(jobs.c.id).where(has_ended, jobs.c.completed_at < to_microseconds(self._clock() - age))
        query = query if queues is None else query.where(jobs.c.queue.in_(sorted(queues)))
        query = query.order_by(jobs.c.completed_at, jobs.c.id).limit(limit)
        return await self.database.read(lambda connection: [*connection.scalars(query)])

    def mark_abandoned(self, some: Sequence[SomeJob]) -> list[SomeJob]:
        """Return the jobs with their true states: a running job without a lease is interrupted. Do not change the rows.

        If no worker runs, the row of a job whose worker died is "running" forever.
        """
        if not any(each.state == "running" for each in some):
            return list(some)
        query = select(segments.c.job).where(has_lease(self.database.engine.dialect.name))
        alive = self.database.read_blocking(lambda connection: set(connection.scalars(query)))
        return [
            replace(each, state="interrupted", reason=DEAD)
            if each.state == "running" and each.id not in alive
            else each
            for each in some
        ]

    async def end_abandoned(
        self,
        identifier: str,
        state: Literal["interrupted", "cancelled"] = "interrupted",
        reason: str = DEAD,
    ) -> DurableJob:
        """End a running job whose worker is dead. Do nothing to any other job. Return the job.

        A worker that was just killed still has its lease. So wait until the lease has expired or was renewed, which
        takes a few seconds at most.

        Raises:
            CallerError: The job does not exist.
        """
        first = 0
        while (job := await self.get(identifier)).state == "running":
            number, executor = job.segment, job.executor

            def take(connection: Connection, number: int = number, executor: str = executor) -> DurableJob | int:
                """End the job if nobody has its lease. Otherwise return the end of the lease."""
                lock_claims(connection)
                its = (segments.c.job == identifier, segments.c.segment == number)
                end = connection.scalar(select(segments.c.lease_until).where(*its, has_lease(connection.dialect.name)))
                if end is not None:
                    return int(end)
                connection.execute(delete(segments).where(*its))
                stored = _lock(connection, identifier)
                is_same = stored.job.segment == number and stored.job.executor == executor
                return (
                    self._end(connection, stored, state, reason) if is_same and not stored.job.has_ended else stored.job
                )

            end = await self.database.run(take)
            if isinstance(end, DurableJob):
                return end
            if first and end != first:
                return job
            first = end
            await asyncio.sleep(_LOOK_SECONDS)
        return job

    async def _add(self, job: DurableJob, make: Callable[[Connection, DurableJob], DurableJob]) -> DurableJob:
        """Add a job and queue its first segment, in one transaction."""

        def add(connection: Connection) -> DurableJob | None:
            stored = queries.lock_job(connection, job.id)
            if stored is None:
                added = make(connection, job)
                self._enqueue(connection, added, 0)
                return added
            # The job comes from this call, if its acknowledgement was lost, or from another in the same millisecond.
            return stored.job if stored.job.created_at == job.created_at else None

        added = await self.database.run(add)
        return added or await self._add(replace(job, id=new_identifier(job.created_at)), make)

    def _add_entries(self, connection: Connection, stored: StoredJob, items: Iterable[Item]) -> None:
        rows = queries.entry_rows(stored.key, stored.job.entries, stored.job.rounds, map(encode_entry, items))
        queries.add_rows(connection, entries, rows)

    def _go_on(self, connection: Connection, stored: StoredJob, **changes: Any) -> DurableJob:
        job = self._change(
            connection,
            stored,
            state="pending",
            reason="",
            waits_for="",
            error="",
            segment=stored.job.segment + 1,
            cancel_requested=False,
            completed_at=None,
            **changes,
        )
        self._enqueue(connection, job, 0)
        return job

    def _end(self, connection: Connection, stored: StoredJob, state: DurableState, reason: str) -> DurableJob:
        return self._change(connection, stored, state=state, reason=reason, waits_for="", completed_at=self._clock())

    def _change(self, connection: Connection, stored: StoredJob, **changes: Any) -> DurableJob:
        """Change a job from outside of its claim, and end the claim."""
        job = replace(stored.job, updated_at=self._clock(), **changes)
        queries.change_job(connection, stored, job, stored.fence + 1)
        return job


def _lock(connection: Connection, identifier: str) -> StoredJob:
    stored = queries.lock_job(connection, identifier)
    if stored is None:
        raise queries.no_such_job(identifier)
    return stored


def _trace_of_new_job(kind: str) -> Mapping[str, str]:
    """Return the trace for the input of a new job, nothing if telemetry is off."""
    if switch.recorder is None:
        return {}
    headers = current_headers()
    if not headers:
        with open_span(f"submit {kind}", "producer", {names.WORKFLOW_NAME: kind}) as span:
            headers = span.headers
    return {TRACE: headers[TRACE]} if TRACE in headers else {}


def _refuse_chat(identifier: str) -> CallerError:
    return CallerError("this is a chat", path=identifier, hint=f"callboard chat --resume {identifier}")


def _describe_earlier(job: DurableJob, pending: Approval, answers: Sequence[ApprovalAnswered]) -> str:
    """Return who answered first. `answers` are the answers to calls with this identifier."""
    described = answers[-1].describe() if answers else {"allow": "Allowed", "deny": "Denied"}[pending.verdict]
    ended = f"; the job has ended ({job.state})" if job.has_ended else ""
    return f"it was answered already: {described}{ended}"


def _check_answer(job: DurableJob, question: Approval | None, call_id: str, digest: str) -> Approval:
    """Return the question. Raises CallerError if the answer cannot be accepted."""
    path = f"{job.id}:{call_id}"
    if job.has_ended:
        raise CallerError(f"the job has ended ({job.state}), so nothing is asked any more", path=path)
    if question is None:
        raise CallerError("the job asks about no such call", path=path, hint=f"callboard jobs show {job.id} tells what")
    if job.state != "waiting":
        raise CallerError(f"the job is {job.state} and does not wait for an answer", path=path)
    if question.digest != digest:
        hint = f"look at it again: callboard jobs show {job.id}"
        raise CallerError("the call has changed since you reviewed it", path=path, hint=hint)
    return question

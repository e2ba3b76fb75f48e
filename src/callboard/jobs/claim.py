"""The claim of a job, through which its only runner writes.

Every write is one transaction, and checks the fence: a number that each new claim raises. A runner that was presumed
dead gets `Superseded` on its next write. It must stop at once, without another side effect.

Laws: a write is made once, even if its acknowledgement was lost, because the claim numbers the entries. Writes that
arrive during a transaction share the next transaction, so eight calls that end together cost two transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, Unpack

from msgspec.structs import replace
from sqlalchemy import Connection, delete

from callboard.core import AssistantCanister, InvocationCanister, ResultCanister, ToolDeclaration
from callboard.core.ports import Clock
from callboard.errors import CallboardError
from callboard.jobs import queries
from callboard.jobs.database import Database
from callboard.jobs.declared_tools import store_tools
from callboard.jobs.entries import Item, MeasuredReply, encode_entry
from callboard.jobs.job import END_STATES, Approval, CallIntent, Changes, DurableJob, DurableState, WaitsFor
from callboard.jobs.queries import StoredJob
from callboard.jobs.tables import entries, open_calls, to_row

Enqueue = Callable[[Connection, DurableJob, float], None]
"""Queues the present segment of a job in the transaction of the connection, to start after a delay in seconds."""


_PROGRESS = (AssistantCanister, InvocationCanister, ResultCanister, MeasuredReply)


class Superseded(CallboardError):
    """Another runner has claimed the job, or the job was ended. Stop without another side effect."""

    party = "runner"


class LeftToOthers(CallboardError):
    """The runner cannot run the job. Its row says so, and it waits for another runner."""

    party = "runner"


class _Write(NamedTuple):
    """One write of a batch, and the job after the write."""

    job: DurableJob
    comes_further: bool
    """True if a reply or a result is among its entries."""
    lines: list[dict[str, Any]]
    begins: list[dict[str, Any]]
    ends: str
    asks: tuple[Approval, ...]
    delay: float | None
    tools: tuple[int, Sequence[ToolDeclaration]] | None
    """Tools that the model sees from now on, and the number of entries before them."""
    written: asyncio.Future[None]


class Claim:
    """A claimed job, made by `DurableStore.claim`.

    `open_calls` are the calls that an earlier runner started and did not end. `answers` are the answered approvals and
    questions. The first reply or result sets the segment's failures to zero. So a segment is given up only if several
    runners in a row die without progress.
    """

    def __init__(
        self,
        database: Database,
        enqueue: Enqueue,
        stored: StoredJob,
        *,
        open_calls: Sequence[CallIntent] = (),
        answers: Sequence[Approval] = (),
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        self.open_calls = tuple(open_calls)
        self.answers = tuple(answers)
        self.database = database
        self._enqueue = enqueue
        self._stored = stored
        self._clock = clock
        self._next = stored.job
        """The job after all pending writes."""
        self.running: dict[str, str] = {}
        """Names of the calls that this runner is running, by their identifiers."""
        self._tools: Sequence[ToolDeclaration] = ()
        self._has_new_tools = False
        self._waiting: list[_Write] = []
        self._flushing: asyncio.Task[None] | None = None
        self._failure: CallboardError | None = None

    @property
    def job(self) -> DurableJob:
        """The job as of the last commit."""
        return self._stored.job

    async def append(self, items: Iterable[Item | MeasuredReply], **changes: Unpack[Changes]) -> None:
        """Commit entries and changes of the job. The entries belong to the round `rounds`, after the changes.

        Raises:
            Superseded: Another runner has the job. Nothing was written.
            DatabaseUnavailable: The database cannot be written.
        """
        await self._write(items, changes)

    def declare(self, tools: Sequence[ToolDeclaration]) -> None:
        """Store the tools of the next request with the next write, if they have changed."""
        if tools != self._tools:
            self._tools, self._has_new_tools = tools, True

    async def begin_calls(self, calls: Iterable[InvocationCanister]) -> None:
        """Commit the start of these calls, before their tools start. Raises as `append`."""
        calls = tuple(calls)
        self.running.update({each.identifier: each.name for each in calls})
        await self._write((), {}, begins=calls)

    async def end_call(self, result: ResultCanister, **changes: Unpack[Changes]) -> None:
        """Commit a call's result and its end in one transaction. Raises as `append`."""
        # The write is made even if its caller was cancelled.
        self.running.pop(result.invocation_id, None)
        await self._write((result,), changes, ends=result.invocation_id)

    async def wait(
        self,
        approvals: Iterable[Approval] = (),
        *,
        waits_for: WaitsFor = "approval",
        reason: str = "",
        delay: float | None = None,
    ) -> None:
        """End the segment. The job waits until all approvals and questions are answered, or for `delay` seconds.

        An approval replaces an earlier one for the same call, and its answer. Raises as `append`.
        """
        changes = {"state": "waiting", "waits_for": waits_for, "reason": reason}
        await self._write((), changes, asks=approvals, delay=delay)

    async def go_on(self) -> None:
        """End the segment and queue the next one, in one transaction. Raises as `append`."""
        await self._write((), {"state": "pending"}, delay=0)

    async def end(
        self,
        state: DurableState,
        reason: str = "",
        output: dict[str, Any] | None = None,
        *,
        error: str = "",
        **changes: Unpack[Changes],
    ) -> None:
        """End the job with one of the `END_STATES`. Raises as `append`."""
        if state not in END_STATES:
            raise ValueError(f"{state} is not an end state")
        ended = {"state": state, "reason": reason, "output": output, "error": error, "completed_at": self._clock()}
        await self._write((), {**changes, **ended})

    async def _write(
        self,
        items: Iterable[Item | MeasuredReply],
        changes: Mapping[str, Any],
        *,
        begins: Iterable[InvocationCanister] = (),
        ends: str = "",
        asks: Iterable[Approval] = (),
        delay: float | None = None,
    ) -> None:
        """Add a write to the next batch, and wait until it is committed. No write may follow a change of the state."""
        if self._failure is not None:
            raise self._failure
        if self._next.state != "running":
            raise Superseded("this runner has ended its segment", path=self.job.id)
        items = tuple(items)
        lines = [encode_entry(item) for item in items]
        before, key, now = self._next, self._stored.key, self._clock()
        begin = {"job": key, "begun_at": now, "segment": before.segment, "entries": before.entries}
        self._next = replace(
            before,
            entries=before.entries + len(lines),
            segment=before.segment + (delay is not None),
            updated_at=now,
            **changes,
        )
        written = asyncio.get_running_loop().create_future()
        self._waiting.append(
            _Write(
                self._next,
                any(isinstance(item, _PROGRESS) for item in items),
                queries.entry_rows(key, before.entries, self._next.rounds, lines),
                [to_row({**begin, "call_id": call.identifier, "name": call.name}) for call in begins],
                ends,
                tuple(asks),
                delay,
                (before.entries, self._tools) if self._has_new_tools else None,
                written,
            )
        )
        self._has_new_tools = False
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())
        await asyncio.shield(written)

    async def _flush(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                await self.database.run(partial(self._commit, batch))
            except CallboardError as error:
                self._failure = error
                for write in [*batch, *self._waiting]:
                    write.written.set_exception(error)
                    write.written.exception()  # retrieved here, because a cancelled caller never retrieves it
                self._waiting = []
                return
            failures = 0 if any(write.comes_further for write in batch) else self._stored.failures
            self._stored = self._stored._replace(job=batch[-1].job, failures=failures)
            for write in batch:
                write.written.set_result(None)

    def _commit(self, batch: Sequence[_Write], connection: Connection) -> None:
        key, last = self._stored.key, batch[-1].job
        if not queries.change_job(connection, self._stored, last, self._stored.fence):
            raise Superseded("another runner has the job, or it was ended", path=last.id)
        queries.add_rows(connection, entries, [row for write in batch for row in write.lines])
        queries.add_rows(connection, open_calls, [row for write in batch for row in write.begins])
        for write in batch:
            if write.tools is not None:
                store_tools(connection, key, *write.tools)
        if ends := [write.ends for write in batch if write.ends]:
            connection.execute(delete(open_calls).where(open_calls.c.job == key, open_calls.c.call_id.in_(ends)))
        queries.ask(connection, key, batch[-1].asks, last.updated_at)
        if self._stored.failures and any(write.comes_further for write in batch):
            queries.set_failures(connection, key, 0)
        if batch[-1].delay is not None:
            self._enqueue(connection, last, batch[-1].delay)

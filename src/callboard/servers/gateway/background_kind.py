"""The kind "response": a job is one reply of the gateway to a client that does not wait for it.

A segment is one exchange with the backends, and the gateway's own tools between its rounds. The reply's events are the
job's entries; where tools run here, so are the canisters of its rounds and the intents of its calls, as for any agent.

Laws: a reply whose end was written is not asked for again; one that was interrupted is asked for anew, from the last round
that came whole; a call of a tool that was begun is not begun a second time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import aclosing
from time import monotonic, time
from typing import Final

import msgspec
from msgspec.structs import replace

from callboard.core import ReplyEnded, ReplyFailed, RoundStarted, Usage
from callboard.errors import CallboardError
from callboard.jobs.database import DatabaseUnavailable
from callboard.jobs.job import CallIntent, Changes, DurableJob
from callboard.jobs.journal import JobJournal
from callboard.jobs.kinds import Completed, Failed, GoesOn, Outcome
from callboard.jobs.segment import JobSegment
from callboard.jobs.store import DurableStore
from callboard.servers.gateway.background_events import EventWriter
from callboard.servers.gateway.background_jobs import KIND, events_of
from callboard.servers.gateway.background_response import ResponseEncoding, read_input, to_stored
from callboard.servers.gateway.conversation_state import STORED_STATUSES, ConversationState
from callboard.servers.gateway.exchange import Exchange, ReplyJournal, ReplyRequest
from callboard.servers.gateway.frontends import frontends
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.metrics import Metrics
from callboard.servers.gateway.request_log import RequestLog
from callboard.servers.gateway.response_stream import refuse_loss, take_notes

log = logging.getLogger("callboard.gateway")

_ENDS: Final = (ReplyEnded, ReplyFailed)
_TOOLS_RAN: Final = "run"
"""What the journal of rounds has noted in the job's memory; it counts them itself."""


class ResponseKind:
    """Runs the jobs of background responses."""

    name = KIND

    def __init__(
        self,
        store: DurableStore,
        conversations: ConversationState,
        metrics: Metrics,
        find_log: Callable[[], RequestLog | None] = lambda: None,
    ) -> None:
        self._store = store
        self._conversations = conversations
        self._metrics = metrics
        self._find_log = find_log

    def find_obstacle(self, _job: DurableJob) -> str:
        """None: what it needs is there, for its queue is served by no other process."""
        return ""

    def find_model(self, _job: DurableJob) -> str:
        """None: a row of the kind says so."""
        return ""

    async def run(self, segment: JobSegment) -> Outcome:
        """Make the response, or keep the one that was made."""
        try:
            return await self._run(segment)
        except CallboardError:
            raise
        except Exception:
            log.exception("a background response could not be made")
            raise

    async def _run(self, segment: JobSegment) -> Outcome:
        events = events_of(await self._store.read_entries(segment.job.id))
        if not (events and isinstance(events[-1], _ENDS)):
            if not await self._make(segment):
                return GoesOn()
            events = events_of(await self._store.read_entries(segment.job.id))
        # As it will be: the row says so with the end of the segment.
        job = replace(segment.job, state="completed")
        body = ResponseEncoding(job).body(job, events)
        if body["status"] not in STORED_STATUSES:
            error = body["error"] or {}
            return Failed(str(error.get("code", "")), str(error.get("message", "")))
        if self._conversations.store is not None:
            try:
                await self._conversations.store.save_once(to_stored(job, body))
            except HttpError as error:
                raise DatabaseUnavailable(str(error)) from None
        return Completed({"status": body["status"]})

    async def describe_interruption(self, segment: JobSegment, call: CallIntent) -> str:
        """Nothing can be seen of what a tool of an ensemble did."""
        return ""

    async def _make(self, segment: JobSegment) -> bool:
        """Ask for the reply and write its events; False where the process stops between two rounds."""
        job_input = read_input(segment.job)
        writer = EventWriter(segment, is_streamed=job_input.is_streamed)
        journal = JobJournal(segment)
        began = monotonic()
        exchange: Exchange | None = None
        request_log = self._find_log()
        entry = None
        if request_log is not None:
            entry = request_log.begin("responses", "in the background", job_input.owner)
        self._metrics.begin_request()
        try:
            exchange = await self._exchange(segment)
            if entry is not None:
                entry.set_exchange(exchange)
            exchange.record.journal = ReplyJournal(journal, segment.conversation)
            if journal.progress is None:
                writer.add(RoundStarted(1))  # where there are events of an earlier attempt, they are void
            if not await _write_reply(exchange, segment, writer):
                return False
        except HttpError as error:
            if error.failure.code == "store_unavailable":
                raise DatabaseUnavailable(str(error)) from None
            if entry is not None:
                entry.failure = error.failure.code
            writer.add(error.failure)
        finally:
            writer.stop()
            if entry is not None:
                entry.finish(200, monotonic() - began)
            end, usage, backend, cost = "left", Usage(), "", None
            if exchange is not None:
                record = exchange.record
                backend, usage, cost = record.backend_name, record.usage, record.costs.total
                if record.end is not None:
                    end = "failed" if isinstance(record.end, ReplyFailed) else record.end.reason
            self._metrics.end_request("responses", backend, end, monotonic() - began, usage, cost=cost)
            log.info("background response by %s: %s, %d tokens in, %d out", backend, end, usage.input, usage.output)
        await writer.write(is_end=True, **_changes(segment, usage, cost))
        return True

    async def _exchange(self, segment: JobSegment) -> Exchange:
        job = segment.job
        job_input = read_input(job)
        request = ReplyRequest(
            front=frontends()["responses"],
            body=job_input.body,
            owner=job_input.owner,
            size=len(msgspec.json.encode(job_input.body)),
        )
        exchange = await self._conversations.exchange(request)
        refuse_loss(exchange)
        return exchange


async def _write_reply(exchange: Exchange, segment: JobSegment, writer: EventWriter) -> bool:
    """Whether the reply has come to its end; else the process stops, and a next segment goes on behind a round."""
    async with aclosing(exchange.batches()) as batches:
        async for batch in batches:
            for event in take_notes(exchange, batch):
                if isinstance(event, RoundStarted):
                    await writer.write()
                    if event.number > 1 and segment.should_leave(0):
                        return False
                writer.add(event)
            if exchange.record.end is not None:
                return True
    writer.add(ReplyFailed("provider", "cut", "the reply has no end"))
    return True


def _changes(segment: JobSegment, usage: Usage, cost: float | None) -> Changes:
    """What the job's row says of a reply that has ended; the journal counts the rounds of tools."""
    changes = Changes(memory={**segment.job.memory, "completed_at": int(time())})
    if _TOOLS_RAN not in segment.job.memory:
        changes |= Changes(rounds=1, usage=usage.counts(), cost=cost)
    return changes

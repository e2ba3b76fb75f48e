"""Handles of jobs: wait for a job, follow it, answer it, cancel it.

A handle does not run its job. It reads the store, and receives live events of jobs that run in this process.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final, Literal, NamedTuple

import msgspec

from callboard.agent import Agent
from callboard.configuration.ownership import find_user_name
from callboard.core import Event, Usage
from callboard.errors import NoOutput
from callboard.jobs.entries import Item
from callboard.jobs.job import Approval, DurableJob, JobSummary
from callboard.jobs.store import DurableStore
from callboard.jobs.streams import REPLY_PIECES, JobStreams

LOOK_SECONDS: Final = 0.25
"""Seconds between checks of a job that another process runs."""
AT_ONCE: Final = 200
"""Maximum entries of one read, so that a long job does not block the event loop or fill the memory."""


class JobEvent(NamedTuple):
    """An entry `item` with its `number` and its `round`, or a piece of the present reply with number 0."""

    number: int
    item: Item | Event
    round: int = 0


class JobLook(NamedTuple):
    """New events of a job, and its row. `is_whole` is True if all entries of the row were yielded."""

    job: JobSummary
    events: Sequence[JobEvent]
    is_whole: bool = False


class JobResult(msgspec.Struct, frozen=True):
    """The result of a job that ended in `state` after `rounds` replies, with its `usage` and `cost`.

    `text` is the text of its last reply. `why` is the reason for an incomplete job.
    """

    state: str
    text: str
    why: str
    rounds: int
    usage: Usage
    cost: float | None
    _agent: Agent[Any] | None = None

    @property
    def output(self) -> Any:
        """The text of a completed job, or a value if its agent is known and has an output type.

        Raises NoOutput if the job did not complete.
        """
        if self.state != "completed":
            raise NoOutput(self.state, self.why)
        return self.text if self._agent is None else self._agent.read_output(self.text)


class JobHandle:
    """One job, by its `identifier`. Any process with the same database can find it by its `id`.

    `store` and `streams` are the database and its live streams. `agent` makes the output.
    """

    def __init__(
        self, store: DurableStore, identifier: str, streams: JobStreams, agent: Agent[Any] | None = None
    ) -> None:
        self.id = identifier
        self._store = store
        self._streams = streams
        self._agent = agent

    def __repr__(self) -> str:
        return f"<JobHandle {self.id}>"

    async def read(self) -> DurableJob:
        """Return the job as it is now."""
        return await self._store.get(self.id)

    async def result(self) -> JobResult:
        """Return the result after the job has ended, even if it waits for a person.

        `asyncio.timeout` limits the wait.
        """
        with self._streams.subscribe(self.id, pieces=False) as news:
            while not (job := await self.read()).has_ended:
                await news.next(LOOK_SECONDS)
        output = job.output or {}
        return JobResult(
            job.state,
            str(output.get("text", "")),
            job.error or job.reason,
            job.rounds,
            Usage.from_counts(job.usage),
            job.cost,
            self._agent,
        )

    async def events(self, after: int = 0) -> AsyncGenerator[JobEvent]:
        """Yield the entries after number `after` as they are committed, until the job has ended.

        If this process runs the job, yield the pieces of a reply before its entries.
        """
        async with aclosing(follow_events(self._store, self._streams, self.id, after)) as looks:
            async for look in looks:
                for event in look.events:
                    yield event
                if look.is_whole and look.job.has_ended:
                    return

    async def approvals(self) -> Sequence[Approval]:
        """Return the open approvals and questions of the job."""
        return [each for each in await self._store.read_approvals(self.id) if not each.verdict]

    async def answer(
        self, call_id: str, verdict: Literal["allow", "deny"] = "allow", *, digest: str, by: str = "", **options: Any
    ) -> None:
        """Answer an approval or a question of the job.

        Args:
            call_id: The call.
            verdict: "allow" or "deny". To answer a question, use "allow" and a text.
            digest: The digest of the approval that you reviewed. If the call has changed since, the answer is refused.
            by: Name of the person who answers. The default is the user of this process.
            options: `reason`, `text` and `edited`, as of `DurableStore.answer`.

        Raises:
            CallerError: The answer cannot be accepted. The message has the reason.
        """
        await self._store.answer(self.id, call_id, verdict, digest=digest, by=by or find_user_name(), **options)

    async def cancel(self, reason: str = "cancelled") -> None:
        """End the job, its model call and its commands, on any host, with the `reason`.

        Do nothing if the job has ended.
        """
        await self._store.request_cancel(self.id, reason)


async def follow_events(
    store: DurableStore, streams: JobStreams, identifier: str, after: int
) -> AsyncGenerator[JobLook]:
    """Yield the entries of a job after number `after` as they are committed, and the pieces before them.

    Check at least every quarter of a second. Yield also if nothing is new, and until the caller stops.
    """
    with streams.subscribe(identifier) as news:
        number: int | None = None
        rounds: int | None = None
        while True:
            job = await store.read_summary(identifier)
            limit = AT_ONCE if number is None else min(number - after, AT_ONCE)
            entries = await store.read_entries(identifier, after, limit)
            if entries:
                after, rounds = entries[-1].number, entries[-1].round
            elif rounds is None:
                rounds = job.rounds
            news.drop(after)
            yield JobLook(job, [JobEvent(each.number, each.item, each.round) for each in entries], after >= job.entries)
            if len(entries) == AT_ONCE:
                continue
            number = None
            while isinstance(piece := await news.next(LOOK_SECONDS), Event):
                # The pieces of a reply belong to the round that its entries will start.
                yield JobLook(job, [JobEvent(0, piece, rounds + isinstance(piece, REPLY_PIECES))])
            if piece is not None and piece > after:
                number = piece

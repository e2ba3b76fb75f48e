"""Follow a job as the events of AG-UI, until it has ended or waits for a person."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from callboard.jobs.handle import follow_events
from callboard.jobs.job import DurableJob, JobSummary
from callboard.jobs.store import DurableStore
from callboard.jobs.streams import JobStreams
from callboard.servers.agui.encoder import AguiEncoder
from callboard.servers.agui.events import AguiEvent

_FOR_PEOPLE: Final = frozenset({"approval", "question"})
"""What a job waits for longer than a client stays."""


async def follow_job(
    store: DurableStore, streams: JobStreams, encoder: AguiEncoder, job: DurableJob, after: int
) -> AsyncGenerator[list[AguiEvent]]:
    """The events behind entry number `after`, as they are committed, and the pieces before them; nothing now and then.

    `job` is the row as it was before the run, so that what is used is the run's own.
    """
    yield [*encoder.start(), *encoder.feed(job)]
    async with aclosing(follow_events(store, streams, job.id, after)) as looks:
        async for look in looks:
            events = [event for each in look.events for event in encoder.feed(each)]
            if not (look.is_whole and is_at_rest(look.job)):
                yield events
                continue
            if look.job.state == "waiting":
                for each in await store.read_approvals(job.id):
                    if not each.verdict:
                        events += encoder.feed(each)
            yield [*events, *encoder.feed(look.job), *encoder.finish()]
            return


def is_at_rest(job: JobSummary) -> bool:
    """Whether nothing goes on with a job before somebody answers."""
    return job.has_ended or (job.state == "waiting" and job.waits_for in _FOR_PEOPLE)

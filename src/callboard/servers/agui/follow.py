"""Follow a job as the events of AG-UI, until it has ended or waits for a person."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from callboard.core import Event
from callboard.jobs.handle import LOOK_SECONDS, JobEvent
from callboard.jobs.job import DurableJob
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
    identifier = job.id
    with streams.subscribe(identifier) as news:
        yield [*encoder.start(), *encoder.feed(job)]
        number: int | None = None
        while True:
            row = await store.get(identifier)
            events: list[AguiEvent] = []
            for entry in await store.read_entries(identifier, after, *([number - after] if number else [])):
                after = entry.number
                events += encoder.feed(entry)
            news.drop(after)
            if is_at_rest(row) and after >= row.entries:
                if row.state == "waiting":
                    for each in await store.read_approvals(identifier):
                        if not each.verdict:
                            events += encoder.feed(each)
                yield [*events, *encoder.feed(row), *encoder.finish()]
                return
            yield events
            number = None
            while isinstance(piece := await news.next(LOOK_SECONDS), Event):
                yield encoder.feed(JobEvent(0, piece))
            if piece is not None and piece > after:
                number = piece


def is_at_rest(job: DurableJob) -> bool:
    """Whether nothing goes on with a job before somebody answers."""
    return job.has_ended or (job.state == "waiting" and job.waits_for in _FOR_PEOPLE)

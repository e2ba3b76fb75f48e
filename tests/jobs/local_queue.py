"""A queue in memory that runs segments in this process, instead of the engine."""

import asyncio
from collections import deque
from types import SimpleNamespace

from callboard.core import UserCanister
from callboard.jobs.agent_kind import KIND, AgentInput, AgentKind
from callboard.jobs.database import Database
from callboard.jobs.entries import read_conversation
from callboard.jobs.segment import SegmentRunner
from callboard.jobs.store import DurableStore
from callboard.jobs.streams import JobStreams


def new_watch(executor="here"):
    return SimpleNamespace(executor=executor, stopping=asyncio.Event(), cancel_requested=False)


class LocalQueue:
    """A store whose segments are run by `drain`."""

    def __init__(self, database: Database, agents, **clock):
        self.queued = deque()
        self.delays = []
        self.streams = JobStreams()
        self.store = DurableStore(database, self._enqueue, **clock)
        self.runner = SegmentRunner(self.store, [AgentKind(agents)], self.streams, **clock)

    def _enqueue(self, connection, job, delay):
        if (job.id, job.segment) not in self.queued:
            self.queued.append((job.id, job.segment))
            self.delays.append(delay)

    async def submit(self, prompt="Go.", *, history=(), **changes):
        asked = AgentInput(agent="test:agent", prompt=UserCanister(prompt), history_length=len(history), **changes)
        return await self.store.create(KIND, input=asked.to_json(), items=history)

    async def drain(self):
        """Run all queued segments, and the segments that they queue."""
        segments = 0
        while self.queued:
            await self.runner(*self.queued.popleft(), new_watch())
            segments += 1
        return segments


async def conversation_of(queue, job):
    """Return the conversation of a job for its next segment."""
    return read_conversation([each.item for each in await queue.store.read_entries(job.id)])

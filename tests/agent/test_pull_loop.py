"""How many generators an event passes between a connection and the `async for` of a user."""

import asyncio
import inspect
import sys
from types import SimpleNamespace

from tests.tables import table

from callboard import Agent, Limits
from callboard.core import TextPiece
from callboard.modes import make_plan
from callboard.profiles import resolve
from callboard.providers import FallbackModel, HttpModel

CHUNK = b'data: {"id": "1", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}\n\n'
END = b'data: {"id": "1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


def generators():
    """The generators that are resumed to get here: a frame is there for each of them while the next chunk is awaited."""
    frame, count = sys._getframe(), 0
    while frame is not None:
        count += bool(frame.f_code.co_flags & (inspect.CO_ASYNC_GENERATOR | inspect.CO_GENERATOR))
        frame = frame.f_back
    return count


class Response:
    """A `providers.transport.HttpResponse` that counts, for each chunk, the generators that wait for it."""

    status = 200
    content_type = "text/event-stream"
    idle_limit = SimpleNamespace(is_patient=False)

    def __init__(self, counts):
        self.headers = {}
        self._chunks = iter([CHUNK, CHUNK, END])
        self._counts = counts

    def close(self): ...

    async def next_chunk(self):
        await asyncio.sleep(0)
        self._counts.append(generators())
        return next(self._chunks, b"")


class Transport:
    def __init__(self, counts):
        self._counts = counts

    async def ask(self, method, url, **_):
        return Response(self._counts)

    async def aclose(self):
        pass


@table(("fallback", "seconds", "count"), [(False, None, 2), (True, None, 3), (False, 60, 2)])
async def test_an_event_passes_three_generators_at_most(fallback, seconds, count):
    counts = []
    resolution = resolve("gpt-4o", {"mode": "native"})
    model = HttpModel(resolution, make_plan(resolution), Transport(counts), base_url="http://stub")
    agent = Agent(FallbackModel([model, model]) if fallback else model, limits=Limits(seconds=seconds))

    events = [event async for event in agent.stream("go")]
    assert [event.text for event in events if isinstance(event, TextPiece)] == ["Hi", "Hi"]
    assert counts == [count] * 4

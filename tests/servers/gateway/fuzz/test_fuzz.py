"""Whatever is sent, and whatever the backend does: an error that the client understands, or exactly one end."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from callboard.testing import FakeBackend


@pytest.fixture(scope="module")
def running(serving):
    """A loop, and in it a gateway and the reply that its backend gives next."""
    stack, reply = AsyncExitStack(), ["Hello"]

    async def start():
        backend = await stack.enter_async_context(FakeBackend(lambda _: reply[0]))
        return await stack.enter_async_context(serving(backend, failure_threshold=1_000_000))

    with asyncio.Runner() as runner:
        yield runner, runner.run(start()), reply
        runner.run(stack.aclose())


@settings(max_examples=20 * settings.default.max_examples)
@given(st.integers(0, 2**64))
def test_any_request_is_answered(running, fuzz, number):
    runner, served, reply = running
    random = Random(number)
    front = random.choice(fuzz.fronts)
    body = fuzz.body(random, front)
    reply[0] = random.choice(fuzz.replies)
    note(f"{front}: {body!r}, answered with {reply[0]!r}")
    fuzz.forget(served)
    fuzz.judge(front, runner.run(served.post(front, body)))

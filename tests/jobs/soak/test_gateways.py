"""Several gateways on one store: background responses outlive each of them, and a client may ask any."""

# ruff: noqa: T201

import asyncio
import os
import signal
from pathlib import Path

import httpx2
import openai
import pytest
from tests.servers.gateway import conftest as gateway
from tests.servers.gateway.test_background import Process, end_of, sdk

from callboard.testing import FakeBackend

RESPONSES = 40
PATIENCE = 120

by_hand = gateway.by_hand


async def follow(client, identifier, **options):
    return [event async for event in await client.responses.retrieve(identifier, stream=True, **options)]


def test_a_gateway_takes_over_the_response_of_another_that_was_killed(ready_postgresql, by_hand, tmp_path):
    async def whole():
        async with (
            asyncio.timeout(PATIENCE),
            by_hand() as backend,
            Process(ready_postgresql, backend, tmp_path) as first,
            Process(ready_postgresql, backend, tmp_path) as second,
            sdk(first) as asking,
            sdk(second) as client,
        ):
            stream = await asking.responses.create(model="m", input="Hi", background=True, stream=True)
            request = await backend.asked.get()
            await request.say("Hello wor")
            seen = []
            async for event in stream:
                seen.append(event)
                if event.type == "response.output_text.delta":
                    break
            identifier, number = seen[0].response.id, seen[-1].sequence_number
            following = asyncio.create_task(follow(client, identifier))
            rest = asyncio.create_task(follow(client, identifier, starting_after=number))
            assert (await client.responses.retrieve(identifier)).status == "in_progress"
            await first.kill()
            request.over.set()
            request = await backend.asked.get()
            await request.say("Hello world")
            await request.end()
            events = await following
            assert [each.sequence_number for each in events] == list(range(len(events)))
            assert events[: number + 1] == seen
            assert await rest == events[number + 1 :]
            assert events[-1].response.output_text == "Hello world"
            assert (await client.responses.retrieve(identifier)).output_text == "Hello world"

    asyncio.run(whole())


def children_of(process):
    """The numbers of the processes that uvicorn has started, without what watches its resources."""
    numbers = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(each) for each in numbers if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()]


@pytest.mark.parametrize("kills", [0, 3])
def test_processes_of_one_gateway_share_the_background_responses(ready_url, tmp_path, kills):
    async def whole():
        async with (
            asyncio.timeout(PATIENCE),
            FakeBackend(lambda _: "Hello.") as backend,
            Process(ready_url, backend, tmp_path, "--workers", "3") as served,
        ):

            async def ask(number):
                # A connection of its own each, so that another process may answer.
                while True:
                    try:
                        async with sdk(served) as client:
                            asked = await client.responses.create(model="m", input=f"Hi {number}", background=True)
                        break
                    except openai.APIConnectionError:
                        continue
                while True:
                    try:
                        async with sdk(served) as client:
                            ended = await end_of(client, asked.id)
                        break
                    except (openai.APIError, httpx2.HTTPError):
                        await asyncio.sleep(0.1)
                assert (ended.id, ended.status, ended.output_text) == (asked.id, "completed", "Hello.")

            asking = [asyncio.create_task(ask(number)) for number in range(RESPONSES)]
            for _ in range(kills):
                await asyncio.sleep(1)
                os.kill(children_of(served.process)[0], signal.SIGKILL)
            await asyncio.gather(*asking)
        print(f"{RESPONSES} background responses, 3 processes of a gateway, {kills} killed: all completed")

    asyncio.run(whole())

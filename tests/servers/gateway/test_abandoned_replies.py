"""A client that gives up on a slow prompt and asks again continues the reply that is under way."""

import asyncio
from itertools import product

import aiohttp
import pytest
from tests.servers.gateway.fronts import FRONTS, ends_of, request, text_of

from callboard.servers.gateway import abandoned_replies
from callboard.servers.gateway.abandoned_replies import AbandonedReplies
from callboard.servers.gateway.auth import digest

KEYS = {"ann": digest("k" * 20), "bob": digest("l" * 20)}


@pytest.fixture
def kept(monkeypatch):
    """Any client that leaves has given up; the queue gets each reply that is kept for it."""
    kept = asyncio.Queue()
    keep = AbandonedReplies.keep

    def watched(self, *arguments):
        if is_kept := keep(self, *arguments):
            kept.put_nowait(self)
        return is_kept

    monkeypatch.setattr(abandoned_replies, "MIN_AGE", 0.0)
    monkeypatch.setattr(AbandonedReplies, "keep", watched)
    return kept


async def leave(served, backend, body, *, front="chat", until=b"", headers=None):
    """Asks, and leaves when the backend was asked; with `until`, after these bytes."""
    url, body = served.address(front, body)
    async with aiohttp.ClientSession() as client:
        asking = asyncio.ensure_future(client.post(url, json=body, headers=headers))
        asked = await backend.asked.get()
        if until:
            await asked.begin()
            await asked.say(until.decode())
            async with await asking as answer:
                await answer.content.readany()
        asking.cancel()
        (answer,) = await asyncio.gather(asking, return_exceptions=True)
        if isinstance(answer, aiohttp.ClientResponse):  # signs of life came
            answer.close()
    return asked


@pytest.mark.parametrize("way", [*product(FRONTS, (True, False))])
async def test_a_repeated_request_continues_the_reply(way, serving, by_hand, kept, logged):
    """One request reaches the backend, the log has one row, and the repeated request gets the whole answer."""
    front, stream = way
    body = request(front, stream=stream)
    async with by_hand() as backend, serving(backend, heartbeat=0.01, extend=logged) as served:
        asked = await leave(served, backend, body, front=front)
        await kept.get()
        again = asyncio.ensure_future(served.post(front, body))
        await asked.say("Hello")
        await asked.end()
        answer = await again
        assert (answer.status, text_of(front, answer), backend.asked.qsize()) == (200, "Hello", 0)
        assert not stream or ends_of(front, answer) == ["completed"]
        assert len(served.request_log) == 1


async def test_who_gives_up_again_and_again_gets_the_reply_at_last(serving, by_hand, kept):
    """As tale #3396 reports, each attempt began a prompt of 1,298 s from its start, and no one was there when a reply came."""
    body = request("messages", stream=True)
    async with by_hand() as backend, serving(backend, heartbeat=0.01, max_concurrent=1, keys=KEYS) as served:
        headers = {"x-api-key": "k" * 20}
        asked = await leave(served, backend, body, front="messages", headers=headers)
        for _ in range(3):
            await kept.get()
            url, _ = served.address("messages", body)
            async with served.client.post(url, json=body, headers=headers) as answer:
                assert b"ping" in await answer.content.readany()
        await kept.get()
        again = asyncio.ensure_future(served.post("messages", body, headers))
        await asked.say("Hello")
        await asked.end()
        assert text_of("messages", await again) == "Hello"


OTHERS = {
    "another body": (request("chat", "Ho", stream=True), "k"),
    "another key": (request("chat", stream=True), "l"),
    "another form": (request("chat", stream=False), "k"),
}


@pytest.mark.parametrize("other", OTHERS)
async def test_another_request_gets_its_own_reply(other, serving, by_hand, kept):
    body, key = OTHERS[other]
    async with by_hand() as backend, serving(backend, keys=KEYS) as served:
        await leave(served, backend, request("chat", stream=True), headers={"x-api-key": "k" * 20})
        await kept.get()
        second = asyncio.ensure_future(served.post("chat", body, {"x-api-key": key * 20}))
        asked = await backend.asked.get()
        await asked.say("Mine")
        await asked.end()
        assert text_of("chat", await second) == "Mine"


async def test_two_open_requests_never_share_a_reply(serving, by_hand):
    async with by_hand() as backend, serving(backend) as served:
        body = request("chat", stream=True)
        asking = [asyncio.ensure_future(served.post("chat", body)) for _ in range(2)]
        for text in ("one", "two"):
            asked = await backend.asked.get()
            await asked.say(text)
            await asked.end()
        assert sorted([text_of("chat", each) for each in await asyncio.gather(*asking)]) == ["one", "two"]


async def test_a_reply_that_nobody_takes_is_cancelled(serving, by_hand, kept, monkeypatch):
    monkeypatch.setattr(abandoned_replies, "KEEP_SECONDS", 0.0)
    async with by_hand() as backend, serving(backend) as served:
        asked = await leave(served, backend, request("chat", stream=True))
        await asked.left.wait()
        assert kept.qsize() == 1


@pytest.mark.parametrize("case", [(50.0, b""), (0.0, b"Hel")])
async def test_who_leaves_early_or_after_the_first_token_cancels_at_once(case, serving, by_hand, kept, monkeypatch):
    age, until = case
    monkeypatch.setattr(abandoned_replies, "MIN_AGE", age)
    async with by_hand() as backend, serving(backend) as served:
        asked = await leave(served, backend, request("chat", stream=True), until=until)
        await asked.left.wait()
        assert kept.empty()


async def test_a_failure_reaches_who_asks_again(serving, by_hand, kept):
    async with by_hand() as backend, serving(backend) as served:
        body = request("chat", stream=True)
        asked = await leave(served, backend, body)
        await kept.get()
        asked.answer.set_status(429)
        await asked.write(b'{"error": {"message": "slow down"}}')
        asked.over.set()
        answer = await served.post("chat", body)
        assert (answer.status, backend.asked.qsize()) == (429, 0)

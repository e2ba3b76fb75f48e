"""What a body costs before it is accepted."""

from __future__ import annotations

import asyncio
import io
import json
import tracemalloc
from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.servers.gateway.fronts import posted, request, row
from tests.tables import table

from callboard.servers.gateway import GatewayLimits, request_body
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.request_body import BudgetShare, ByteBudget, count_values, read_json
from callboard.testing import FakeBackend

SMALL = GatewayLimits(values=1000)
MANY = {
    "objects": b'{"model":"m","input":[' + b"{}," * 5000 + b"{}]}",
    "arrays": b'{"model":"m","input":[' + b"[]," * 5000 + b"[]]}",
    "numbers": b'{"model":"m","input":[' + b"0," * 5000 + b"0]}",
    "members": b'{"model":"m","input":{' + b",".join([b'"%d":0' % each for each in range(5000)]) + b"}}",
    "behind a text": b'{"model":"' + b'\\"[\\\\' * 5000 + b'","input":[' + b"0," * 5000 + b"0]}",
}
TEXTS = {
    "commas": "," * 5000,
    "brackets": "[{" * 5000,
    "quotation marks": '"' * 5000,
    "backslashes": "\\" * 4999 + ",[{",
    "code": 'print("a, b", [1, {2: "\\""}])\n' * 500,
}


def values(data):
    """What is counted: every array and object, and what follows a comma."""
    if isinstance(data, dict):
        return 1 + max(0, len(data) - 1) + sum([values(each) for each in data.values()])
    if isinstance(data, list):
        return 1 + max(0, len(data) - 1) + sum([values(each) for each in data])
    return 0


JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(st.sampled_from('a,[{"\\}]é\n')),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.sampled_from('a,[{"\\')), inner),
)


@given(JSON, st.integers(1, 9), st.booleans())
def test_values_are_counted_wherever_the_bytes_are_cut(data, step, escaped):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_body, "_STEP", step)
        text = json.dumps(data, ensure_ascii=escaped).encode()
        most = values(data)
        assert count_values(text, -1 if not most else most - 1) >= most
        assert (count_values(text, 0) > 0) == (most > 0)
        assert count_values(text, 10**9) >= most


async def test_a_body_of_too_many_values_is_refused_before_they_are_made(serving, monkeypatch):
    async with FakeBackend([]) as backend, serving(backend, limits=SMALL) as served:
        for front, kind in product(("responses", "chat", "messages"), MANY):
            with row(front, kind):
                monkeypatch.setattr(msgspec.json, "decode", None)
                answer = await served.post(front, MANY[kind])
                monkeypatch.undo()
                assert answer.status == 413
                assert "more than 1000 values" in answer.text


async def test_what_a_text_holds_is_no_value(serving):
    async with FakeBackend(lambda _: "Hello") as backend, serving(backend, limits=SMALL) as served:
        for front, kind in product(("responses", "chat", "messages"), TEXTS):
            with row(front, kind):
                answer = await served.post(front, request(front, TEXTS[kind]))
                assert answer.status == 200, answer
                assert posted(backend)[-1]["messages"][-1]["content"] == TEXTS[kind]


@pytest.mark.parametrize("front", ["responses", "chat", "messages"])
async def test_a_body_of_too_many_fields_is_refused(serving, front):
    async with FakeBackend(["Hello"]) as backend, serving(backend) as served:
        fields = {f"field{place}": 0 for place in range(300)}
        answer, asked = await served.post(front, {**request(front, "hi"), **fields}), backend.requests
    assert answer.status == 413
    assert not [each for each in asked if each.method == "POST"]


async def test_a_body_has_16_mib_unless_the_settings_say_otherwise(serving):
    async with FakeBackend(["Hello"] * 2) as backend, serving(backend) as served:
        begin, end = b'{"model":"m","input":"', b'"}'
        statuses = []
        for size in (16 * 2**20, 16 * 2**20 + 1):
            data = io.BytesIO(begin + b"x" * (size - len(begin) - len(end)) + end)
            statuses.append((await served.request("POST", served.url + "/responses", data=data)).status)
        outcome = statuses
    assert outcome == [200, 413]


@table("kind", ["objects", "members"])
async def test_the_memory_of_a_body_is_a_small_multiple_of_its_size(kind):
    data = MANY[kind].replace(b"m", b"m" * 2**20, 1)  # so large that it is read on a thread
    tracemalloc.start()
    try:
        with pytest.raises(HttpError):
            await read_json(data, SMALL)
        assert tracemalloc.get_traced_memory()[1] < len(data)
    finally:
        tracemalloc.stop()


def test_what_is_large_is_read_on_a_thread():
    async def scenario(size):
        turns = 0

        def count():
            nonlocal turns
            turns += 1
            loop.call_soon(count)

        loop = asyncio.get_running_loop()
        loop.call_soon(count)
        await read_json(msgspec.json.encode({"a": "x" * size}), GatewayLimits())
        return turns

    assert asyncio.run(scenario(10)) == 0
    assert asyncio.run(scenario(2**20)) > 0


# All clients together.


def test_what_was_taken_is_given_back_once():
    room = ByteBudget(100)
    with BudgetShare(room) as first, BudgetShare(room) as second:
        first.take(60)
        with pytest.raises(HttpError) as caught:
            second.take(41)
        assert (caught.value.status, caught.value.failure.code) == (503, "overloaded")
        second.take(40)
        assert room.used == 100
    assert room.used == 0


@pytest.mark.parametrize("front", ["responses", "chat", "messages"])
async def test_the_bytes_of_all_requests_have_one_bound(serving, by_hand, front):
    async with by_hand() as backend, serving(backend, limits=GatewayLimits(held=1500)) as served:
        asked = request(front, "hi") | {"metadata": {"a": "x" * 1000}}
        open_one = asyncio.ensure_future(served.post(front, asked))
        await backend.asked.get()
        assert served.gateway.request_budget.used >= 1000
        second = await served.post(front, asked)
        assert (second.status, second.headers["retry-after"]) == (503, "1")
        assert (await served.get("/ready")).status == 200
        open_one.cancel()
        await asyncio.gather(open_one, return_exceptions=True)
        while served.gateway.request_budget.used:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        third = asyncio.ensure_future(served.post(front, asked))
        each = await backend.asked.get()
        await each.say("Hello")
        await each.end()
        assert (await third).status == 200
        assert served.gateway.request_budget.used == 0


async def test_a_conversation_that_is_gone_on_from_is_held_as_well(serving, tmp_path):
    store = f"sqlite:///{tmp_path / 'replies.db'}"
    async with (
        FakeBackend(["Hello"] * 3) as backend,
        serving(backend, store=store, limits=GatewayLimits(held=3000)) as served,
    ):
        first = await served.post("responses", {"model": "m", "input": "x" * 2000})
        assert first.status == 200
        second = {"model": "m", "input": "y" * 500, "previous_response_id": first.body["id"]}
        assert (await served.post("responses", second)).status == 503
        assert served.gateway.request_budget.used == 0


async def test_messages_that_wait_on_sockets_are_held_as_well(serving, by_hand):
    async with (
        by_hand() as backend,
        serving(backend, limits=GatewayLimits(held=5000)) as served,
        served.client.ws_connect(served.url + "/responses") as socket,
    ):
        message = msgspec.json.encode({"type": "response.create", "model": "m", "input": "x" * 2000}).decode()
        await socket.send_str(message)
        await backend.asked.get()
        await socket.send_str(message)
        await socket.send_str(message)
        event = msgspec.json.decode((await socket.receive()).data)
        assert (event["type"], event["status"], event["error"]["code"]) == ("error", 503, "overloaded")
        await socket.close()
        while served.gateway.request_budget.used:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)

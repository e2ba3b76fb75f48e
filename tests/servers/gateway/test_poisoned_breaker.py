"""Requests that make a backend fail: they close it for nobody but who sends them."""

from __future__ import annotations

import pytest
from tests.servers.gateway.fronts import request

from callboard.core import ReplyStarted, TextPiece
from callboard.servers.gateway.auth import digest
from callboard.testing import Cut, FakeBackend, StatusReply

NAMES = ("ann", "bob", "eve")
KEYS = {name: digest(f"key-of-{name}-12345678") for name in NAMES}
ANN, BOB, EVE = ({"authorization": f"Bearer key-of-{name}-12345678"} for name in NAMES)
PIXEL = "iVBORw0KGgo="
PICTURE = {
    "responses": {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
    "chat": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    "messages": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
}
NO_EYES = "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"
POISONS = {
    "500": StatusReply(500, {"error": {"code": 500, "message": "no", "type": "server_error"}}),
    "500, plain text": StatusReply(500, "Internal Server Error"),
    "502": StatusReply(502),
    "503": StatusReply(503),
    "a connection that is dropped": Cut(),
}


def poisoned(fault):
    """A backend that fails where the word stands in what it is asked."""
    return lambda body: fault if "poison" in str(body) else "Hello"


def posts(backend):
    return len([each for each in backend.requests if each.method == "POST"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("poison", POISONS)
async def test_one_keys_failures_never_close_a_backend_for_another_key(serving, poison, stream):
    async with FakeBackend(poisoned(POISONS[poison])) as backend, serving(backend, keys=KEYS) as served:
        for number in range(12):
            body = {"model": "m", "messages": [{"role": "user", "content": f"poison {number}"}], "stream": stream}
            await served.post("chat", body, ANN)
        health = await served.get("/health")
        answer = await served.post("chat", request("chat", stream=stream), BOB)
    assert (answer.status, health.status) == (200, 200)


@pytest.mark.parametrize("front", ["responses", "chat", "messages"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_picture_for_a_model_without_eyes_is_the_clients_mistake(serving, front, stream):
    """llama.cpp answers 500, and a text is answered after as many of them as there are."""
    refusal = StatusReply(500, {"error": {"code": 500, "message": NO_EYES, "type": "server_error"}})
    async with (
        FakeBackend(lambda body: refusal if PIXEL in str(body) else "Hello") as backend,
        serving(backend) as served,
    ):
        message = {"role": "user", "content": [PICTURE[front]]}
        key = "input" if front == "responses" else "messages"
        body = request(front, stream=stream, **{key: [message]})
        answers = [await served.post(front, body) for _ in range(12)]
        answer, health = await served.post(front, request(front)), await served.get("/health")
    assert [each.status for each in answers] == [400] * 12
    assert "image input is not supported" in answers[0].text
    assert (answer.status, health.status) == (200, 200)
    assert health.body["circuit_breaker"]["consecutive_failures"] == 0


@pytest.mark.parametrize("front", ["responses", "chat", "messages"])
async def test_a_conversation_that_is_too_long_for_llama_cpp_has_openais_code(serving, front):
    error = {
        "code": 400,
        "message": "request (9 tokens) exceeds the available context size (8 tokens)",
        "type": "exceed_context_size_error",
    }
    async with FakeBackend([StatusReply(400, {"error": error})]) as backend, serving(backend) as served:
        answer = await served.post(front, request(front))
    assert answer.status == 400
    if front == "messages":
        assert answer.body["error"]["type"] == "invalid_request_error"
    else:
        assert answer.body["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize(("fault", "asked"), [("503", 5), ("502", 5), ("a connection that is dropped", 5), ("500", 10)])
@pytest.mark.parametrize("keys", [{}, {"ann": KEYS["ann"]}], ids=["no key", "one key"])
async def test_a_backend_that_is_dead_is_left_alone_though_one_client_alone_asks(serving, fault, asked, keys):
    async with FakeBackend(poisoned(POISONS[fault])) as backend, serving(backend, keys=keys) as served:
        body = {"model": "m", "messages": [{"role": "user", "content": "poison"}]}
        answers = [await served.post("chat", body, ANN) for _ in range(12)]
        posted, health = posts(backend), await served.get("/health")
    # A connection that is dropped before an answer is made once more; the kept one of the models' list does not count.
    assert posted == (1 + 2 * asked if "dropped" in fault else asked)
    codes = [answer.body["error"]["code"] for answer in answers]
    assert codes[asked:] == ["backend_unavailable_circuit_open"] * (12 - asked)
    assert "backend_unavailable_circuit_open" not in codes[:asked]
    assert (health.status, health.body["status"]) == (503, "unhealthy")


@pytest.mark.parametrize("front", ["responses", "chat", "messages"])
async def test_broken_streams_of_one_model_close_no_other_model(serving, front):
    def reply(body):
        return Cut([ReplyStarted(), TextPiece("Hel")]) if body["model"] == "broken" else "Hello"

    async with FakeBackend(reply) as backend, serving(backend) as served:
        ask = request(front, stream=True)
        broken = [await served.post(front, {**ask, "model": "broken"}) for _ in range(7)]
        posted = posts(backend)
        other = await served.post(front, {**ask, "model": "whole"})
        again = await served.post(front, {**ask, "model": "broken"})
        health, posted_at_last = await served.get("/health"), posts(backend)
    assert (posted, posted_at_last) == (5, 6)
    assert ["failed too often" in each.text for each in (*broken, again)] == [False] * 5 + [True] * 3
    assert (other.status, health.status) == (200, 200)
    assert "failed too often" not in other.text


async def test_a_backend_that_is_dead_for_several_keys_is_left_alone_by_all(serving):
    async with FakeBackend(lambda _: StatusReply(503)) as backend, serving(backend, keys=KEYS) as served:
        for key in (ANN, ANN, ANN, BOB, BOB):
            await served.post("chat", request("chat"), key)
        before = posts(backend)
        answer = await served.post("chat", request("chat"), EVE)
        after, health = posts(backend), await served.get("/health")
    assert (answer.status, answer.body["error"]["code"]) == (503, "backend_unavailable_circuit_open")
    assert (before, after, health.status) == (5, 5, 503)


async def test_a_reply_to_anybody_shows_that_a_backend_lives(serving):
    async with FakeBackend(poisoned(StatusReply(503))) as backend, serving(backend, keys=KEYS) as served:
        poison = {"model": "m", "messages": [{"role": "user", "content": "poison"}]}
        for _ in range(5):
            await served.post("chat", poison, ANN)
        refused = await served.post("chat", request("chat"), ANN)
        await served.post("chat", request("chat"), BOB)
        answer = await served.post("chat", request("chat"), ANN)
    assert (refused.status, answer.status) == (503, 200)

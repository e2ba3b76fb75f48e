"""Tokens are counted by the backend's own tokenizer, of the request as it would be sent, or estimated."""

import asyncio

import msgspec
import pytest
from aiohttp import web
from tests.servers.gateway.fronts import request

from callboard.testing import FakeBackend

TOOL = {"name": "f", "description": "Does it.", "input_schema": {"type": "object", "properties": {}}}
ASKED = {
    "model": "m",
    "system": "x-anthropic-billing-header: cch=1;\nBe brief.",
    "messages": [{"role": "user", "content": "Hello there"}],
    "tools": [TOOL],
}


class Tokenizing(FakeBackend):
    """A backend with more paths to POST to. A path has a function of the body; a str is sent as it is, None hangs."""

    def __init__(self, owner, paths, *, replies=(), window=0, models=("m",)):
        entry = {"object": "model", "created": 0, "owned_by": owner, **({"max_model_len": window} if window else {})}
        super().__init__(replies, pages={"/v1/models": {"data": [{"id": each, **entry} for each in models]}})
        self.paths = paths
        self.counted = []

    async def _serve(self, request):
        if (answer := self.paths.get(request.path)) is None:
            return await super()._serve(request)
        body = await request.json()
        self.counted.append((request.path, request.headers, body))
        answered = answer(body)
        if answered is None:
            await asyncio.Event().wait()
        if isinstance(answered, int):
            return web.Response(status=answered)
        data = answered.encode() if isinstance(answered, str) else msgspec.json.encode(answered)
        return web.Response(body=data, content_type="application/json")


def template(body):
    return {"prompt": "".join(f"<{each['role']}>{each['content']}" for each in body["messages"])}


def tokenize(body):
    assert body["add_special"]
    assert body["parse_special"]
    return {"tokens": body["content"].split()}


LLAMACPP = {"/apply-template": template, "/tokenize": tokenize}
ANTHROPIC = {"/v1/messages/count_tokens": lambda _: {"input_tokens": 728}}
WAYS = {
    "llama.cpp": ("chat", "llamacpp", LLAMACPP, 3, "exact"),
    "vLLM": ("chat", "vllm", {"/tokenize": lambda body: {"count": 10 * len(body["messages"])}}, 20, "exact"),
    "SGLang": (
        "chat",
        "sglang",
        {"/tokenize": lambda body: {"count": 77 if "Hello" in body["prompt"] else 0}},
        77,
        "estimated",
    ),
    "Anthropic": ("messages", "", ANTHROPIC, 728, "exact"),
    "OpenAI": ("responses", "", {"/v1/responses/input_tokens": lambda _: {"input_tokens": 31}}, 31, "exact"),
    "Google": (
        "gemini",
        "",
        {"/v1/models/m:countTokens": lambda body: {"totalTokens": len(body["generateContentRequest"]["contents"])}},
        1,
        "exact",
    ),
    "another": ("chat", "callboard", {}, None, "estimated"),
}


async def count(served, body=ASKED, **headers):
    answer = await served.post("/messages/count_tokens", body, headers)
    assert answer.status == 200, answer
    return answer.body["input_tokens"], answer.headers["x-callboard-tokens"]


@pytest.mark.parametrize("way", WAYS)
async def test_the_backend_counts(way, serving, behind):
    wire, owner, paths, tokens, how = WAYS[way]
    async with Tokenizing(owner, paths) as backend, serving(behind(backend, wire=wire)) as served:
        counted, header = await count(served)
        assert header == how
        assert counted == tokens or (tokens is None and 20 < counted < 80)
        assert "billing" not in str([body for *_, body in backend.counted])
        assert all(request.method == "GET" for request in backend.requests)


async def test_a_request_reaches_the_tokenizer_as_it_would_be_sent(serving, behind):
    """Tools that are written into the prompt count, and limits of the reply do not reach Anthropic's count."""
    async with (
        Tokenizing("llamacpp", LLAMACPP) as local,
        Tokenizing("", ANTHROPIC) as anthropic,
        serving(behind(local, mode="parsed")) as in_prompt,
        serving(behind(anthropic, wire="messages", key="theirs")) as served,
    ):
        assert (await count(in_prompt))[0] > 50
        await count(served, {**ASKED, "max_tokens": 9, "temperature": 1}, **{"anthropic-beta": "some-beta"})
    _, headers, body = anthropic.counted[0]
    assert (headers["x-api-key"], headers["anthropic-beta"]) == ("theirs", "some-beta")
    assert body.keys() == {"model", "system", "messages", "tools"}


@pytest.mark.parametrize(
    ("path", "body", "read"),
    [
        ("/v1/responses/input_tokens", {"model": "m", "input": "Hello there"}, lambda body: body["input_tokens"]),
        (
            "/v1beta/models/m:countTokens",
            {"contents": [{"role": "user", "parts": [{"text": "Hello there"}]}]},
            lambda body: body["totalTokens"],
        ),
    ],
)
async def test_each_front_answers_in_its_own_form(path, body, read, serving):
    async with Tokenizing("llamacpp", LLAMACPP) as backend, serving(backend) as served:
        answer = await served.request("POST", served.root + path, json=body)
    assert (read(answer.body), answer.headers["x-callboard-tokens"]) == (2, "exact")


async def test_a_picture_makes_a_count_of_text_an_estimate(serving):
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    body = {"model": "m", "messages": [{"role": "user", "content": [picture, {"type": "text", "text": "See"}]}]}
    paths = {"/tokenize": lambda _: {"count": 12}}
    async with Tokenizing("vllm", paths) as backend, serving(backend) as served:
        assert await count(served, body) == (12, "estimated")


LIES = {
    "hangs": lambda _: None,
    "fails": lambda _: 500,
    "is no JSON": lambda _: "<html>",
    "is a text": lambda _: {"count": "12"},
    "is negative": lambda _: {"count": -5},
    "is nothing": lambda _: {"count": 0},
    "is more than the request has": lambda _: {"count": 10**9},
    "has no end": lambda _: {"count": 10**30},
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_tokenizer_that_lies_is_left_for_a_while(lie, serving, monkeypatch):
    monkeypatch.setattr("callboard.providers.count_tokens.COUNT_SECONDS", 0.2)
    async with Tokenizing("vllm", {"/tokenize": LIES[lie]}) as backend, serving(backend) as served:
        for _ in range(2):
            counted, how = await count(served)
            assert how == "estimated"
            assert 20 < counted < 80
    assert len(backend.counted) == 1


async def test_a_request_that_is_refused_is_no_reason_to_leave_the_tokenizer(serving):
    paths = {"/tokenize": lambda body: 400 if "bad" in str(body) else {"count": 12}}
    async with Tokenizing("vllm", paths) as backend, serving(backend) as served:
        bad = {**ASKED, "messages": [{"role": "user", "content": "bad"}]}
        assert [(await count(served, each))[1] for each in (bad, ASKED)] == ["estimated", "exact"]


async def test_a_body_that_no_model_would_answer_is_estimated(serving):
    """A count is only asked for, so that it is answered where a reply would be refused."""
    async with Tokenizing("vllm", {"/tokenize": lambda _: {"count": 12}}) as backend, serving(backend) as served:
        assert (await count(served, {"model": "m", "messages": 7}))[1] == "estimated"
    assert backend.counted == []


# A request that cannot fit.

REFUSALS = {
    "chat": ("context_length_exceeded", "This model's maximum context length is 300 tokens. However, your messages resulted in 900 tokens."),
    "responses": ("context_length_exceeded", "This model's maximum context length is 300 tokens. However, your messages resulted in 900 tokens."),
    "messages": ("invalid_request_error", "prompt is too long: 900 tokens > 300 maximum"),
    "gemini": ("INVALID_ARGUMENT", "The input token count (900) exceeds the maximum number of tokens allowed (300)."),
}  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("front", REFUSALS)
async def test_a_request_that_cannot_fit_is_refused_with_both_numbers(front, stream, serving):
    code, words = REFUSALS[front]
    paths = {"/tokenize": lambda _: {"count": 900}}
    async with Tokenizing("vllm", paths, window=300) as backend, serving(backend) as served:
        answer = await served.post(front, request(front, "word " * 200, model="m", stream=stream))
        assert served.gateway.backends[0].breaker.failures == 0
    assert answer.status == 400
    error = answer.body["error"]
    assert error["message"].startswith(words)
    assert code in {error.get("code"), error.get("type"), error.get("status")}
    assert [each.path for each in backend.requests if each.method == "POST"] == []


@pytest.mark.parametrize(
    "case",
    [
        (300, 200, 300, True),
        (300, 10, 900, False),
        (0, 200, 900, False),
        (-300, 200, 900, False),
        (5, 200, 900, False),
        (10**18, 200, 900, False),
        ("300", 200, 900, False),
        (300, 5000, None, True),
    ],
    ids=str,
)
async def test_what_may_fit_is_sent(case, serving, monkeypatch):
    window, words, counted, asks = case
    monkeypatch.setattr("callboard.providers.count_tokens.COUNT_SECONDS", 0.2)
    paths = {"/tokenize": lambda _: None if counted is None else {"count": counted}}
    async with Tokenizing("vllm", paths, window=window, replies=["Well."]) as backend, serving(backend) as served:
        answer = await served.post("chat", request("chat", "word " * words, model="m"))
    assert (answer.status, bool(backend.counted)) == (200, asks)


async def test_a_text_that_no_tokenizer_could_write_in_the_window_is_refused_without_one(serving):
    async with Tokenizing("else", {}, window=300, replies=["Well."]) as backend, serving(backend) as served:
        for words, status in ((8_000, 400), (7_000, 200)):
            answer = await served.post("messages", request("messages", "word " * words, model="m"))
            assert answer.status == status
            if status == 400:
                assert "tokens > 300 maximum" in answer.body["error"]["message"]


async def test_a_backend_with_a_larger_window_is_asked_instead(serving, behind):
    paths = {"/tokenize": lambda _: {"count": 900}}
    async with (
        Tokenizing("vllm", paths, window=300) as small,
        Tokenizing("vllm", paths, window=3000, replies=["Well."]) as large,
        serving(behind(small, weight=1), behind(large, weight=0)) as served,
    ):
        answer = await served.post("chat", request("chat", "word " * 200, model="m"))
    assert answer.status == 200

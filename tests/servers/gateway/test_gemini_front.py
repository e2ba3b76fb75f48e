"""Gemini's front: what its URLs, keys and bodies mean, which no other front has."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from tests.servers.gateway.fronts import call_events, posted, reply

from callboard.core import ReasoningPiece, ReplyStarted, TextPiece, Usage
from callboard.servers.gateway.auth import digest
from callboard.testing import Cut, FakeBackend, StatusReply

HI = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
KEY = "sk-ann-123456789012345678"


@pytest.fixture
def ask(serving, behind):
    """What comes of one request to a path below the root, and what the backend was asked."""

    async def ask(path, body, replies=("Hello",), *, method="POST", headers=None, facts=None, **settings):
        async with (
            FakeBackend(list(replies)) as backend,
            serving(behind(backend, **facts or {}), **settings) as served,
        ):
            answer = await served.request(method, served.root + path, json=body, headers=headers)
            return answer, [each for each in backend.requests if each.method == "POST"]

    return ask


def text_of(body):
    return "".join([part["text"] for part in body["candidates"][0]["content"]["parts"]])


@pytest.mark.parametrize("version", ["v1beta", "v1"])
@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("models/m", "m"),
        ("models/meta-llama/llama-3.3-70b:free", "meta-llama/llama-3.3-70b:free"),
        ("models/meta-llama%2Fllama-3.3-70b%3Afree", "meta-llama/llama-3.3-70b:free"),
        ("models/hf.co/unsloth/Qwen3-GGUF:Q4_K_M", "hf.co/unsloth/Qwen3-GGUF:Q4_K_M"),
        ("models/models/one.gguf", "models/one.gguf"),
        ("tunedModels/mine", "tunedModels/mine"),
    ],
)
async def test_the_model_is_the_one_that_the_url_names(ask, version, path, model):
    answer, (asked,) = await ask(f"/{version}/{path}:generateContent", {**HI, "model": "another"})
    assert (answer.status, text_of(answer.body), asked.body["model"]) == (200, "Hello", model)
    assert answer.body["modelVersion"] == model


@pytest.mark.parametrize("path", ["..", "../x", "a%3Fkey=1", "a%23b", "a%0Ab", "%2e%2e/admin", "%20"])
async def test_a_url_s_name_cannot_lead_elsewhere(serving, behind, path):
    """As a client that spells the path itself would send it."""
    async with FakeBackend([]) as backend, serving(behind(backend, wire="gemini", key=KEY)) as served:
        reader, writer = await asyncio.open_connection(*served.root.removeprefix("http://").split(":"))
        data = json.dumps(HI).encode()
        head = f"POST /v1beta/models/{path}:generateContent HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
        writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        answer = await reader.read()
        writer.close()
        asked = [each for each in backend.requests if each.method == "POST"]
    assert (answer.split()[1] in {b"400", b"404"}, asked) == (True, [])


# How a reply is streamed.

LONG = reply(TextPiece('a"]},'), TextPiece("b"), Usage(3, 2))


@pytest.mark.parametrize("query", ["", "?alt=json", "?$alt=json"])
async def test_a_stream_without_alt_is_a_json_array(ask, query):
    answer, _ = await ask(f"/v1beta/models/m:streamGenerateContent{query}", HI, [LONG])
    assert answer.headers["content-type"] == "application/json"
    chunks = answer.body
    assert "".join(map(text_of, chunks)) == 'a"]},b'
    assert len(chunks) > 2
    assert [each["candidates"][0].get("finishReason") for each in chunks][-2:] == [None, "STOP"]
    assert chunks[-1]["usageMetadata"]["totalTokenCount"] == 5


@pytest.mark.parametrize("query", ["?alt=sse", "?%24alt=sse", "?key=k&alt=sse"])
async def test_a_stream_with_alt_is_events(ask, query):
    answer, _ = await ask(f"/v1beta/models/m:streamGenerateContent{query}", HI, [LONG])
    assert "".join(map(text_of, answer.events)) == 'a"]},b'


async def test_an_array_that_breaks_off_ends_with_an_error(ask):
    answer, _ = await ask("/v1beta/models/m:streamGenerateContent", HI, [Cut([ReplyStarted(), TextPiece("Hel")])])
    *begun, last = answer.body
    assert ("".join(map(text_of, begun)), last["error"]["code"]) == ("Hel", 500)


async def test_an_array_says_nothing_where_a_reply_takes_its_time(serving, by_hand):
    async with (
        by_hand() as backend,
        serving(backend, heartbeat=0.01) as served,
        served.client.post(f"{served.root}/v1beta/models/m:streamGenerateContent", json=HI) as answer,
    ):
        asked = await backend.asked.get()
        data = await answer.content.readexactly(3)
        await asked.say("Hello")
        while b"Hello" not in data:
            data += await answer.content.readany()
        data += await answer.content.readexactly(2)
        await asked.write(b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n')
        await asked.end()
        data = data + await answer.read()
    assert data.startswith(b"\n\n\n")
    assert "".join(map(text_of, json.loads(data))) == "Hello"


# Keys.


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("", {"x-goog-api-key": KEY}),
        ("", {"authorization": f"Bearer {KEY}"}),
        (f"?key={KEY}", {}),
        (f"?alt=sse&key={KEY}", {}),
        ("?key=another", {"x-goog-api-key": KEY}),
    ],
)
@pytest.mark.parametrize("method", ["generateContent", "streamGenerateContent", "countTokens"])
async def test_a_key_may_stand_where_google_s_clients_put_it(ask, query, headers, method):
    path = f"/v1beta/models/m:{method}{query}"
    answer, asked = await ask(path, HI, headers=headers, keys={"ann": digest(KEY)})
    assert answer.status == 200, answer
    assert [each.headers.get("authorization") for each in asked] == [None] * len(asked)
    refused, _ = await ask(path.replace(KEY, "x"), HI, headers=dict.fromkeys(headers, "x"), keys={"ann": digest(KEY)})
    assert (refused.status, refused.body["error"]["status"]) == (401, "UNAUTHENTICATED")


@pytest.mark.parametrize("path", ["/v1beta/models", "/v1/models", "/v1beta/models/fake-model"])
async def test_models_are_listed_to_a_key_in_the_url(ask, path):
    assert (await ask(path, None, method="GET", keys={"ann": digest(KEY)}))[0].status == 401
    assert (await ask(f"{path}?key={KEY}", None, method="GET", keys={"ann": digest(KEY)}))[0].status == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/metrics", "/v1/responses"])
async def test_no_other_path_takes_a_key_from_its_url(ask, path):
    method = "GET" if path == "/metrics" else "POST"
    answer, _ = await ask(f"{path}?key={KEY}", {}, method=method, keys={"ann": digest(KEY)})
    assert answer.status == 401


async def test_a_key_in_a_url_is_nowhere_else(ask, caplog):
    caplog.set_level("DEBUG", logger="callboard")
    replies = [StatusReply(401, {"error": {"message": f"no key {KEY}"}})]
    answer, (asked,) = await ask(f"/v1beta/models/m:generateContent?key={KEY}", HI, replies, facts={"wire": "gemini"})
    assert (answer.status, asked.headers["x-goog-api-key"]) == (401, KEY)
    refused, _ = await ask(f"/v1beta/nothing?key={KEY}", HI, [])
    assert KEY not in caplog.text + refused.text
    assert f"{KEY[:6]}...{KEY[-4:]}" in caplog.text


# What is asked.

CALL = reply(
    ReasoningPiece("hm", "seal", "m"),
    *call_events("look", '{"at":1}', 0, identifier="call_a"),
    *call_events("look", '{"at":2}', 1, identifier="call_b"),
    Usage(11, 7, 3, 2),
)
LOOK = {
    "name": "look",
    "description": "Look",
    "parameters": {"type": "OBJECT", "properties": {"at": {"type": "INTEGER"}}},
}


@pytest.mark.parametrize("has_ids", [True, False], ids=["with ids", "without ids"])
async def test_two_calls_at_once_come_back_with_their_results(serving, has_ids):
    def result(call, value):
        given = {"name": "look", "response": {"output": value}}
        return {"functionResponse": {"id": call["id"], **given} if has_ids else given}

    async with FakeBackend([CALL, "Done."]) as backend, serving(backend) as served:
        asking = {**HI, "tools": {"functionDeclarations": LOOK}}
        first = await served.post("gemini", asking)
        content = first.body["candidates"][0]["content"]
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        if not has_ids:
            for call in calls:
                del call["id"]
        results = [result(call, value) for call, value in zip(calls, ("one", "two"), strict=True)]
        more = [content, {"role": "user", "parts": results}]
        second = await served.post("gemini", {**asking, "contents": [*HI["contents"], *more]})
        first, second, (asked, again) = first.body, second.body, posted(backend)
    assert first["usageMetadata"] == {
        "promptTokenCount": 11,
        "candidatesTokenCount": 5,
        "totalTokenCount": 18,
        "cachedContentTokenCount": 3,
        "thoughtsTokenCount": 2,
    }
    assert first["candidates"][0]["finishReason"] == "STOP"
    assert asked["tools"][0]["function"]["parameters"]["properties"] == {"at": {"type": "integer"}}
    *_, called, one, two = again["messages"]
    assert [json.loads(each["function"]["arguments"]) for each in called["tool_calls"]] == [{"at": 1}, {"at": 2}]
    assert [each["id"] for each in called["tool_calls"]] == [one["tool_call_id"], two["tool_call_id"]]
    assert (one["content"], two["content"], text_of(second)) == ("one", "two", "Done.")


async def test_a_body_of_google_s_own_examples_is_read(ask):
    """Names in snake case, one object where a list may stand, and a picture in the alphabet of URLs."""
    picture, plain = (encode(b"\xfb\xff").decode() for encode in (base64.urlsafe_b64encode, base64.b64encode))
    body = {
        "system_instruction": {"parts": {"text": "You are a cat."}},
        "contents": {"parts": [{"text": "What?"}, {"inline_data": {"mime_type": "image/png", "data": picture}}]},
        "tools": {"function_declarations": [{"name": "look", "parametersJsonSchema": {"type": "object"}}]},
        "tool_config": {"function_calling_config": {"mode": "any", "allowed_function_names": ["look"]}},
        "generation_config": {"max_output_tokens": 50, "stop_sequences": ["x"], "response_mime_type": "text/plain"},
        "safety_settings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
    }
    answer, (asked, *_) = await ask("/v1beta/models/m:generateContent", body)
    system, user = asked.body["messages"]
    assert system["content"] == "You are a cat."
    assert [part["type"] for part in user["content"]] == ["text", "image_url"]
    assert user["content"][1]["image_url"]["url"] == f"data:image/png;base64,{plain}"
    assert asked.body["tool_choice"] == {"type": "function", "function": {"name": "look"}}
    assert (asked.body["stop"], answer.headers["x-callboard-dropped"]) == (["x"], "safetySettings")


async def test_a_validated_choice_leaves_the_tools_that_it_names(ask):
    tools = [{"functionDeclarations": [LOOK, {**LOOK, "name": "listen"}]}]
    config = {"functionCallingConfig": {"mode": "VALIDATED", "allowedFunctionNames": ["look"]}}
    _, (asked,) = await ask("/v1beta/models/m:generateContent", {**HI, "tools": tools, "toolConfig": config})
    assert [each["function"]["name"] for each in asked.body["tools"]] == ["look"]
    assert asked.body.get("tool_choice", "auto") == "auto"


@pytest.mark.parametrize("field", ["responseSchema", "responseJsonSchema"])
async def test_a_schema_of_the_reply_reaches_the_backend(ask, field):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    config = {"responseMimeType": "application/json", field: schema}
    answer, (asked,) = await ask("/v1beta/models/m:generateContent", {**HI, "generationConfig": config}, ['{"a":1}'])
    assert json.loads(text_of(answer.body)) == {"a": 1}
    assert asked.body["response_format"]["json_schema"]["schema"]["properties"] == schema["properties"]


async def test_more_than_one_candidate_is_refused(ask):
    answer, asked = await ask("/v1beta/models/m:generateContent", {**HI, "generationConfig": {"candidateCount": 2}})
    assert (answer.status, answer.body["error"]["status"], asked) == (400, "INVALID_ARGUMENT", [])
    assert "candidateCount" in answer.body["error"]["message"]


# What else is asked.


@pytest.mark.parametrize(
    "body",
    [
        {"contents": [{"parts": [{"text": "x" * 400}]}]},
        {"generateContentRequest": {"model": "models/m", "contents": [{"parts": [{"text": "x" * 400}]}]}},
    ],
)
async def test_tokens_are_counted(ask, body):
    answer, _ = await ask("/v1beta/models/m:countTokens", body)
    assert (answer.status, answer.headers["x-callboard-tokens"]) == (200, "estimated")
    assert 100 <= answer.body["totalTokens"] <= 120


async def test_a_picture_is_not_counted_as_text(ask):
    """Gemini CLI counts what has pictures, and sends nothing that would not fit."""
    data = base64.b64encode(bytes(300_000)).decode()
    parts = [{"text": "See"}, {"inlineData": {"mimeType": "image/png", "data": data}}]
    answer, _ = await ask("/v1beta/models/m:countTokens", {"contents": [{"parts": parts}]})
    assert 900 < answer.body["totalTokens"] < 1500


async def test_models_are_named_in_google_s_form(serving):
    async with FakeBackend([], models=["a", "org/b:free"]) as backend, serving(backend) as served:
        paths = ["/v1beta/models", "/v1beta/models/org/b:free", "/v1beta/models/models/a", "/v1beta/models/c"]
        listed, one, unknown, other = [await served.get(path) for path in paths]
    assert [each["name"] for each in listed.body["models"]] == ["models/a", "models/org/b:free"]
    assert one.body == listed.body["models"][1]
    assert "generateContent" in one.body["supportedGenerationMethods"]
    assert [unknown.status, other.status] == [404, 404]
    assert (other.body["error"]["code"], other.body["error"]["status"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize("path", ["/v1beta/models/m:embedContent", "/v1beta/files", "/v1beta/models/m"])
async def test_what_is_not_there_is_refused_in_google_s_form(ask, path):
    answer, _ = await ask(path, HI)
    assert answer.status in {404, 405}
    assert answer.body["error"]["code"] == answer.status

"""Names of models that a client chooses: none leads the operator's key to another place of the backend."""

from __future__ import annotations

import time
from itertools import product

import msgspec
import pytest
from tests.servers.gateway.fronts import FRONTS, request, row

from callboard.testing import FakeBackend, StatusReply

KEY = "AIza-upstream-key-0123456789"
HOSTILE = [
    "../../admin", "gemini-2.5-flash/../../../v1/files#", "gemini-2.5-flash/../gemini-2.5-pro", "x:deleteModel?y=",
    "a?key=1", "a#b", "a%2e%2e", "%2e%2e/admin", "..", "a\\..\\b", "a\nb", "a\rb", "a\x00b", "a\x1b[2J", "a\u2028b",
    "\uff0e\uff0e/admin", "a&b", "a;b", "m" * 501,
]  # fmt: skip
GEMINIS = ["gemini-2.5-flash/files", "x:deleteModel", "/admin", "files/x", "models/a/b", "models/.", "."]
"""Names that other wires have, or that are not seen to be none before the wire is known."""
PATHS = {
    "/responses/compact": "responses",
    "/messages/count_tokens": "messages",
    "/responses/input_tokens": "responses",
    **{front: front for front in FRONTS},
}
"""The fronts whose bodies are posted there."""


def posts(backend):
    return [request.path for request in backend.requests if request.method == "POST"]


def refused(answer):
    error = answer.body["error"]
    if answer.status == 404:  # a line break in a URL is in no path
        return error["status"] == "NOT_FOUND"
    return answer.status == 400 and "model" in error["message"] and error.get("param", "model") == "model"


@pytest.mark.parametrize("wire", ["gemini", "chat", "responses", "messages"])
@pytest.mark.parametrize("models", [("*",), ("gemini-2.5-flash*",)])
async def test_a_models_name_cannot_lead_out_of_the_backends_path(serving, behind, wire, models):
    async with FakeBackend([]) as backend, serving(behind(backend, wire=wire, key=KEY, models=models)) as served:
        for path, name, stream in product(PATHS, HOSTILE, (False, True)):
            with row(path, name, stream):
                answer = await served.post(path, request(PATHS[path], model=name, stream=stream))
                assert refused(answer), answer
                assert len(answer.data) < 1000
        assert posts(backend) == []


@pytest.mark.parametrize("stream", [False, True])
async def test_a_name_that_is_no_gemini_models_is_not_sent_there(serving, behind, stream):
    async with FakeBackend([]) as backend, serving(behind(backend, wire="gemini", key=KEY)) as served:
        answers = [await served.post("chat", request("chat", model=n, stream=stream)) for n in GEMINIS]
        asked = posts(backend)
    assert asked == []
    assert [answer.status for answer in answers] == [400] * len(GEMINIS)


async def test_a_pattern_covers_no_name_with_a_slash_of_its_own(serving, behind):
    async with (
        FakeBackend([]) as backend,
        serving(behind(backend, wire="gemini", key=KEY, models=("gemini-2.5-flash*",))) as served,
    ):
        answer, asked = await served.post("chat", request("chat", model="gemini-2.5-flash/files")), posts(backend)
    assert (answer.status, answer.body["error"]["code"], asked) == (404, "model_not_found", [])


@pytest.mark.parametrize(
    ("wire", "name", "path"),
    [
        ("gemini", "gemini-2.5-flash", "/v1/models/gemini-2.5-flash:generateContent"),
        ("gemini", "models/gemini-2.5-flash", "/v1/models/gemini-2.5-flash:generateContent"),
        ("gemini", "tunedModels/mine", "/v1/tunedModels/mine:generateContent"),
        ("chat", "meta-llama/llama-3.3-70b:free", "/v1/chat/completions"),
        ("chat", "/models/Qwen2.5 Coder (Q4).gguf", "/v1/chat/completions"),
        ("chat", "claude-sonnet-4-5[1m]", "/v1/chat/completions"),
        ("chat", "publishers/x/models/claude@20250929", "/v1/chat/completions"),
        ("chat", "通义千问-7b", "/v1/chat/completions"),
    ],
)
async def test_names_that_models_have_are_passed_on(serving, behind, wire, name, path):
    async with FakeBackend(["Hello"]) as backend, serving(behind(backend, wire=wire)) as served:
        answer, asked = await served.post("chat", request("chat", model=name)), posts(backend)
    assert (answer.status, asked) == (200, [path])


async def test_the_operators_map_may_have_any_name(serving, behind):
    async with FakeBackend(["Hello"]) as backend, serving(behind(backend, model_map={"../m?": "qwen"})) as served:
        answer = await served.post("chat", request("chat", model="../m?"))
        asked = [request.body["model"] for request in backend.requests if request.method == "POST"]
    assert (answer.status, asked) == (200, ["qwen"])


async def test_a_websocket_refuses_the_same_names(serving, behind):
    async with FakeBackend([]) as backend, serving(behind(backend, wire="gemini", key=KEY)) as served:
        async with served.client.ws_connect(f"{served.url}/responses") as socket:
            await socket.send_json({"type": "response.create", "input": "Hi", "model": "../../admin"})
            said = msgspec.json.decode((await socket.receive()).data)
        asked = posts(backend)
    assert (said["type"], said["status"], asked) == ("error", 400, [])


async def test_names_that_cannot_be_asked_for_are_not_listed(serving):
    async with FakeBackend([], models=["good", "../bad", "a?b"]) as backend, serving(backend) as served:
        outcome = await served.get("/v1/models")
    assert [each["id"] for each in outcome.body["data"]] == ["good"]


MADE = {
    "data": [{"id": "old", "created": 1700000000}, {"id": "new", "created_at": "2026-01-02T00:00:00Z"}, {"id": "m"}]
}


@pytest.mark.parametrize("wire", ["chat", "messages"])
async def test_models_have_the_date_that_the_backend_says_or_that_of_the_start(serving, behind, wire):
    before = int(time.time())
    async with FakeBackend([], pages={"/v1/models": MADE}) as backend:
        settings = behind(backend, wire=wire, url=backend.url)
        async with serving(settings) as served:
            asked = [await served.get("/v1/models"), await served.get("/v1/models/m")]
            listed, one, theirs = [*asked, await served.get("/v1/models", **{"anthropic-version": "2023-06-01"})]
    created = {each["id"]: each["created"] for each in listed.body["data"]}
    assert (created["old"], created["new"]) == (1700000000, 1767312000)
    assert before <= created["m"] == one.body["created"] <= time.time()
    assert [each["created_at"] for each in theirs.body["data"]][:2] == ["2023-11-14T22:13:20Z", "2026-01-02T00:00:00Z"]


async def test_the_log_of_a_404_has_the_url(serving, behind, caplog):
    async with FakeBackend([StatusReply(404)]) as backend:
        settings = behind(backend, url=backend.url.replace("//", "//user:secret@") + "/v2")
        async with serving(settings) as served:
            answer, url = await served.post("chat", request("chat")), backend.url
    assert answer.status == 404
    lines = [each.getMessage() for each in caplog.records]
    assert any(f"{url}/v2/chat/completions answered 404" in line for line in lines), lines
    assert not any("secret" in line for line in lines)


async def test_models_have_the_context_window_that_the_backend_or_a_profile_says(serving, behind):
    sizes = [{"max_model_len": 32768}, {"context_length": 4096}, {"max_model_len": "x", "context_window": -1}, {}]
    data = [{"id": name, **size} for name, size in zip("abcd", sizes, strict=True)]
    async with FakeBackend([], pages={"/v1/models": {"data": data}}) as backend:
        async with serving(backend) as served:
            listed = (await served.get("/v1/models")).body["data"]
            gemini = (await served.get("/v1beta/models")).body["models"]
        async with serving(behind(backend, profile={"context_tokens": 1000})) as served:
            known = (await served.get("/v1/models/a")).body
    assert [each.get("context_length") for each in listed] == [32768, 4096, None, None]
    assert [each.get("inputTokenLimit") for each in gemini] == [32768, 4096, None, None]
    assert known["context_length"] == 1000

"""To whom a client's own key is passed on: to no backend that was not meant."""

from __future__ import annotations

import pytest
from aiohttp import web
from tests.tables import table

from callboard.errors import CallerError
from callboard.servers.gateway import BackendSettings
from callboard.servers.gateway.auth import digest
from callboard.servers.gateway.configuration import load_gateway_settings
from callboard.testing import FakeBackend, StatusReply

ANN, BOB = "sk-ann-for-one-provider", "sk-bob-for-one-provider"
ASK = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hi"}]}


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def saw(backend, key):
    """The requests that had the key in them, anywhere."""
    return [each for each in backend.requests if key in f"{dict(each.headers)}{each.body}{each.path}"]


class ByKey:
    """A backend whose list of models is another for each key."""

    def __init__(self, models):
        self._models = models

    async def __aenter__(self):
        app = web.Application()
        app.router.add_get("/v1/models", self._list)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _list(self, request):
        names = self._models.get(request.headers.get("authorization", "").removeprefix("Bearer "))
        return web.json_response({"data": [{"id": name} for name in names or ()]}, status=200 if names else 401)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("front", "wire", "headers", "sent"),
    [
        ("messages", "messages", {}, "a-2025-01-01,b-2025-02-02"),
        ("messages", "messages", {"Anthropic-Beta": "c-2025-03-03"}, "c-2025-03-03,a-2025-01-01,b-2025-02-02"),
        ("messages", "chat", {}, None),
        ("chat", "messages", {}, None),
    ],
)
async def test_betas_go_from_messages_to_messages(serving, behind, front, wire, headers, sent, stream):  # noqa: PLR0917
    async with (
        FakeBackend(["Hello"]) as backend,
        serving(behind(backend, wire=wire, headers=headers)) as served,
    ):
        body = {**ASK, "max_tokens": 9, "stream": stream}
        answer = await served.post(front, body, {"anthropic-beta": "a-2025-01-01,b-2025-02-02"})
        asked = next(each for each in backend.requests if each.method == "POST")
    assert answer.status == 200
    assert asked.headers.getall("anthropic-beta", [None]) == [sent]


async def test_a_clients_key_goes_to_no_backend_that_did_not_ask_for_it(serving, behind):
    """Neither when models are listed, nor with a request, nor where another backend failed."""
    async with FakeBackend([StatusReply(503), "Hello"]) as openai, FakeBackend(lambda _: "Hello") as lab:
        settings = (
            behind(openai, name="openai", models=("gpt-*",), forward_client_key=True),
            behind(lab, name="lab", weight=0.0),
        )
        async with serving(*settings) as served:
            answers = [await served.get("/v1/models", **bearer(ANN))]
            answers += [
                await served.post("chat", {**ASK, "model": name}, bearer(ANN)) for name in ("gpt-5", "gpt-5", "qwen")
            ]
    assert [answer.status for answer in answers] == [200] * 4
    assert len([each for each in lab.requests if each.method == "POST"]) == 2  # a fallback, and its own model
    assert saw(lab, ANN) == []
    assert [each.method for each in saw(openai, ANN)] == [
        "GET",
        "POST",
        "POST",
    ]  # each what the client itself asked for


async def test_one_of_several_backends_gets_no_clients_key_unless_that_is_said(serving, behind):
    async with (
        FakeBackend(["Hello"]) as first,
        FakeBackend(["Hello"]) as second,
        serving(behind(first, models=("gpt-*",)), behind(second, models=("qwen*",))) as served,
    ):
        await served.get("/v1/models", **bearer(ANN))
        await served.post("chat", ASK, bearer(ANN))
        await served.post("chat", {**ASK, "model": "qwen3"}, bearer(ANN))
    assert saw(first, ANN) == saw(second, ANN) == []
    assert [each.method for each in first.requests].count("POST") == 1


@pytest.mark.parametrize(
    ("settings", "gets"),
    [
        ({}, True),
        ({"forward_client_key": True}, True),
        ({"forward_client_key": False}, False),
        ({"key": "sk-of-the-operator-1234"}, False),
        ({"headers": {"Authorization": "Bearer sk-of-the-operator-1234"}}, False),
    ],
)
async def test_the_only_backend_gets_a_clients_key_unless_it_has_one(serving, behind, settings, gets):
    async with FakeBackend(["Hello"]) as backend, serving(behind(backend, **settings)) as served:
        await served.get("/v1/models", **bearer(ANN))
        answer = await served.post("chat", ASK, bearer(ANN))
    assert answer.status == 200
    assert bool(saw(backend, ANN)) == gets
    if "key" in settings or "headers" in settings:
        assert {each.headers["authorization"] for each in backend.requests} == {"Bearer sk-of-the-operator-1234"}


async def test_a_password_in_the_backends_url_is_its_key(serving, behind):
    async with FakeBackend(["Hello"]) as backend:
        url = backend.url.replace("http://", "http://user:s3cret@")
        async with serving(behind(backend, url=url)) as served:
            answer = await served.post("chat", ASK, bearer(ANN))
    assert answer.status == 200
    assert saw(backend, ANN) == []
    assert backend.requests[-1].headers["authorization"].startswith("Basic ")


async def test_the_list_of_models_for_one_clients_key_is_not_shown_to_another_client(serving):
    models = {ANN: ["gpt-5", "ft:ann-secret-model"], BOB: ["gpt-5"]}
    async with ByKey(models) as backend, serving(BackendSettings(url=backend.url)) as served:
        answers = [
            await served.get("/v1/models", **headers) for headers in (bearer(ANN), bearer(BOB), {}, bearer("sk-eve"))
        ]
        spelled = [
            served.gateway.backends[0].correct_name("FT:ann-Secret-model", f"client-{digest(key)}")
            for key in (ANN, BOB)
        ]
        seen = [[each["id"] for each in answer.body["data"]] for answer in answers]
    assert seen == [["gpt-5", "ft:ann-secret-model"], ["gpt-5"], [], []]
    assert spelled == ["ft:ann-secret-model", "FT:ann-Secret-model"]


async def test_lists_of_many_keys_cost_no_lasting_memory(serving):
    models = {f"sk-{number}": ["gpt-5"] for number in range(200)}
    async with ByKey(models) as backend, serving(BackendSettings(url=backend.url)) as served:
        for key in models:
            await served.get("/v1/models", **bearer(key))
        lists = served.gateway.backends[0]._lists
    assert len(lists) <= 64
    assert len({id(each.names) for owner, each in lists.items() if owner}) == 1


@table(
    ("settings", "flags", "said"),
    [
        ({"url": "http://x/v1", "key": "sk-of-the-operator-1234"}, {}, "no client key is needed"),
        ({"url": "http://u:p@x/v1"}, {}, "no client key is needed"),
        ({"local": "qwen"}, {}, "no client key is needed"),
        ({"url": "http://x/v1"}, {"keys": {"ann": "key-of-ann-12345678"}}, "no client sends a key for this backend"),
    ],
)
def test_a_key_that_cannot_be_passed_on_is_a_mistake_of_the_settings(settings, flags, said):
    with pytest.raises(CallerError) as caught:
        load_gateway_settings("", flags, BackendSettings(**settings, forward_client_key=True))
    assert said in str(caught.value)
    assert "sk-of" not in str(caught.value)

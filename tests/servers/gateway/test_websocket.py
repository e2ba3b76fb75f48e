"""Responses over a WebSocket, with OpenAI's own client and with a bare one."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import aiohttp
import msgspec
import openai
import pytest

from callboard.core import ReplyStarted, TextPiece
from callboard.servers.gateway import GatewayLimits
from callboard.servers.gateway.auth import digest
from callboard.testing import Cut, FakeBackend, Silence, StatusReply

TERMINAL = {"response.completed", "response.incomplete", "response.failed", "error"}
KEYS = {"ann": digest("key-of-ann")}


class Socket:
    """A bare client: `ask` sends a body and gives the events until the last."""

    def __init__(self, socket, judge):
        self.socket = socket
        self.judge = judge

    async def send(self, **body):
        await self.socket.send_str(msgspec.json.encode({"type": "response.create", "model": "m", **body}).decode())

    async def event(self):
        message = await self.socket.receive()
        assert message.type == aiohttp.WSMsgType.TEXT, message
        return self.judge(msgspec.json.decode(message.data))

    async def events(self):
        events = [await self.event()]
        while events[-1]["type"] not in TERMINAL:
            events.append(await self.event())
        return events

    async def ask(self, **body):
        await self.send(**body)
        return (await self.events())[-1]

    async def refused(self, **body):
        event = await self.ask(**body)
        assert event["type"] == "error", event
        return event["status"], event["error"]["code"]

    async def answered(self, **body):
        event = await self.ask(**body)
        assert event["type"] == "response.completed", event
        return event["response"]


@pytest.fixture
def connected(serving, judge):
    """A bare client and the gateway it is connected to, as an async context manager of a backend and settings."""

    @asynccontextmanager
    async def connect(backend, *, headers=None, **settings):
        async with (
            serving(backend, **settings) as served,
            served.client.ws_connect(served.url + "/responses", headers=headers) as socket,
        ):
            yield Socket(socket, judge), served

    return connect


@pytest.fixture
def story(connected):
    @asynccontextmanager
    async def opened(replies, **settings):
        async with FakeBackend(replies) as backend, connected(backend, **settings) as (socket, served):
            yield SimpleNamespace(socket=socket, backend=backend, served=served)

    return opened


def echoed(body):
    return f"{len(body['messages'])} messages"


def text(response):
    return response["output"][0]["content"][0]["text"]


def messages(backend):
    return [(each["role"], each.get("content")) for each in backend.requests[-1].body["messages"]]


async def test_the_official_client_goes_on_without_a_store(serving):
    async with (
        FakeBackend(echoed) as backend,
        serving(backend) as served,
        openai.AsyncOpenAI(base_url=served.url, api_key="x") as client,
        client.responses.connect() as connection,
    ):
        previous = None
        for turn in range(4):
            await connection.response.create(
                model="m", input=f"turn {turn}", store=False,
                **({"previous_response_id": previous} if previous else {}),
            )  # fmt: skip
            said = ""
            async for event in connection:
                if event.type == "response.output_text.delta":
                    said += event.delta
                if event.type == "response.completed":
                    break
            assert said == event.response.output_text == f"{2 * turn + 1} messages"
            assert event.response.previous_response_id == previous
            previous = event.response.id


async def test_events_are_those_of_the_stream(story):
    async with story(echoed) as at:
        await at.socket.send(input="hi")
        events = await at.socket.events()
        streamed = await at.served.post("responses", {"model": "m", "input": "hi", "stream": True})
        assert [event["type"] for event in events] == [event["type"] for event in streamed.events]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))


async def test_one_after_the_other_in_order(story, judge_response):
    async with story(echoed) as at:
        for number in range(5):
            await at.socket.send(input="x", instructions=f"{number}")
        for number in range(5):
            events = await at.socket.events()
            assert len({event["response"]["id"] for event in events if "response" in event}) == 1
            assert judge_response(events[-1]["response"])["instructions"] == f"{number}"


async def test_a_store_less_chain_ends_with_its_connection(connected, judge):
    async with FakeBackend(echoed) as backend, connected(backend) as (socket, served):
        first = await socket.answered(input="1", store=False)
        async with served.client.ws_connect(served.url + "/responses") as another:
            other = Socket(another, judge)
            refused = await other.refused(input="2", store=False, previous_response_id=first["id"])
            assert refused == (400, "previous_response_not_found")
            assert text(await other.answered(input="2")) == "1 messages"
        second = await socket.answered(input="2", previous_response_id=first["id"])
        assert text(second) == "3 messages"
        refused = await socket.refused(input="3", previous_response_id=first["id"])
        assert refused == (400, "previous_response_not_found")


async def test_what_is_not_known(story):
    async with story(echoed) as at:
        event = await at.socket.ask(input="x", previous_response_id="resp_unknown")
        assert event["status"] == 400
        assert event["error"]["code"] == "previous_response_not_found"
        assert event["error"]["param"] == "previous_response_id"


@pytest.mark.parametrize(
    "failing",
    [
        {"input": [{"type": "function_call_output", "call_id": "call_missing", "output": "x"}]},
        {"input": 5},
        {"input": "fail"},
        {"input": "cut"},
        {"input": "x", "background": True},
        {"input": "x", "model": None},
    ],
    ids=lambda body: str(body["input"])[:10],
)
async def test_a_continuation_that_fails_is_forgotten(story, failing):
    def replies(body):
        match body["messages"][-1]["content"]:
            case "fail":
                return StatusReply(400)
            case "cut":
                return Cut([ReplyStarted(), TextPiece("x")])
            case _:
                return echoed(body)

    async with story(replies) as at:
        first = await at.socket.answered(input="1", store=False)
        failed = await at.socket.ask(**{"store": False, "previous_response_id": first["id"], **failing})
        assert failed["type"] in {"error", "response.failed"}
        refused = await at.socket.refused(input="again", store=False, previous_response_id=first["id"])
        assert refused == (400, "previous_response_not_found")
        assert text(await at.socket.answered(input="anew")) == "1 messages"


async def test_a_failure_elsewhere_forgets_nothing(story):
    async with story(echoed) as at:
        first = await at.socket.answered(input="1")
        assert await at.socket.refused(input=5) == (400, "invalid_request")
        assert await at.socket.refused(input="x", previous_response_id="resp_x") == (400, "previous_response_not_found")
        assert text(await at.socket.answered(input="2", previous_response_id=first["id"])) == "3 messages"


async def test_a_kept_response_survives_its_connection(connected, database, judge):
    async with FakeBackend(echoed) as backend, connected(backend, store=database) as (socket, served):
        first = await socket.answered(input="1")
        assert first["store"] is True
        hidden = await socket.answered(input="2", store=False, previous_response_id=first["id"])
        async with served.client.ws_connect(served.url + "/responses") as another:
            other = Socket(another, judge)
            assert text(await other.answered(input="2", previous_response_id=first["id"])) == "3 messages"
            refused = await other.refused(input="3", previous_response_id=hidden["id"])
            assert refused == (400, "previous_response_not_found")
        third = await socket.answered(input="3", previous_response_id=hidden["id"])
        assert text(third) == "5 messages"
        gone = await served.post("responses", {"model": "m", "input": "4", "previous_response_id": third["id"]})
        # What its conversation goes on from was not to be kept.
        assert gone.body["error"]["code"] == "previous_response_not_found"


async def test_a_compaction_begins_a_new_chain(story):
    async with story(echoed) as at:
        items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "slate"}]}]
        compacted = await at.served.post("/responses/compact", {"model": "m", "input": items})
        go_on = {"type": "message", "role": "user", "content": "On."}
        first = await at.socket.answered(input=[*compacted.body["output"], go_on], store=False, tools=[])
        assert [said for _, said in messages(at.backend)][::2] == ["slate", "On."]
        second = await at.socket.answered(input=[{"type": "compaction_trigger"}], previous_response_id=first["id"])
        assert [item["type"] for item in second["output"]] == ["compaction"]
        await at.socket.socket.send_json({"type": "response.processed", "response_id": second["id"]})
        await at.socket.answered(input="And on.", previous_response_id=second["id"])
        assert [role for role, _ in messages(at.backend)] == ["user"] * 4
        assert messages(at.backend)[-1][1] == "And on."


async def test_a_warm_up_asks_no_model_and_can_be_gone_on_from(story, judge_response):
    async with story(echoed) as at:
        warm = await at.socket.answered(input="Be ready.", generate=False, store=False)
        assert judge_response(warm)["output"] == []
        assert not [each for each in at.backend.requests if each.method == "POST"]
        await at.socket.answered(input="Go.", previous_response_id=warm["id"], store=False)
        assert messages(at.backend) == [("user", "Be ready."), ("user", "Go.")]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", "invalid_json"),
        ("[]", "invalid_json"),
        (b"\xff", "invalid_json"),
        ("[" * 100_000, "invalid_json"),
        ("{}", "invalid_request"),
        ('{"type":"response.steer"}', "invalid_request"),
        ('{"type":5}', "invalid_request"),
        ('{"type":"response.create"}', "model_required"),
        ('{"type":"response.create","model":"m","input":"x","stream_id":"a"}', "invalid_request"),
        ('{"type":"response.create","model":"m","input":"x","background":true}', "background_not_supported"),
    ],
    ids=range(10),
)
async def test_a_bad_message_costs_only_itself(story, message, code):
    async with story(echoed, limits=GatewayLimits(body=200_000)) as at:
        await (at.socket.socket.send_bytes if isinstance(message, bytes) else at.socket.socket.send_str)(message)
        event = await at.socket.event()
        assert (event["type"], event["error"]["code"]) == ("error", code)
        assert text(await at.socket.answered(input="x")) == "1 messages"


async def test_a_message_that_is_too_large_ends_its_connection(story):
    async with story(echoed, limits=GatewayLimits(body=200_000)) as at:
        await at.socket.socket.send_str('{"type":"response.create","model":"m","input":"' + "x" * 300_000 + '"}')
        message = await at.socket.socket.receive()
        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1009)


async def test_transport_fields_are_taken_as_said(story):
    async with story(echoed, strict=True) as at:
        assert text(await at.socket.answered(input="x", stream=False, stream_options={})) == "1 messages"


async def test_bytes_are_as_good_as_text(story):
    async with story(echoed) as at:
        await at.socket.socket.send_bytes(b'{"type":"response.create","model":"m","input":"x"}')
        assert (await at.socket.events())[-1]["type"] == "response.completed"


async def test_who_leaves_cancels_upstream(story):
    async with story([Silence([ReplyStarted(), TextPiece("and so")]), "done"]) as at:
        await at.socket.send(input="x")
        while (await at.socket.event())["type"] != "response.output_text.delta":
            pass
        await at.socket.socket.close()
        await at.backend.disconnected.wait()
        assert (await at.served.post("responses", {"model": "m", "input": "x"})).status == 200


async def test_who_leaves_before_anything_is_said_cancels_upstream(story):
    def silent(_):
        asked.set()
        return Silence()

    asked = asyncio.Event()
    async with story(silent) as at:
        await at.socket.send(input="x")
        await asked.wait()
        await at.socket.socket.close()
        await at.backend.disconnected.wait()


async def test_too_many_that_wait_are_refused(story):
    async with story(lambda _: Silence([ReplyStarted(), TextPiece("and so")])) as at:
        await at.socket.send(input="x")
        while (await at.socket.event())["type"] != "response.output_text.delta":
            pass
        for _ in range(40):
            await at.socket.send(input="x")
        for _ in range(8):
            event = await at.socket.event()
            assert (event["status"], event["error"]["code"]) == (429, "rate_limit_exceeded")
        await at.socket.socket.close()
        await at.backend.disconnected.wait()
        assert len([each for each in at.backend.requests if each.method == "POST"]) == 1


async def test_a_silent_backend_is_told_of(story):
    async with story([Silence()], heartbeat=0.01) as at:
        await at.socket.send(input="x")
        types = [(await at.socket.event())["type"] for _ in range(4)]
        assert types == ["response.created", *["response.in_progress"] * 3]


async def test_a_key_is_wanted_before_the_first_message(serving):
    async with FakeBackend(echoed) as backend, serving(backend, keys=KEYS) as served:
        for headers, code in (({}, "missing_api_key"), ({"authorization": "Bearer x"}, "invalid_api_key")):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await served.client.ws_connect(served.url + "/responses", headers=headers)
            assert refused.value.status == 401
            answer = await served.request("GET", served.url + "/responses", headers={
                **headers, "upgrade": "websocket", "connection": "upgrade", "sec-websocket-version": "13",
                "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
            })  # fmt: skip
            assert answer.body["error"]["code"] == code
        async with (
            openai.AsyncOpenAI(base_url=served.url, api_key="key-of-ann") as client,
            client.responses.connect() as connection,
        ):
            await connection.response.create(model="m", input="x")
            assert (await connection.recv()).type == "response.created"


@pytest.mark.parametrize("header", [{"origin": "https://elsewhere.example"}, {"host": "elsewhere.example"}])
async def test_no_web_page_may_ask(serving, header):
    async with FakeBackend(echoed) as backend, serving(backend, hosts=("127.0.0.1",)) as served:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await served.client.ws_connect(served.url + "/responses", headers=header)
        assert refused.value.status == 403


async def test_each_message_is_a_request_of_its_key(connected):
    headers = {"authorization": "Bearer key-of-ann"}
    async with (
        FakeBackend(echoed) as backend,
        connected(backend, headers=headers, keys=KEYS, requests_per_minute=3.0) as (socket, _served),
    ):
        await socket.answered(input="1")
        await socket.answered(input="2")
        assert await socket.refused(input="3") == (429, "rate_limit_exceeded")


async def test_a_websocket_is_a_request_of_its_key_and_so_is_a_message_that_is_wrong(connected):
    async with FakeBackend(echoed) as backend, connected(backend, requests_per_minute=4.0) as (socket, served):
        for message in ("{", '{"type":"response.processed","response_id":"resp_1"}', "[]"):
            await socket.socket.send_str(message)
        assert [(await socket.event())["error"]["code"] for _ in range(2)] == ["invalid_json"] * 2
        assert await socket.refused(input="3") == (429, "rate_limit_exceeded")
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await served.client.ws_connect(served.url + "/responses")
        assert refused.value.status == 429


async def test_a_key_has_as_many_websockets_as_requests_at_once(connected):
    async with FakeBackend(echoed) as backend, connected(backend, max_concurrent=1) as (socket, served):
        assert text(await socket.answered(input="x")) == "1 messages"
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await served.client.ws_connect(served.url + "/responses")
        assert refused.value.status == 429
        await socket.socket.close()
        caller = served.gateway.authenticator.authenticate({}, "")
        while caller.sockets:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        await (await served.client.ws_connect(served.url + "/responses")).close()


async def test_a_websocket_on_which_nothing_is_asked_is_closed(connected):
    limits = GatewayLimits(socket_idle_seconds=0.05)
    async with FakeBackend(echoed) as backend, connected(backend, limits=limits) as (socket, _):
        assert text(await socket.answered(input="x")) == "1 messages"
        message = await socket.socket.receive()
        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1001)


async def test_a_refusal_of_a_backend_is_an_error_with_its_status(story):
    async with story([StatusReply(429), "done"]) as at:
        event = await at.socket.ask(input="x")
        assert (event["type"], event["status"]) == ("error", 429)
        assert text(await at.socket.answered(input="x")) == "done"

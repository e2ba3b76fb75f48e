"""Responses that are gone on from, asked for again, and summed up."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from types import SimpleNamespace

import openai
import pytest
from tests.servers.gateway.fronts import call_events, reply

from callboard.core import ReasoningPiece, ReplyStarted, TextPiece, Usage
from callboard.servers.gateway import BackendSettings, GatewayLimits
from callboard.servers.gateway.auth import digest
from callboard.servers.gateway.configuration import load_gateway_settings, parse_keys
from callboard.servers.gateway.conversation_state import PROMPT
from callboard.testing import FakeBackend, StatusReply

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
KEYS = {"ann": digest("key-of-ann-12345678"), "bob": digest("key-of-bob-12345678")}


def looking():
    return reply(*call_events("look", "{}", identifier="call_1"), Usage(3, 4))


def echoed(body):
    """A reply that says how many messages were sent."""
    return f"{len(body['messages'])} messages"


@asynccontextmanager
async def sdk(served, key="x"):
    async with openai.AsyncOpenAI(base_url=served.url, api_key=key, max_retries=0) as client:
        yield client


@pytest.fixture
def sqlite(tmp_path):
    return f"sqlite:///{tmp_path / 'replies.db'}"


@pytest.fixture
def story(serving):
    """A client, a gateway and its backend, as an async context manager of a FakeBackend's replies and settings."""

    @asynccontextmanager
    async def opened(replies, **settings):
        async with FakeBackend(replies) as backend, serving(backend, **settings) as served, sdk(served) as client:
            served.client.headers["authorization"] = f"Bearer {client.api_key}"  # one client, however it asks
            yield SimpleNamespace(client=client, backend=backend, served=served)

    return opened


def messages(backend, place=-1):
    return [(each["role"], each.get("content")) for each in backend.requests[place].body["messages"]]


async def test_a_response_is_gone_on_from(story, database, judge_response):
    async with story(echoed, store=database) as at:
        first = await at.client.responses.create(model="m", input="My name is Ann.", instructions="Be brief.")
        assert first.store is True
        assert first.previous_response_id is None
        second = await at.served.post(
            "responses", {"model": "m", "input": "What is it?", "previous_response_id": first.id}
        )
        judge_response(second.body)
        assert second.body["previous_response_id"] == first.id
        assert second.body["store"] is True
        assert second.body["instructions"] is None
        assert messages(at.backend) == [
            ("user", "My name is Ann."),
            ("assistant", "2 messages"),
            ("user", "What is it?"),
        ]
        third = await at.client.responses.create(
            model="m", input=[{"role": "user", "content": "And mine?"}], previous_response_id=second.body["id"]
        )
        assert third.output_text == "5 messages"
        branch = await at.client.responses.create(model="m", input="Or so?", previous_response_id=first.id)
        assert branch.output_text == "3 messages"


async def test_a_stream_is_gone_on_from_when_its_last_event_is_read(story, database, judge):
    async with story(echoed, store=database) as at:
        previous = None
        for turn in range(5):
            body = {"model": "m", "input": f"turn {turn}", "stream": True, "previous_response_id": previous}
            async with at.served.open("responses", body) as answer:
                async for line in answer.content:
                    if line.startswith(b"data: {"):
                        event = judge(json.loads(line[6:]))
                        if event["type"] == "response.completed":
                            break
                assert event["response"]["previous_response_id"] == previous
                previous = event["response"]["id"]
                assert (await at.client.responses.retrieve(previous)).output_text == f"{2 * turn + 1} messages"


async def test_a_tool_loop_sends_only_what_is_new(story, database):
    async with story([looking(), "It is a dog."], store=database) as at:
        first = await at.client.responses.create(model="m", input="Look!", tools=[TOOL])
        call = next(item for item in first.output if item.type == "function_call")
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "a dog"}
        second = await at.client.responses.create(
            model="m", input=[output], tools=[TOOL], previous_response_id=first.id
        )
        assert second.output_text == "It is a dog."
        sent = at.backend.requests[-1].body["messages"]
        assert [each["role"] for each in sent] == ["user", "assistant", "tool"]
        assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] == "call_1"


async def test_what_was_thought_comes_back_to_the_model_that_thought_it(sqlite, serving, behind):
    replies = [reply(ReasoningPiece("hm", opaque="seal", origin="m"), TextPiece("so"), Usage(3, 4)), "and so"]
    async with (
        FakeBackend(replies) as backend,
        serving(backends=(behind(backend, wire="messages"),), store=sqlite) as served,
        sdk(served) as client,
    ):
        first = await client.responses.create(model="m", input="Think.")
        await client.responses.create(model="m", input="On.", previous_response_id=first.id)
    body = backend.requests[-1].body
    assert body["messages"][1]["content"][0] == {"type": "thinking", "thinking": "hm", "signature": "seal"}
    assert "previous_response_id" not in body
    assert "store" not in body


async def test_no_backend_hears_of_our_identifiers(sqlite, serving, behind):
    async with (
        FakeBackend(["one", "two"]) as backend,
        serving(backends=(behind(backend, wire="responses"),), store=sqlite) as served,
        sdk(served) as client,
    ):
        first = await client.responses.create(model="m", input="1")
        await client.responses.create(model="m", input="2", previous_response_id=first.id)
    body = backend.requests[-1].body
    assert "previous_response_id" not in body
    assert body["store"] is False
    assert [item["content"] for item in body["input"]] == ["1", "one", "2"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("store", ["", "sqlite"])
async def test_what_is_not_known_is_refused(story, sqlite, store, stream):
    async with story(echoed, store=sqlite if store else "") as at:
        first = await at.client.responses.create(model="m", input="hi", store=False)
        assert first.store is False
        for previous in (first.id, "resp_unknown", "", "a\0b", "\N{PILE OF POO}"):
            body = {"model": "m", "input": "on", "previous_response_id": previous, "stream": stream}
            refused = await at.served.post("responses", body)
            assert refused.status == 400
            assert refused.body["error"]["code"] == "previous_response_not_found"
            assert refused.body["error"]["param"] == "previous_response_id"
        assert len([each for each in at.backend.requests if each.method == "POST"]) == 1


async def test_without_a_store_it_says_that_nothing_is_stored(story):
    async with story(echoed) as at:
        for store in (True, False, None):
            answer = await at.served.post("responses", {"model": "m", "input": "hi", "store": store})
            assert answer.body["store"] is False
            for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
                gone = await at.served.request(method, f"{at.served.url}/responses/{answer.body['id']}{path}")
                assert gone.status == 404
                assert gone.body["error"]["code"] == "not_found"


async def test_a_failed_reply_is_not_kept_and_a_cut_one_is(story, database):
    replies = [
        StatusReply(400),
        [ReplyStarted(), TextPiece("x")],
        reply(TextPiece("only half"), Usage(3, 4), end="length"),
        "whole",
    ]
    async with story(replies, store=database) as at:
        with pytest.raises(openai.BadRequestError):
            await at.client.responses.create(model="m", input="fail")
        body = {"model": "m", "input": "on", "stream": True}
        failed = (await at.served.post("responses", body)).events[-1]
        assert failed["type"] == "response.failed"
        with pytest.raises(openai.NotFoundError):
            await at.client.responses.retrieve(failed["response"]["id"])
        cut = (await at.served.post("responses", body)).events[-1]
        assert cut["type"] == "response.incomplete"
        kept = await at.client.responses.retrieve(cut["response"]["id"])
        assert kept.incomplete_details.reason == "max_output_tokens"
        await at.client.responses.create(model="m", input="go on", previous_response_id=kept.id)
        assert messages(at.backend)[1] == ("assistant", "only half")


async def test_two_gateways_on_one_store_see_each_others(serving, database):
    async with (
        FakeBackend(echoed) as backend,
        serving(backend, store=database) as one,
        serving(backend, store=database) as other,
        sdk(one) as first,
        sdk(other) as second,
    ):
        previous = None
        for turn, client in enumerate([first, second] * 3):
            answer = await client.responses.create(model="m", input="on", previous_response_id=previous)
            assert answer.output_text == f"{2 * turn + 1} messages"
            previous = answer.id
        await second.responses.delete(previous)
        with pytest.raises(openai.NotFoundError):
            await first.responses.retrieve(previous)


async def test_one_key_never_sees_anothers(serving, sqlite):
    async with (
        FakeBackend(echoed) as backend,
        serving(backend, store=sqlite, keys=KEYS) as served,
    ):
        async with sdk(served, "key-of-ann-12345678") as ann, sdk(served, "key-of-bob-12345678") as bob:
            hers = await ann.responses.create(model="m", input="secret")
            for asked in (
                bob.responses.retrieve(hers.id),
                bob.responses.delete(hers.id),
                bob.responses.cancel(hers.id),
                bob.responses.input_items.list(hers.id),
            ):
                with pytest.raises(openai.NotFoundError):
                    await asked
            with pytest.raises(openai.BadRequestError, match="not found"):
                await bob.responses.create(model="m", input="?", previous_response_id=hers.id)
            assert (await ann.responses.retrieve(hers.id)).output_text == hers.output_text
        async with sdk(served, "nobody") as nobody:
            with pytest.raises(openai.AuthenticationError):
                await nobody.responses.retrieve(hers.id)


async def test_a_kept_response_is_a_resource(story, database, judge_response):
    async with story(echoed, store=database) as at:
        picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
        items = [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "See:"}, picture]},
            {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "a dog"},
            {"id": "msg_mine", "role": "user", "content": "So?"},
        ]
        made = await at.served.post("responses", {"model": "m", "input": items, "metadata": {"a": "b"}})
        again = await at.served.request("GET", f"{at.served.url}/responses/{made.body['id']}")
        assert judge_response(again.body) == made.body
        identifier = made.body["id"]
        page = await at.client.responses.input_items.list(identifier, order="asc")
        assert [item.type for item in page.data] == [
            "message", "message", "function_call", "function_call_output", "message",
        ]  # fmt: skip
        assert len({item.id for item in page.data}) == 5
        assert page.data[-1].id == "msg_mine"
        assert page.data[1].content[1].detail == "auto"
        assert page.data[0].content[0].text == "Be brief."
        listed = [item.id async for item in at.client.responses.input_items.list(identifier, limit=2)]
        assert listed == [item.id for item in reversed(page.data)]
        part = await at.client.responses.input_items.list(identifier, limit=2, after="msg_mine")
        assert [item.id for item in part.data] == listed[1:3]
        assert part.has_more is True
        url = f"{at.served.url}/responses/{identifier}"
        gone = await at.served.request("DELETE", url)
        assert (gone.status, gone.body) == (200, {"id": identifier, "object": "response", "deleted": True})
        assert (await at.served.request("GET", url)).status == 404
        assert (await at.served.request("DELETE", url)).status == 404
        await at.client.responses.delete((await at.client.responses.create(model="m", input="hi")).id)


async def test_what_a_resource_cannot_do(story, sqlite):
    async with story(echoed, store=sqlite) as at:
        made = await at.client.responses.create(model="m", input="hi")
        for path, param, code in (
            ("?stream=true", "stream", "stream_not_supported"),
            ("/input_items?limit=0", "limit", "invalid_request"),
            ("/input_items?limit=101", "limit", "invalid_request"),
            ("/input_items?limit=x", "limit", "invalid_request"),
            ("/input_items?limit=" + "9" * 5000, "limit", "invalid_request"),
            ("/input_items?limit=%D9%A1", "limit", "invalid_request"),
            ("/input_items?order=up", "order", "invalid_request"),
            ("/input_items?after=unknown", "after", "invalid_request"),
        ):
            refused = await at.served.request("GET", f"{at.served.url}/responses/{made.id}{path}")
            assert refused.status == 400
            assert (refused.body["error"]["param"], refused.body["error"]["code"]) == (param, code)


async def test_a_gap_is_refused_never_filled_with_less(story, sqlite):
    async with story(echoed, store=sqlite) as at:
        first = await at.client.responses.create(model="m", input="1")
        second = await at.client.responses.create(model="m", input="2", previous_response_id=first.id)
        await at.client.responses.delete(first.id)
        with pytest.raises(openai.BadRequestError, match=first.id):
            await at.client.responses.create(model="m", input="3", previous_response_id=second.id)


async def test_a_conversation_that_is_too_large_is_refused(story, sqlite):
    async with story(echoed, store=sqlite, limits=GatewayLimits(body=8000)) as at:
        previous = None
        for _ in range(3):
            answer = await at.client.responses.create(model="m", input="x" * 1500, previous_response_id=previous)
            previous = answer.id
        for _ in range(2):
            refused = await at.served.post("responses", {"model": "m", "input": "on", "previous_response_id": previous})
            assert refused.status == 413
            assert refused.body["error"]["code"] == "request_too_large"


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([{"role": "user", "content": "x"}, {"role": "elf", "content": "x"}], "input[1].role"),
        ([{"role": "user", "content": "x"}, {"type": "message"}], "input[1]"),
        (5, "input"),
        ([5], "input[0]"),
        ([{"type": "function_call_output", "call_id": "unknown", "output": "x"}], "input[0]"),
    ],
)
async def test_a_mistake_is_found_in_the_clients_own_body(story, sqlite, items, param):
    async with story(echoed, store=sqlite) as at:
        first = await at.client.responses.create(model="m", input="hi")
        body = {"model": "m", "input": items, "previous_response_id": first.id}
        refused = await at.served.post("responses", body)
        assert refused.status == 400
        assert refused.body["error"]["code"] == "invalid_request"
        assert refused.body["error"]["param"].startswith(param)


async def test_nothing_that_was_said_is_logged(story, sqlite, caplog):
    caplog.set_level("DEBUG")
    async with story(lambda _: "a secret", store=sqlite) as at:
        first = await at.client.responses.create(model="m", input="a secret")
        await at.client.responses.create(model="m", input="a secret", previous_response_id=first.id)
        await at.client.responses.compact(model="m", input="a secret")
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith(("openai", "httpcore"))]
    assert ours
    assert not any("a secret" in message for message in ours)


async def test_a_store_that_fails_costs_no_reply(story, sqlite):
    async with story(echoed, store=sqlite) as at:
        with at.served.conversations.store._engine.connect() as connection:
            connection.exec_driver_sql("DROP TABLE callboard_replies")
        answer = await at.client.responses.create(model="m", input="hi")
        assert answer.output_text == "1 messages"
        assert answer.store is False
        events = (await at.served.post("responses", {"model": "m", "input": "hi", "stream": True})).events
        assert events[-1]["type"] == "response.completed"
        lost = await at.served.post("responses", {"model": "m", "input": "on", "previous_response_id": answer.id})
        assert (lost.status, lost.body["error"]["code"]) == (503, "store_unavailable")


async def test_what_has_ended_is_not_cancelled(story, sqlite):
    async with story(echoed, store=sqlite) as at:
        made = await at.client.responses.create(model="m", input="hi")
        with pytest.raises(openai.BadRequestError, match="Cannot cancel a completed response"):
            await at.client.responses.cancel(made.id)
        with pytest.raises(openai.NotFoundError):
            await at.client.responses.cancel("resp_unknown")


async def test_a_conversation_is_summed_up(story, sqlite):
    summary = reply(TextPiece("The code word "), TextPiece("is slate."), Usage(3, 4))
    async with story(["OK.", summary, summary, "slate"], store=sqlite) as at:
        from openresponses_types import CompactResource

        first = await at.client.responses.create(model="m", input="Remember: slate.", instructions="Be brief.")
        body = {
            "model": "m",
            "previous_response_id": first.id,
            "instructions": "Be brief.",
            "input": [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Go on."}],
        }
        answer = await at.served.post("/responses/compact", body)
        CompactResource.model_validate(answer.body)
        assert messages(at.backend) == [
            ("system", "Be brief."), ("user", "Remember: slate."), ("assistant", "OK.Yes."), ("user", "Go on."),
            ("user", PROMPT),
        ]  # fmt: skip
        compacted = await at.client.responses.compact(**body)
        assert compacted.object == "response.compaction"
        assert compacted.usage.output_tokens == 4
        assert [item.type for item in compacted.output] == ["message", "message", "compaction"]
        assert "The code word" not in compacted.output[-1].encrypted_content
        output = answer.body["output"]
        await at.client.responses.create(model="other", input=[*output, {"role": "user", "content": "Which?"}])
        last = messages(at.backend)
        assert [role for role, _ in last] == ["user"] * 4
        assert last[2][1].endswith("The code word is slate.")


@pytest.mark.parametrize(
    ("body", "replies", "status", "code"),
    [
        ({"input": "hi"}, [], 400, "model_required"),
        ({"model": "m", "input": 5}, [], 400, "invalid_request"),
        ({"model": "m", "input": "hi", "previous_response_id": "resp_1"}, [], 400, "previous_response_not_found"),
        ({"model": "m", "input": "hi"}, [reply(TextPiece(" \n"), Usage(3, 4))], 502, "no_summary"),
        ({"model": "m", "input": "hi"}, [StatusReply(429)], 429, None),
    ],
)
async def test_what_cannot_be_summed_up(story, body, replies, status, code):
    async with story(replies) as at:
        refused = await at.served.post("/responses/compact", body)
        assert refused.status == status, refused
        assert code is None or refused.body["error"]["code"] == code


TRIGGERED = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "Look!"},
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "a dog"},
    {"type": "compaction_trigger"},
]


@pytest.mark.parametrize("stream", [True, False])
async def test_codex_gets_exactly_one_compaction(story, judge, judge_response, stream):
    call = call_events("look", "{}", identifier="x")
    summary = reply(ReasoningPiece("hm"), TextPiece("A dog "), *call, TextPiece("was seen."), Usage(3, 4), end="stop")
    async with story(lambda _: summary) as at:
        body = {
            "model": "m", "input": TRIGGERED, "stream": stream, "store": False, "tools": [TOOL],
            "tool_choice": "auto", "text": {"format": {"type": "json_object"}},
        }  # fmt: skip
        answer = await at.served.post("responses", body)
        if stream:
            for event in answer.events:
                judge(event)
            assert [event["type"] for event in answer.events] == [
                "response.created", "response.in_progress", "response.output_item.added",
                "response.output_item.done", "response.completed",
            ]  # fmt: skip
            response = answer.events[-1]["response"]
            assert answer.events[-2]["item"] == response["output"][0]
            async with at.client.responses.stream(
                **{name: body[name] for name in body if name != "stream"}
            ) as streamed:
                assert (await streamed.get_final_response()).output[0].type == "compaction"
        else:
            response = answer.body
        judge_response(response)
        assert [item["type"] for item in response["output"]] == ["compaction"]
        asked = at.backend.requests[-1].body
        assert asked["messages"][-1] == {"role": "user", "content": PROMPT}
        assert asked["tool_choice"] == "none"
        assert asked["tools"]
        assert "response_format" not in asked
        go_on = [{"role": "user", "content": "Look!"}, *response["output"], {"role": "user", "content": "On."}]
        await at.client.responses.create(model="m", input=go_on)
        assert "A dog was seen." in messages(at.backend)[1][1]


async def test_a_model_that_sums_up_nothing_fails(story):
    async with story([looking()]) as at:
        events = (await at.served.post("responses", {"model": "m", "input": TRIGGERED, "stream": True})).events
        assert events[-1]["type"] == "response.failed"
        assert events[-1]["response"]["error"]["code"] == "no_summary"


async def test_a_conversation_begins_anew_with_its_summary(story, database):
    async with story(echoed, store=database) as at:
        first = await at.client.responses.create(model="m", input="1")
        second = await at.client.responses.create(
            model="m", input=[{"type": "compaction_trigger"}], previous_response_id=first.id
        )
        assert second.previous_response_id == first.id
        await at.client.responses.delete(first.id)
        await at.client.responses.create(model="m", input="3", previous_response_id=second.id)
        sent = messages(at.backend)
        assert [role for role, _ in sent] == ["user", "user", "user"]
        assert sent[0][1] == "1"
        assert sent[1][1].endswith("3 messages")
        assert sent[2][1] == "3"


async def test_the_providers_own_compaction_is_passed_on(serving, behind):
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "theirs"}

    async with FakeBackend(["so"]) as backend, serving(backends=(behind(backend, wire="responses"),)) as served:
        await served.post("responses", {"model": "m", "input": [item, {"role": "user", "content": "on"}]})
    assert backend.requests[-1].body["input"][0] == item


async def test_taking_a_key_away_gives_no_other_key_its_replies(serving, sqlite):
    """Keys that have no name keep what is theirs, whatever stands before them on the command line."""
    hers, his = "key-of-ann-12345678", "key-of-bob-12345678"

    def settings(backend, *keys):
        url = sqlite
        return load_gateway_settings("", {"keys": parse_keys(keys), "store": url}, BackendSettings(url=backend.url))

    async with FakeBackend(echoed) as backend:
        async with (
            serving(settings(backend, hers, his)) as served,
            sdk(served, hers) as ann,
            sdk(served, his) as bob,
        ):
            told = await ann.responses.create(model="m", input="secret")
            kept = await bob.responses.create(model="m", input="mine")
        async with serving(settings(backend, his)) as served, sdk(served, his) as bob:
            with pytest.raises(openai.NotFoundError):
                await bob.responses.retrieve(told.id)
            with pytest.raises(openai.BadRequestError, match="not found"):
                await bob.responses.create(model="m", input="?", previous_response_id=told.id)
            assert (await bob.responses.retrieve(kept.id)).output_text == kept.output_text


async def test_without_keys_of_the_gateway_a_client_reads_only_what_its_own_key_asked_for(serving, sqlite):
    async with (
        FakeBackend(echoed) as backend,
        serving(backend, store=sqlite) as served,
        sdk(served, "upstream-key-of-ann") as ann,
        sdk(served, "upstream-key-of-bob") as bob,
    ):
        told = await ann.responses.create(model="m", input="secret")
        for asked in (
            bob.responses.retrieve(told.id),
            bob.responses.delete(told.id),
            bob.responses.cancel(told.id),
        ):
            with pytest.raises(openai.NotFoundError):
                await asked
        with pytest.raises(openai.BadRequestError, match="not found"):
            await bob.responses.create(model="m", input="?", previous_response_id=told.id)
        assert (await served.request("GET", f"{served.url}/responses/{told.id}")).status == 404  # nor without a key
        assert (await ann.responses.retrieve(told.id)).output_text == told.output_text

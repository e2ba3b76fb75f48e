"""What clients ask of a server besides replies, as their users met it."""

from __future__ import annotations

import asyncio

import pytest
from tests.servers.gateway.conftest import serve_gateway
from tests.tables import table

from callboard.core import InvocationEnded, InvocationStarted, ReplyEnded, ReplyStarted, Usage
from callboard.testing import FakeBackend

MESSAGES = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}


def served(use, replies=("Hello",), **facts):
    """What `use` makes of a gateway, and the bodies that its backend was asked with."""

    async def scenario():
        models = facts.pop("models", ("m",))
        async with FakeBackend(list(replies), models=models) as backend, serve_gateway(backend, **facts) as gateway:
            return await use(gateway), [each.body for each in backend.requests if each.method == "POST"]

    return asyncio.run(scenario())


# Threads of messages.


def test_the_anthropic_sdk_s_tool_runner_sends_the_whole_history():
    """It begins with a thread, of which nothing is kept here, and continued it with a tool's result alone."""
    from anthropic import AsyncAnthropic, beta_async_tool

    @beta_async_tool
    async def get_weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city}"

    arguments = {"city": "Oslo"}
    call = [InvocationStarted(0, "call_1", "get_weather"), InvocationEnded(0, "call_1", "get_weather", arguments, "")]
    replies = [[ReplyStarted(), *call, Usage(11, 7), ReplyEnded("invocations")], "It is sunny."]

    async def use(gateway):
        async with AsyncAnthropic(base_url=gateway.root, api_key="k", max_retries=0) as client:
            asking = {**MESSAGES, "tools": [get_weather]}
            return await client.beta.messages.tool_runner(**asking).until_done()

    message, bodies = served(use, replies)
    assert message.content[0].text == "It is sunny."
    assert [[each["role"] for each in body["messages"]] for body in bodies] == [["user"], ["user", "assistant", "tool"]]
    assert bodies[1]["messages"][-1]["content"] == "sunny in Oslo"
    assert all(body["tools"] for body in bodies)


@table("thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}])
def test_a_thread_of_messages_is_refused_as_anthropic_refuses_it(thread):
    answer, bodies = served(lambda gateway: gateway.post("messages", {**MESSAGES, "thread": thread}))
    assert (answer.status, answer.body["error"]["type"], bodies) == (400, "invalid_request_error", [])
    assert answer.body["error"]["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


@table("conversation", ["conv_1", {"id": "conv_1"}])
def test_a_conversation_that_is_not_kept_here_is_refused_and_not_cut(conversation):
    body = {"model": "m", "input": "And then?", "conversation": conversation}
    answer, bodies = served(lambda gateway: gateway.post("responses", body))
    error = answer.body["error"]
    assert (answer.status, error["code"], error["param"]) == (400, "conversation_not_supported", "conversation")
    assert bodies == []


# Models.


async def model_of(gateway, name, **headers):
    return await gateway.get(f"/v1/models/{name}", **headers)


@table("name", ["m", "org/m:free", "org%2Fm:free"])
def test_a_model_that_is_listed_can_be_asked_for_alone(name):
    async def use(gateway):
        return [await model_of(gateway, name), await model_of(gateway, name, **{"anthropic-version": "2023-06-01"})]

    (openai, anthropic), _ = served(use, models=("m", "org/m:free"))
    expected = name.replace("%2F", "/")
    assert (openai.body["id"], openai.body["object"]) == (expected, "model")
    assert (anthropic.body["id"], anthropic.body["type"]) == (expected, "model")


def test_a_model_that_nobody_lists_is_404_in_the_client_s_form():
    async def use(gateway):
        return [
            await model_of(gateway, "gone"),
            await model_of(gateway, "gone", **{"anthropic-version": "2023-06-01"}),
            await model_of(gateway, "a%3Fb"),
        ]

    (openai, anthropic, wrong), _ = served(use)
    assert [openai.status, anthropic.status, wrong.status] == [404, 404, 404]
    assert (openai.body["error"]["code"], openai.body["error"]["param"]) == ("model_not_found", "model")
    assert (anthropic.body["type"], anthropic.body["error"]["type"]) == ("error", "not_found_error")


def test_the_official_clients_retrieve_a_model():
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI, NotFoundError

    async def use(gateway):
        async with AsyncOpenAI(base_url=gateway.url, api_key="k") as openai:
            found = [(await openai.models.retrieve("m")).id]
            with pytest.raises(NotFoundError):
                await openai.models.retrieve("gone")
        async with AsyncAnthropic(base_url=gateway.root, api_key="k") as anthropic:
            return [*found, (await anthropic.models.retrieve("m")).id]

    assert served(use)[0] == ["m", "m"]


def test_a_backend_that_lists_nothing_may_have_any_model():
    answer, _ = served(lambda gateway: model_of(gateway, "any"), models=())
    assert answer.status == 200


# Counts.


def test_the_tokens_of_a_response_are_counted():
    from openai import AsyncOpenAI

    async def use(gateway):
        async with AsyncOpenAI(base_url=gateway.url, api_key="k") as client:
            return await client.responses.input_tokens.count(model="m", input="x" * 400, instructions="y" * 400)

    counted, bodies = served(use)
    assert (counted.object, bodies) == ("response.input_tokens", [])
    assert 200 <= counted.input_tokens <= 220


def test_a_conversation_that_is_gone_on_from_counts_as_well(tmp_path):
    async def use(gateway):
        first = await gateway.post("responses", {"model": "m", "input": "x" * 4000})
        more = {"model": "m", "input": "More", "previous_response_id": first.body["id"]}
        gone = {**more, "previous_response_id": "resp_gone"}
        return [await gateway.post("/responses/input_tokens", body) for body in (more, gone)]

    (counted, gone), _ = served(use, store=f"sqlite:///{tmp_path}/kept.db")
    assert counted.body["input_tokens"] > 1000
    assert (gone.status, gone.body["error"]["code"]) == (400, "previous_response_not_found")


# What is not there.


@table("stream", [True, False])
def test_two_choices_are_refused_and_not_one_given(stream):
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "n": 2, "stream": stream}
    answer, bodies = served(lambda gateway: gateway.post("chat", body))
    assert (answer.status, answer.body["error"]["param"], bodies) == (400, "n", [])


@table(("path", "word"), [("/completions", "/v1/chat/completions"), ("/embeddings", "backend directly")])
def test_paths_that_clients_know_say_what_to_use_instead(path, word):
    answer, bodies = served(lambda gateway: gateway.post(path, {"model": "m"}))
    assert (answer.status, answer.body["error"]["code"], bodies) == (404, "not_found", [])
    assert word in answer.body["error"]["message"]

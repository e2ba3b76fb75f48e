"""The official clients of each front, and what they make of the answers."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import NamedTuple

QUESTION = ({"role": "user", "content": "Hi"},)


class Heard(NamedTuple):
    """What a client made of a reply."""

    text: str = ""
    calls: tuple = ()
    end: str = "stop"
    reasoning: str = ""
    refusal: str = ""
    usage: tuple = (11, 7, 3)
    """Input with what was cached, output, cached."""


RESPONSES_ENDS = {None: "stop", "max_output_tokens": "length", "content_filter": "filter"}


def heard_of_response(response):
    of = {
        kind: [item for item in response.output if item.type == kind]
        for kind in ("message", "reasoning", "function_call")
    }
    parts = [part for item in of["message"] for part in item.content]
    details, usage = response.incomplete_details, response.usage
    assert (response.status == "completed") == (details is None)
    return Heard(
        "".join([part.text for part in parts if part.type == "output_text"]),
        tuple([(item.name, json.loads(item.arguments)) for item in of["function_call"]]),
        RESPONSES_ENDS[details and details.reason],
        "".join([part.text for item in of["reasoning"] for part in item.summary]),
        "".join([part.refusal for part in parts if part.type == "refusal"]),
        (usage.input_tokens, usage.output_tokens, usage.input_tokens_details.cached_tokens),
    )


async def ask_responses(client, streamed, conversation=QUESTION, **fields):
    asked = {"input": list(conversation), **fields}
    if streamed:
        async with client.responses.stream(**asked) as stream:
            events = [event async for event in stream]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        response = events[-1].response
    else:
        response = await client.responses.create(**asked)
    heard = heard_of_response(response)
    if streamed:
        assert "".join([event.delta for event in events if event.type == "response.output_text.delta"]) == heard.text
        ends = {"response.completed", "response.incomplete", "response.failed"}
        assert [event.type in ends for event in events].count(True) == 1
    return heard, [item.call_id for item in response.output if item.type == "function_call"], [*response.output]


CHAT_ENDS = {"stop": "stop", "tool_calls": "stop", "length": "length", "content_filter": "filter"}


def heard_of_completion(completion):
    (chosen,), usage = completion.choices, completion.usage
    message = chosen.message
    assert (chosen.finish_reason == "tool_calls") == bool(message.tool_calls)
    return Heard(
        message.content or "",
        tuple([(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or ()]),
        CHAT_ENDS[chosen.finish_reason],
        getattr(message, "reasoning_content", None) or "",
        message.refusal or "",
        (usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens_details.cached_tokens),
    )


async def ask_chat(client, streamed, conversation=QUESTION, **fields):
    from openai.lib.streaming.chat import ChatCompletionStreamState

    asked = {"messages": list(conversation), **fields}
    if streamed:
        state = ChatCompletionStreamState()  # without input tools: it raises at a finish that is not stop
        async for chunk in await client.chat.completions.create(
            **asked, stream=True, stream_options={"include_usage": True}
        ):
            state.handle_chunk(chunk)
        completion = state.current_completion_snapshot
    else:
        completion = await client.chat.completions.create(**asked)
    message = completion.choices[0].message
    sent = message.model_dump(exclude={"parsed"}, exclude_none=True)
    return heard_of_completion(completion), [call.id for call in message.tool_calls or ()], [sent]


MESSAGES_ENDS = {"end_turn": "stop", "tool_use": "stop", "max_tokens": "length", "refusal": "filter"}


def heard_of_message(message):
    of = {kind: [block for block in message.content if block.type == kind] for kind in ("text", "thinking", "tool_use")}
    usage = message.usage
    assert (message.stop_reason == "tool_use") == bool(of["tool_use"])
    return Heard(
        "".join([block.text for block in of["text"]]),
        tuple([(block.name, block.input) for block in of["tool_use"]]),
        MESSAGES_ENDS[message.stop_reason],
        "".join([block.thinking for block in of["thinking"]]),
        "",
        (usage.input_tokens + usage.cache_read_input_tokens, usage.output_tokens, usage.cache_read_input_tokens),
    )


async def ask_messages(client, streamed, conversation=QUESTION, **fields):
    asked = {"max_tokens": 1000, "messages": list(conversation), **fields}
    if streamed:
        async with client.messages.stream(**asked) as stream:
            pieces = [event.text async for event in stream if event.type == "text"]
            message = await stream.get_final_message()
    else:
        message = await client.messages.create(**asked)
    heard = heard_of_message(message)
    assert not streamed or "".join(pieces) == heard.text
    identifiers = [block.id for block in message.content if block.type == "tool_use"]
    return heard, identifiers, [{"role": "assistant", "content": message.content}]


GEMINI_ENDS = {"STOP": "stop", "MAX_TOKENS": "length", "SAFETY": "filter"}


def heard_of_chunks(chunks):
    parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts or ()]
    (end,), usage = (
        [reason for chunk in chunks if (reason := chunk.candidates[0].finish_reason)],
        chunks[-1].usage_metadata,
    )
    return Heard(
        "".join([part.text for part in parts if part.text and not part.thought]),
        tuple([(part.function_call.name, part.function_call.args) for part in parts if part.function_call]),
        GEMINI_ENDS[end.value],
        "".join([part.text for part in parts if part.thought]),
        "",
        (
            usage.prompt_token_count,
            usage.candidates_token_count + (usage.thoughts_token_count or 0),
            usage.cached_content_token_count,
        ),
    )


async def ask_gemini(client, streamed, *, model, **config):
    asking = {"model": model, "contents": "Hi", "config": config}
    if not streamed:
        return heard_of_chunks([await client.models.generate_content(**asking)]), [], []
    return heard_of_chunks([chunk async for chunk in await client.models.generate_content_stream(**asking)]), [], []


ASK = {"responses": ask_responses, "chat": ask_chat, "messages": ask_messages, "gemini": ask_gemini}


async def ask(front, client, streamed, *conversation, **fields):
    """What the client heard, the identifiers of the calls, and what it sends back."""
    return await ASK[front](client, streamed, *conversation, model="m", **fields)


@asynccontextmanager
async def client_of(front, served):
    from anthropic import AsyncAnthropic
    from google import genai
    from openai import AsyncOpenAI

    if front == "gemini":
        with genai.Client(api_key="k", http_options={"base_url": served.root}) as google:
            async with google.aio as client:
                yield client
        return
    kind, url = (AsyncAnthropic, served.root) if front == "messages" else (AsyncOpenAI, served.url)
    async with kind(base_url=url, api_key="k", max_retries=0) as client:
        yield client

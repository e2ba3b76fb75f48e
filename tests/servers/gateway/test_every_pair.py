"""Every front on every backend's wire, driven by the official clients."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from itertools import product
from typing import NamedTuple

import pytest
from tests.servers.gateway.fronts import FRONTS, call_chunk, call_events, posted, refused, reply

from callboard.core import (
    ReasoningPiece,
    RefusalPiece,
    TextPiece,
    Usage,
)
from callboard.testing import FakeBackend, Raw, StatusReply

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")
"""Google's package inherits where it is discouraged."""
WIRES = ["chat", "responses", "messages", "gemini"]
PAIRS = list(product(FRONTS, WIRES))
SEARCH = {
    "type": "object",
    "properties": {"query": {"type": "string"}},
    "required": ["query"],
    "additionalProperties": False,
}
SCHEMAS = {
    "search": SEARCH,
    "clock": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
}


class Heard(NamedTuple):
    """What a client made of a reply."""

    text: str = ""
    calls: tuple = ()
    end: str = "stop"
    reasoning: str = ""
    refusal: str = ""
    usage: tuple = (11, 7, 3)
    """Input with what was cached, output, cached."""


# How each client says what is asked.


def tools_of(front):
    match front:
        case "responses":
            return [
                {"type": "function", "name": n, "description": n, "parameters": s, "strict": True}
                for n, s in SCHEMAS.items()
            ]
        case "chat":
            return [
                {"type": "function", "function": {"name": n, "description": n, "parameters": s, "strict": True}}
                for n, s in SCHEMAS.items()
            ]
        case "messages":
            return [{"name": n, "description": n, "input_schema": s} for n, s in SCHEMAS.items()]
        case _:
            return [
                {
                    "function_declarations": [
                        {"name": n, "description": n, "parameters_json_schema": s} for n, s in SCHEMAS.items()
                    ]
                }
            ]


def choice_of(front, wanted, parallel):
    """The fields that say which tools may or have to be called."""
    fields = {}
    if front == "messages":
        kind = {"required": {"type": "any"}, None: {"type": "auto"}}.get(wanted, {"type": "tool", "name": wanted})
        return {"tool_choice": {**kind, **({"disable_parallel_tool_use": True} if parallel is False else {})}}
    if front == "gemini":
        only = {} if wanted == "required" else {"allowed_function_names": [wanted]}
        return {"tool_config": {"function_calling_config": {"mode": "ANY", **only}}}
    if wanted == "required":
        fields["tool_choice"] = "required"
    elif wanted and front == "responses":
        fields["tool_choice"] = {"type": "function", "name": wanted}
    elif wanted:
        fields["tool_choice"] = {"type": "function", "function": {"name": wanted}}
    return fields if parallel is None else {**fields, "parallel_tool_calls": parallel}


# What each client makes of the answer.

RESPONSES_ENDS = {None: "stop", "max_output_tokens": "length", "content_filter": "filter"}


def heard_of_response(response):
    of = {
        kind: [item for item in response.output if item.type == kind]
        for kind in ("message", "reasoning", "function_call")
    }
    parts = [part for item in of["message"] for part in item.content]
    details, usage = response.incomplete_details, response.usage
    return Heard(
        "".join([part.text for part in parts if part.type == "output_text"]),
        tuple([(item.name, json.loads(item.arguments)) for item in of["function_call"]]),
        RESPONSES_ENDS[details and details.reason],
        "".join([part.text for item in of["reasoning"] for part in item.summary]),
        "".join([part.refusal for part in parts if part.type == "refusal"]),
        (usage.input_tokens, usage.output_tokens, usage.input_tokens_details.cached_tokens),
    )


async def ask_responses(client, streamed, **fields):
    if not streamed:
        return heard_of_response(await client.responses.create(input="Hi", **fields))
    async with client.responses.stream(input="Hi", **fields) as stream:
        events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    heard = heard_of_response(events[-1].response)
    assert "".join([event.delta for event in events if event.type == "response.output_text.delta"]) == heard.text
    assert [
        event.type.rpartition(".")[2] in {"completed", "incomplete", "failed"}
        for event in events
        if event.type.count(".") == 1
    ].count(True) == 1
    return heard


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


async def ask_chat(client, streamed, **fields):
    from openai.lib.streaming.chat import ChatCompletionStreamState

    messages = [{"role": "user", "content": "Hi"}]
    if not streamed:
        return heard_of_completion(await client.chat.completions.create(messages=messages, **fields))
    state = ChatCompletionStreamState()  # without input tools: it raises at a finish that is not stop
    fields["stream_options"] = {"include_usage": True}
    stream = await client.chat.completions.create(messages=messages, stream=True, **fields)
    async for chunk in stream:
        state.handle_chunk(chunk)
    return heard_of_completion(state.current_completion_snapshot)


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


async def ask_messages(client, streamed, **fields):
    fields = {"max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}], **fields}
    if not streamed:
        return heard_of_message(await client.messages.create(**fields))
    async with client.messages.stream(**fields) as stream:
        pieces = [event.text async for event in stream if event.type == "text"]
        heard = heard_of_message(await stream.get_final_message())
    assert "".join(pieces) == heard.text
    return heard


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
        return heard_of_chunks([await client.models.generate_content(**asking)])
    return heard_of_chunks([chunk async for chunk in await client.models.generate_content_stream(**asking)])


ASK = {"responses": ask_responses, "chat": ask_chat, "messages": ask_messages, "gemini": ask_gemini}


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


@pytest.fixture
def ask(serving, behind):
    """What a client of the front hears for each question (fields of its request), and what the backend was asked."""

    async def ask(front, replies, questions, *, streamed=True, pieces=None, **settings):

        async with (
            FakeBackend(replies, chunk_size=pieces) as backend,
            serving(behind(backend, **settings)) as served,
            client_of(front, served) as client,
        ):
            heard = [await ASK[front](client, streamed, model="m", **fields) for fields in questions]
        return heard, posted(backend)

    return ask


# What is said.

USAGE = Usage(11, 7, 3, 2)


QUERY = '{"query":"naïve \\"quotes\\" — ✓ \\ud83d\\ude00"}'
ASKED = ("search", json.loads(QUERY))
ONE, TWO = call_events("search", QUERY, 0, size=1), call_events("clock", "{}", 1, size=4)

SAID = {
    "text": ([TextPiece("Hel"), TextPiece("lo — ✓\n\n"), USAGE], Heard("Hello — ✓\n\n")),
    "reasoning": (
        [ReasoningPiece("Let me "), ReasoningPiece("think.\n"), TextPiece("Yes."), USAGE],
        Heard("Yes.", reasoning="Let me think.\n"),
    ),
    "a call in fragments": ([TextPiece("I look."), *ONE, USAGE], Heard("I look.", (ASKED,))),
    "two calls": ([*ONE, *TWO, USAGE], Heard(calls=(ASKED, ("clock", {})))),
    "the same call twice": (
        [*TWO, *call_events("clock", "{}", 2, size=4), USAGE],
        Heard(calls=(("clock", {}), ("clock", {}))),
    ),
    "all of it": (
        [ReasoningPiece("hm"), TextPiece("I look."), *ONE, *TWO, USAGE],
        Heard("I look.", (ASKED, ("clock", {})), reasoning="hm"),
    ),
    "length": ([TextPiece("It is"), USAGE], Heard("It is", end="length")),
    "filter": ([TextPiece("It is"), USAGE], Heard("It is", end="filter")),
}


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("front", "wire"), PAIRS)
async def test_what_a_model_says_is_heard(ask, front, wire, streamed):
    replies = [reply(*events, end="" if heard.end == "stop" else heard.end) for events, heard in SAID.values()]
    fields = [{"tools": tools_of(front)} if "call" in name or "all" in name else {} for name in SAID]
    heard, _ = await ask(front, replies, fields, streamed=streamed, wire=wire)
    assert dict(zip(SAID, heard, strict=True)) == {name: expected for name, (_, expected) in SAID.items()}


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("front", "wire"), PAIRS)
async def test_a_refusal_is_heard(ask, front, wire, streamed):
    said = reply(RefusalPiece("I "), RefusalPiece("won't."), USAGE, end="refusal")
    ((heard,), _) = await ask(front, [said], [{}], streamed=streamed, wire=wire)
    assert heard.text + heard.refusal == "I won't."  # Anthropic and Google have no place for it but the text
    if wire in {"chat", "responses"} and front in {"chat", "responses"}:
        assert heard.refusal == "I won't."
    assert heard.usage == (11, 7, 3)


BOTH = call_chunk(arguments='"query":')
BOTH["choices"][0]["delta"]["tool_calls"].append({"index": 1, "id": "call_y", "function": {"name": "clock"}})
COUNTS = {"prompt_tokens": 11, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}}
BEFORE_THE_NAME = [
    call_chunk(identifier="call_x", arguments="{"),
    BOTH,
    call_chunk(name="search", arguments='"x"'),
    call_chunk(arguments="}", finish="tool_calls"),
    {"choices": [], "usage": COUNTS},
    "[DONE]",
]


@pytest.mark.parametrize("pieces", [None, 1, 7])
@pytest.mark.parametrize("front", FRONTS)
async def test_arguments_before_the_name(ask, front, pieces):
    ((heard,), _) = await ask(front, [Raw(BEFORE_THE_NAME)], [{"tools": tools_of(front)}], pieces=pieces)
    assert sorted(heard.calls) == [("clock", {}), ("search", {"query": "x"})]
    assert heard._replace(calls=()) == Heard()


WRITTEN = {
    "hermes": '<tool_call>\n{"name": "search", "arguments": {"query": "x"}}\n</tool_call>\n<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>',
    "qwen3_coder": "<tool_call>\n<function=search>\n<parameter=query>\nx\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=clock>\n</function>\n</tool_call>",
    "mistral": '[TOOL_CALLS][{"name": "search", "arguments": {"query": "x"}}, {"name": "clock", "arguments": {}}]',
    "pythonic": '[search(query="x"), clock()]',
    "llama3_json": '{"name": "search", "parameters": {"query": "x"}}; {"name": "clock", "parameters": {}}',
    "deepseek_v31": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "x"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>clock<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "json": '```json\n{"name": "search", "arguments": {"query": "x"}}\n```\n```json\n{"name": "clock", "arguments": {}}\n```',
}


@pytest.mark.parametrize("mode", ["", "validated"], ids=["leaked", "validated"])
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("front", FRONTS)
async def test_calls_that_are_written_as_text(ask, front, streamed, mode):
    """Natively declared and leaked, or asked for in the prompt."""
    found = {}
    for dialect, text in WRITTEN.items():
        ((heard,), (body,)) = await ask(
            front, [text], [{"tools": tools_of(front)}], streamed=streamed, dialect=dialect, mode=mode
        )
        found[dialect] = (heard.text.strip(), heard.calls, heard.end)
        assert bool(body.get("tools")) == (not mode)
        assert mode == "" or "search" in str(body["messages"])
    assert found == dict.fromkeys(WRITTEN, ("", (("search", {"query": "x"}), ("clock", {})), "stop"))


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("front", FRONTS)
async def test_calls_that_are_written_as_text_on_every_wire(ask, front, wire):
    text = f"I look.\n{WRITTEN['hermes']}"
    ((heard,), _) = await ask(front, [text], [{"tools": tools_of(front)}], dialect="hermes", wire=wire)
    assert (heard.text.strip(), heard.calls) == ("I look.", (("search", {"query": "x"}), ("clock", {})))


EXTRA = {"type": "extra_forbidden", "msg": "Extra inputs are not permitted"}
REFUSALS = [
    refused(400, "registry.ollama.ai/library/gemma:2b does not support tools"),
    refused(500, "tools param requires --jinja flag"),
    StatusReply(
        400,
        {
            "object": "error",
            "message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        },
    ),
    refused(404, 'No endpoints found that support tool use. Try disabling "search".'),
    StatusReply(422, {"detail": [{**EXTRA, "loc": ["body", "tools"]}]}),
    refused(400, "Unrecognized request argument supplied: tools"),
]


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("refusal", "front"), list(zip(REFUSALS, FRONTS * 2, strict=False)))
async def test_a_backend_that_takes_no_tools(ask, front, refusal, streamed):
    """Found out once: the second request is not refused."""

    def replied(body):
        return refusal if body.get("tools") else WRITTEN["json"]

    fields = {"tools": tools_of(front)}
    heard, bodies = await ask(front, replied, [fields, fields], streamed=streamed)
    assert [each.calls for each in heard] == [(("search", {"query": "x"}), ("clock", {}))] * 2
    assert [bool(body.get("tools")) for body in bodies] == [True, False, False]


MISTAKES = [
    StatusReply(
        400,
        {
            "error": {
                "message": "Invalid schema for function 'search': None is not of type 'object'",
                "param": "tools[0].function.parameters",
            }
        },
    ),
    refused(400, "An assistant message with 'tool_calls' must be followed by tool messages"),
    refused(400, "Invalid 'tools[0].function.name': string does not match pattern"),
    StatusReply(422, {"detail": [{**EXTRA, "loc": ["body", "tools", 0, "cache"]}]}),
    StatusReply(400, {"message": "Unexpected role 'tool' after role 'user'"}),
    refused(500, "Internal error while calling function forward"),
]


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_a_mistake_in_one_request_teaches_nothing_of_its_model(serving, mistake):
    async with FakeBackend([mistake, "Hello"]) as backend, serving(backend) as served:
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": tools_of("chat")}
        answers = [await served.post("chat", body) for _ in range(2)]
        (first, second), bodies = answers, posted(backend)
    assert (first.status, second.status) == (mistake.code, 200)
    assert all(body["tools"] for body in bodies)


JSON_CALL = '```json\n{"name": "%s", "arguments": {"query": "x"}}\n```'


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("wanted", ["required", "search"])
@pytest.mark.parametrize("front", FRONTS)
async def test_a_choice_holds_where_tools_are_in_the_prompt(ask, front, wanted, streamed):
    replies = ["I would rather not.", JSON_CALL % "search"]
    fields = {"tools": tools_of(front), **choice_of(front, wanted, None)}
    ((heard,), bodies) = await ask(front, replies, [fields], streamed=streamed, mode="validated")
    assert (heard.text.strip(), heard.calls) == ("", (("search", {"query": "x"}),))
    assert len(bodies) == 2
    assert heard.usage[1] == sum(len(text) // 4 + bool(len(text) % 4) for text in replies)


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("mode", "wire"), [("validated", "chat"), *[("", wire) for wire in WIRES]])
@pytest.mark.parametrize("front", [front for front in FRONTS if front != "gemini"])  # which cannot ask for it
async def test_one_call_where_one_was_asked_for(ask, front, mode, wire, streamed):
    native = reply(*ONE, *TWO, USAGE)
    fields = {"tools": tools_of(front), **choice_of(front, None, False)}
    ((heard,), _) = await ask(
        front, [WRITTEN["json"] if mode else native], [fields], streamed=streamed, mode=mode, wire=wire
    )
    assert [name for name, _ in heard.calls] == ["search"]

"""Every front on every backend's wire, driven by the official clients."""

from __future__ import annotations

import json
from itertools import product

import pytest
from tests.servers.gateway.fronts import FRONTS, call_chunk, call_events, posted, refused, reply
from tests.servers.gateway.sdk_clients import Heard, ask, client_of

from callboard.core import ReasoningPiece, RefusalPiece, TextPiece, Usage
from callboard.testing import FakeBackend, Raw, StatusReply

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")
"""Google's package inherits where it is discouraged."""
WIRES = ["chat", "responses", "messages", "gemini"]
PAIRS = list(product(FRONTS, WIRES))
WAYS = [*((*pair, "as it is") for pair in PAIRS), ("chat", "chat", "long"), ("messages", "messages", "long")]
"""Pairs, of which two could pass a reply on as its bytes."""
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


@pytest.fixture
def hear(serving, behind):
    """What a client of the front hears for each question (fields of its request), and what the backend was asked."""

    async def hear(front, replies, questions, *, streamed=True, pieces=None, **settings):
        async with (
            FakeBackend(replies, chunk_size=pieces) as backend,
            serving(behind(backend, **settings)) as served,
            client_of(front, served) as client,
        ):
            heard = [(await ask(front, client, streamed, **fields))[0] for fields in questions]
        return heard, posted(backend)

    return hear


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
@pytest.mark.parametrize(("front", "wire", "way"), WAYS)
async def test_what_a_model_says_is_heard(hear, take_way, front, wire, way, streamed):  # noqa: PLR0917
    take_way(way)
    replies = [reply(*events, end="" if heard.end == "stop" else heard.end) for events, heard in SAID.values()]
    fields = [{"tools": tools_of(front)} if "call" in name or "all" in name else {} for name in SAID]
    heard, _ = await hear(front, replies, fields, streamed=streamed, wire=wire)
    assert dict(zip(SAID, heard, strict=True)) == {name: expected for name, (_, expected) in SAID.items()}


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("front", "wire", "way"), WAYS)
async def test_a_refusal_is_heard(hear, take_way, front, wire, way, streamed):  # noqa: PLR0917
    take_way(way)
    said = reply(RefusalPiece("I "), RefusalPiece("won't."), USAGE, end="refusal")
    ((heard,), _) = await hear(front, [said], [{}], streamed=streamed, wire=wire)
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
async def test_arguments_before_the_name(hear, front, pieces):
    ((heard,), _) = await hear(front, [Raw(BEFORE_THE_NAME)], [{"tools": tools_of(front)}], pieces=pieces)
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
async def test_calls_that_are_written_as_text(hear, front, streamed, mode):
    """Natively declared and leaked, or asked for in the prompt."""
    found = {}
    for dialect, text in WRITTEN.items():
        ((heard,), (body,)) = await hear(
            front, [text], [{"tools": tools_of(front)}], streamed=streamed, dialect=dialect, mode=mode
        )
        found[dialect] = (heard.text.strip(), heard.calls, heard.end)
        assert bool(body.get("tools")) == (not mode)
        assert mode == "" or "search" in str(body["messages"])
    assert found == dict.fromkeys(WRITTEN, ("", (("search", {"query": "x"}), ("clock", {})), "stop"))


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("front", FRONTS)
async def test_calls_that_are_written_as_text_on_every_wire(hear, front, wire):
    text = f"I look.\n{WRITTEN['hermes']}"
    ((heard,), _) = await hear(front, [text], [{"tools": tools_of(front)}], dialect="hermes", wire=wire)
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
async def test_a_backend_that_takes_no_tools(hear, front, refusal, streamed):
    """Found out once: the second request is not refused."""

    def replied(body):
        return refusal if body.get("tools") else WRITTEN["json"]

    fields = {"tools": tools_of(front)}
    heard, bodies = await hear(front, replied, [fields, fields], streamed=streamed)
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
async def test_a_choice_holds_where_tools_are_in_the_prompt(hear, front, wanted, streamed):
    replies = ["I would rather not.", JSON_CALL % "search"]
    fields = {"tools": tools_of(front), **choice_of(front, wanted, None)}
    ((heard,), bodies) = await hear(front, replies, [fields], streamed=streamed, mode="validated")
    assert (heard.text.strip(), heard.calls) == ("", (("search", {"query": "x"}),))
    assert len(bodies) == 2
    assert heard.usage[1] == sum(len(text) // 4 + bool(len(text) % 4) for text in replies)


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("mode", "wire"), [("validated", "chat"), *[("", wire) for wire in WIRES]])
@pytest.mark.parametrize("front", [front for front in FRONTS if front != "gemini"])  # which cannot ask for it
async def test_one_call_where_one_was_asked_for(hear, front, mode, wire, streamed):
    native = reply(*ONE, *TWO, USAGE)
    fields = {"tools": tools_of(front), **choice_of(front, None, False)}
    ((heard,), _) = await hear(
        front, [WRITTEN["json"] if mode else native], [fields], streamed=streamed, mode=mode, wire=wire
    )
    assert [name for name, _ in heard.calls] == ["search"]

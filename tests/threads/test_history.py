"""What users reported of histories that a server refuses, each test named after its thread.

The backend is a fake that refuses what the real server refuses (`callboard.testing.strict`).
"""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from itertools import pairwise, product
from pathlib import Path

import msgspec
import pytest
from tests.servers.gateway.conftest import behind, serve_gateway
from tests.tables import table
from tests.threads.passing import through

from callboard import Agent, core, tool
from callboard.testing import FakeBackend, Raw
from callboard.testing.strict import ServerRule
from callboard.wires import WIRES

TESTS = Path(__file__).resolve().parents[1]
CODEX = {
    path.stem: json.loads(path.read_text("utf-8")) for path in sorted((TESTS / "vectors/clients").glob("codex-*.json"))
}
FRONTS = ["responses", "chat", "messages"]
QWEN = "Qwen/Qwen3.6-27B"
TOOL = {"name": "read", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}


def texts_of(messages):
    """Every text of a chat body's messages, in their order, with the role of its message."""
    found = []
    for message in messages:
        content = message.get("content") or ""
        parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
        found += [(message["role"], part) for part in parts]
    return found


# One system message.


@table("which", ["first", "last"])
@table("name", CODEX)
def test_vllm_41114_codex_first_turn_has_one_system_message(name, which):
    body = {**CODEX[name][which], "model": QWEN, "stream": False}
    (answer,), (sent,) = through(["Hello."], ("responses", body), strict=("vllm", "qwen3.5"))
    assert (answer.status, answer.body["status"]) == (200, "completed")
    said = [body.get("instructions") or ""]
    for item in body["input"]:
        content = item.get("content") or ""
        said += [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    whole = "\n".join(text for _, text in texts_of(sent["messages"]))
    places = [whole.index(text) for text in said if text]
    assert places == sorted(places)


def _no_user_behind_results(body):
    roles = [message["role"] for message in body["messages"]]
    return "Unexpected role 'user' after role 'tool'" if ("tool", "user") in pairwise(roles) else None


def test_hermes_agent_20154_mistral_hears_its_user_behind_results():
    call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "cancelled"},
        {"role": "user", "content": "Read another."},
    ]
    rule = ServerRule("order", _no_user_behind_results)
    body = {"model": "mistralai/Mistral-Small-4-119B-2603", "messages": messages}
    (answer,), (sent,) = through(["Hello."], ("chat", body), strict=rule)
    assert (answer.status, texts_of(sent["messages"])[-1]) == (200, ("user", "Read another."))


# Past arguments.

BROKEN = ['{"a": 2, "b": ', "[2,3]", '"x"', "null", "not JSON"]


def called(raw):
    return [
        core.ReplyStarted(),
        core.InvocationStarted(0, "call_1", "read", True),
        core.InvocationEnded(0, "call_1", "read", None, raw),
        core.ReplyEnded("invocations"),
    ]


@table("server", ["vllm", "llama.cpp"])
@table("raw", BROKEN)
async def test_vllm_47761_a_run_goes_on_behind_arguments_that_are_no_object(raw, server):
    @tool
    def read(path: str) -> str:
        """Read a file."""
        return path

    async with FakeBackend([called(raw), "Sorry."], strict=server) as backend:
        agent = Agent("m", tools=[read], base_url=backend.url, profile={"uses_tools": True})
        result = await agent.run("Read it.")
        messages = backend.requests[1].body["messages"]
    assert (result.state, result.output) == ("completed", "Sorry.")
    (call,) = messages[-2]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"raw": raw}
    assert repr(raw) in messages[-1]["content"]


@table(("front", "wire"), list(product(FRONTS, WIRES)))
@table("raw", BROKEN)
def test_vllm_47761_the_gateway_sends_objects_whatever_a_client_sends_back(front, wire, raw):
    bodies = {
        "chat": {
            "messages": [
                {"role": "user", "content": "u"},
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": raw}}
                ]},
                {"role": "tool", "tool_call_id": "call_1", "content": "no JSON"},
            ]
        },
        "responses": {
            "input": [
                {"role": "user", "content": "u"},
                {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": raw},
                {"type": "function_call_output", "call_id": "call_1", "output": "no JSON"},
            ]
        },
        "messages": {
            "max_tokens": 9,
            "messages": [
                {"role": "user", "content": "u"},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "call_1", "name": "read", "input": {"raw": raw}}
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": "no JSON", "is_error": True}
                ]},
            ],
        },
    }  # fmt: skip
    (answer,), (sent,) = through(["Ah."], (front, {"model": "m", **bodies[front]}), wire=wire)
    assert answer.status == 200, answer
    assert list(past_arguments(wire, sent)) == [{"raw": raw}]


def past_arguments(wire, body):
    match wire:
        case "chat":
            calls = [call for message in body["messages"] for call in message.get("tool_calls") or []]
            yield from [json.loads(call["function"]["arguments"]) for call in calls]
        case "responses":
            yield from [json.loads(item["arguments"]) for item in body["input"] if item["type"] == "function_call"]
        case "messages":
            blocks = [block for message in body["messages"] for block in message["content"]]
            yield from [block["input"] for block in blocks if block["type"] == "tool_use"]
        case "gemini":
            parts = [part for content in body["contents"] for part in content["parts"]]
            yield from [part["functionCall"]["args"] for part in parts if "functionCall" in part]


# The last message.


async def test_a_conversation_that_ends_with_the_model_is_gone_on_from():
    async with FakeBackend(["And?"], strict="llama.cpp") as backend:
        agent = Agent("m", base_url=backend.url)
        await agent.run("", history=[core.UserCanister("u"), core.AssistantCanister("Well")])
        outcome = backend.requests[0].body["messages"][-1]
    assert outcome["role"] == "user"


# Reasoning.


def thought(text="hm", origin=""):
    return [
        core.ReplyStarted(),
        core.ReasoningPiece(text, origin=origin),
        core.InvocationStarted(0, "call_1", "read", True),
        core.InvocationEnded(0, "call_1", "read", {"path": "a"}, '{"path":"a"}'),
        core.ReplyEnded("invocations"),
    ]


UNTHOUGHT = [event for event in thought() if not isinstance(event, core.ReasoningPiece)]
THINKERS = [("deepseek-v4-pro", "deepseek"), ("kimi-k2.6", "kimi")]


def a_run(replies, model, strict, **options):
    """What a run of an agent with one tool sends, and how it ends."""

    @tool
    def read(path: str) -> str:
        """Read a file."""
        return path

    async def scenario():
        async with FakeBackend(replies, strict=strict) as backend:
            agent = Agent(model, tools=[read], base_url=backend.url)
            result = await agent.run("Read it.", **options)
            return result, [asked.body for asked in backend.requests]

    return asyncio.run(scenario())


def past(reasoning):
    return [
        core.UserCanister("before"),
        *([core.AssistantCanister(reasoning)] if reasoning else []),
        core.InvocationCanister("call_0", "read", {"path": "b"}, '{"path":"b"}'),
        core.ResultCanister("b", invocation_id="call_0"),
        core.AssistantCanister("It was b."),
    ]


@table(("model", "server"), THINKERS)
@table(
    ("reasoning", "said"),
    [
        (core.ReasoningContent("mine", origin="{model}"), "mine"),
        (core.ReasoningContent("theirs", "sealed", "gpt-6"), "theirs"),
        (core.ReasoningContent("", "sealed", "claude-opus-4-6"), "(not recorded)"),
        (None, "(not recorded)"),
    ],
    ids=["the same model", "another model", "another model, sealed", "a turn without thinking"],
)
def test_bifrost_7213_reasoning_stands_on_past_turns_with_calls(model, server, reasoning, said):
    if reasoning is not None:
        reasoning = msgspec.structs.replace(reasoning, origin=reasoning.origin.format(model=model))
    result, (first, second) = a_run([thought(), "Done."], model, server, history=past(reasoning))
    assert result.state == "completed"
    called = [message for message in second["messages"] if message.get("tool_calls")]
    assert [message["reasoning_content"] for message in called] == [said, "hm"]
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert not {"thinking", "reasoning_effort"} & second.keys()


@table(("model", "server"), THINKERS)
@table("front", FRONTS)
def test_pi_8779_a_client_that_keeps_no_reasoning_gets_it_sent_all_the_same(front, model, server):
    first, again = conversation(front, model)
    answers, (_, sent) = through([thought(), "Done."], (front, first), (front, again), strict=server)
    assert [answer.status for answer in answers] == [200, 200]
    (called,) = [message for message in sent["messages"] if message.get("tool_calls")]
    assert called["reasoning_content"] == "hm"


@table(("model", "server"), THINKERS)
@table("front", FRONTS)
def test_pi_8779_a_cold_resume_through_another_process_is_not_refused(front, model, server):
    first, again = conversation(front, model)
    (answer,), _ = through([UNTHOUGHT], (front, first), strict=server)
    (answer,), (sent,) = through(["Done."], (front, again([answer])), strict=server)
    (called,) = [message for message in sent["messages"] if message.get("tool_calls")]
    assert (answer.status, called["reasoning_content"]) == (200, "(not recorded)")


@table(("model", "server"), [*THINKERS, ("m", "llama.cpp"), (QWEN, ("vllm", "qwen3.5"))])
def test_pi_8779_a_compaction_is_asked_for_as_the_model_takes_it(model, server):
    items = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "u"},
        {"type": "function_call", "call_id": "call_0", "name": "read", "arguments": '{"path": "a'},
        {"type": "function_call_output", "call_id": "call_0", "output": "a"},
        {"role": "developer", "content": "Be briefer."},
        {"role": "assistant", "content": "It was a."},
    ]
    body = {"model": model, "instructions": "Work.", "input": items}
    answers, _ = through(["A summary.", "Done."], ("/responses/compact", body), ("responses", lambda told: {
        **body, "input": [*told[0].body["output"], {"role": "user", "content": "Go on"}],
    }), strict=server)  # fmt: skip
    assert [answer.status for answer in answers] == [200, 200]


def conversation(front, model, **fields):
    """A client's first request, and a function from the answers to the next, which keeps standard fields only."""
    function = {"type": "function", "function": TOOL}
    if front == "chat":
        said = [{"role": "user", "content": "Read it."}]
        body = {"model": model, "messages": said, "tools": [function], **fields}
    elif front == "messages":
        said = [{"role": "user", "content": "Read it."}]
        declared = {"name": TOOL["name"], "input_schema": TOOL["parameters"]}
        body = {"model": model, "max_tokens": 99, "messages": said, "tools": [declared], **fields}
    else:
        said = [{"role": "user", "content": "Read it."}]
        body = {"model": model, "input": said, "tools": [{"type": "function", **TOOL}], **fields}
    where = "input" if front == "responses" else "messages"

    def next_body(answers):
        items = [*said]
        for answer in answers:
            items += STANDARD[front](answer.body)
        return {**body, where: items}

    return body, next_body


def _chat_standard(body):
    message = body["choices"][0]["message"]
    calls = [
        {"id": call["id"], "type": "function", "function": call["function"]} for call in message.get("tool_calls") or ()
    ]
    kept = {"role": "assistant", "content": message["content"], **({"tool_calls": calls} if calls else {})}
    return [kept, *[{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls]]


def _messages_standard(body):
    blocks = [block for block in body["content"] if block["type"] in {"text", "tool_use"}]
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "ok"}
        for block in blocks
        if block["type"] == "tool_use"
    ]
    return [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]


def _responses_standard(body):
    kept = []
    for item in body["output"]:
        if item["type"] == "function_call":
            kept.append({key: item[key] for key in ("type", "call_id", "name", "arguments")})
        elif item["type"] == "message":
            kept.append({"role": "assistant", "content": item["content"][0]["text"]})
    calls = [item for item in kept if "call_id" in item]
    return [*kept, *[{"type": "function_call_output", "call_id": c["call_id"], "output": "ok"} for c in calls]]


STANDARD = {"chat": _chat_standard, "messages": _messages_standard, "responses": _responses_standard}
TURNS = [
    core.UserCanister("one"),
    core.AssistantCanister(core.ReasoningContent("t1", origin="{model}")),
    core.InvocationCanister("call_0", "read", {"path": "a"}, '{"path":"a"}'),
    core.ResultCanister("a", invocation_id="call_0"),
    core.AssistantCanister([core.ReasoningContent("t2", origin="{model}"), "a"]),
    core.UserCanister("two"),
    core.AssistantCanister([core.ReasoningContent("t3", origin="{model}"), "b"]),
    core.UserCanister("three"),
    core.AssistantCanister(core.ReasoningContent("t4", origin="{model}")),
    core.InvocationCanister("call_1", "read", {"path": "c"}, '{"path":"c"}'),
    core.ResultCanister("c", invocation_id="call_1"),
]
ALL = ["t1", "t2", "t3", "t4"]
NEEDS = {
    "deepseek-ai/DeepSeek-R1": [],
    "deepseek-ai/DeepSeek-V3.2": ["t4"],
    "deepseek-v4-pro": ["t1", "t2", "t4"],
    "kimi-k2-thinking": ALL,
    "moonshotai/Kimi-K3": ALL,
    "google/gemma-4-31B-it": ["t4"],
    "Qwen/Qwen3-32B": ["t4"],
    "Qwen/Qwen3.6-27B": ALL,
    "zai-org/GLM-4.6": ["t4"],
    "zai-org/GLM-4.7": ALL,
    "glm-5.2": ALL,
    "MiniMaxAI/MiniMax-M2": ALL,
    "minimax-m3": ALL,
    "openai/gpt-oss-120b": ["t4"],
    "XiaomiMiMo/MiMo-V2-Flash": ALL,
    "unheard-of": ALL,
}


@table("model", NEEDS)
def test_oh_my_pi_1995_reasoning_goes_back_as_the_family_needs_it(model):
    def own(canister):
        if not isinstance(canister, core.AssistantCanister):
            return canister
        content = [
            msgspec.structs.replace(part, origin=model) if isinstance(part, core.ReasoningContent) else part
            for part in canister.content
        ]
        return core.AssistantCanister(content)

    async def scenario():
        async with FakeBackend(["Done."]) as backend:
            agent = Agent(model, base_url=backend.url, mode="native")
            await agent.run("", history=[own(canister) for canister in TURNS])
            return backend.requests[0].body["messages"]

    sent = asyncio.run(scenario())
    assert [message["reasoning_content"] for message in sent if message.get("reasoning_content")] == NEEDS[model]


def _starts_with_thinking(body):
    last = next(message for message in reversed(body["messages"]) if message["role"] == "assistant")
    if body.get("thinking", {}).get("type") != "enabled" or "thinking" in last["content"][0]["type"]:
        return None
    return "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."


@table(
    ("signature", "thinks", "lost"),
    [(None, False, "thinking"), ("callboard.1.b3RoZXI=.00000000.x", False, "thinking"), ("EqQB", True, "")],
)
def test_opencode_3077_thinking_that_would_be_refused_is_left_out_and_told(signature, thinks, lost):
    used = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}}
    thoughts = [{"type": "thinking", "thinking": "hm", "signature": signature}] if signature else []
    messages = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": [*thoughts, used]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a"}]},
    ]
    thinking = {"type": "enabled", "budget_tokens": 2000}
    body = {"model": "claude-sonnet-4-5", "max_tokens": 4000, "thinking": thinking, "messages": messages}
    rule = ServerRule("thinking-first", _starts_with_thinking, wire="messages")
    (answer,), (sent,) = through(["Done."], ("messages", body), strict=rule, wire="messages")
    assert (answer.status, "thinking" in sent) == (200, thinks)
    told = answer.headers.get("x-callboard-dropped", "").split(", ")
    assert ("thinking" in told) == bool(lost)


# Gemini's signatures.

GEMINI = "gemini-3-pro-preview"
SKIP = "skip_thought_signature_validator"


def signed(number, *, calls=2, identifiers=False):
    """A reply of Gemini's with calls at once, of which the first is signed."""
    parts = [{"text": f"thinking {number}", "thought": True}]
    for place in range(calls):
        call = {"name": "read", "args": {"path": f"{number}.{place}"}}
        if identifiers:
            call["id"] = f"id{number}{place}"
        parts.append({"functionCall": call, **({"thoughtSignature": signature(number)} if place == 0 else {})})
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    return Raw([{"candidates": [candidate], "modelVersion": GEMINI, "responseId": f"r{number}"}])


def signature(number):
    return f"c2lnbmF0dXJl{number:04d}" + "QUJD" * 200


def signatures_of(body):
    """Those of the calls that are first in their turn."""
    found = []
    for content in body["contents"]:
        calls = [part for part in content["parts"] if "functionCall" in part]
        if calls:
            assert not any("thoughtSignature" in part for part in calls[1:])
            found.append(calls[0].get("thoughtSignature"))
    return found


@table("identifiers", [True, False])
@table("front", FRONTS)
def test_opencode_4832_signatures_survive_a_client_that_keeps_standard_fields_only(front, identifiers):
    first, again = conversation(front, GEMINI)
    replies = [*[signed(number, identifiers=identifiers) for number in range(3)], "Done."]
    requests = [(front, first), *[(front, again)] * 3]
    answers, sent = through(replies, *requests, strict="gemini", wire="gemini")
    assert [answer.status for answer in answers] == [200] * 4
    assert signatures_of(sent[-1]) == [signature(number) for number in range(3)]
    for answer in answers[:-1]:
        for identifier in identifiers_of(front, answer.body):
            assert 0 < len(identifier) <= 64
            assert set(identifier) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def identifiers_of(front, body):
    match front:
        case "chat":
            return [call["id"] for call in body["choices"][0]["message"]["tool_calls"]]
        case "messages":
            return [block["id"] for block in body["content"] if block["type"] == "tool_use"]
        case _:
            return [item["call_id"] for item in body["output"] if item["type"] == "function_call"]


@table("front", FRONTS)
def test_cc_switch_5725_a_gateway_that_was_restarted_sends_what_google_documents(front):
    first, again = conversation(front, GEMINI)
    answers, _ = through([signed(0), signed(1)], (front, first), (front, again), wire="gemini")
    (answer,), (sent,) = through(["Done."], (front, again(answers)), strict="gemini", wire="gemini")
    assert (answer.status, signatures_of(sent)) == (200, [SKIP, SKIP])


@table("front", ["messages", "responses"])
def test_cc_switch_5725_a_client_that_keeps_reasoning_needs_no_memory(front):
    first, _ = conversation(
        front, GEMINI, **({"include": ["reasoning.encrypted_content"]} if front == "responses" else {})
    )
    (answer,), _ = through([signed(0)], (front, first), wire="gemini")
    where, said = ("input", "output") if front == "responses" else ("messages", "content")
    kept = answer.body[said] if front == "responses" else [{"role": "assistant", "content": answer.body[said]}]
    results = [item for item in STANDARD[front](answer.body) if "output" in item or item.get("role") == "user"]
    body = {**first, where: [*first[where], *kept, *results]}
    _, (sent,) = through(["Done."], (front, body), strict="gemini", wire="gemini")
    assert signatures_of(sent) == [signature(0)]


def test_omniroute_9273_a_cut_signature_is_no_error():
    first, _ = conversation("messages", GEMINI)
    (answer,), _ = through([signed(0)], ("messages", first), wire="gemini")
    blocks = [
        {**block, "signature": block["signature"][:-9]} if block.get("signature") else block
        for block in answer.body["content"]
    ]
    turn = [{"role": "assistant", "content": blocks}, STANDARD["messages"](answer.body)[1]]
    body = {**first, "messages": [*first["messages"], *turn]}
    (answer,), (sent,) = through(["Done."], ("messages", body), strict="gemini", wire="gemini")
    assert (answer.status, signatures_of(sent)) == (200, [SKIP])


def test_older_gemini_models_get_no_made_up_signature():
    first, again = conversation("chat", "gemini-2.5-pro")
    answers, _ = through([[*UNTHOUGHT]], ("chat", first), wire="gemini")
    _, (sent,) = through(["Done."], ("chat", again(answers)), wire="gemini")
    assert signatures_of(sent) == [None]


async def test_what_one_owner_s_model_thought_is_sent_for_no_other():
    first, again = conversation("chat", GEMINI)
    keys = {name: sha256(name.encode()).hexdigest() for name in ("one", "two")}

    async with FakeBackend([signed(0), "Done.", "Done."]) as backend:
        async with serve_gateway(behind(backend, wire="gemini"), keys=keys) as served:
            answer = await served.post("chat", first, {"authorization": "Bearer one"})
            for key in ("two", "one"):
                await served.post("chat", again([answer]), {"authorization": f"Bearer {key}"})
        outcome = [signatures_of(asked.body) for asked in backend.requests[-2:]]
    assert outcome == [[SKIP], [signature(0)]]


@pytest.mark.parametrize("front", FRONTS)
def test_a_tool_that_runs_in_the_gateway_gets_what_was_thought_back_in_each_round(front, tmp_path, monkeypatch):
    (tmp_path / "reader_of_test.py").write_text(
        'def read(path: str) -> str:\n    """Read a file."""\n    return path\n'
    )
    (tmp_path / "r").mkdir()
    (tmp_path / "r/reader.toml").write_text(
        '[ensemble]\nname = "reader"\nmodule = "reader_of_test"\n[[invokers]]\nname = "read"\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = {"ensembles": (str(tmp_path / "r"),)}
    body, _ = conversation(front, GEMINI)
    (answer,), sent = through(
        [signed(0), signed(1), "Done."],
        (front, body | {"tools": []}),
        strict="gemini",
        settings=settings,
        wire="gemini",
    )
    assert (answer.status, signatures_of(sent[-1])) == (200, [signature(0), signature(1)])
    body, _ = conversation(front, "deepseek-v4-pro")
    (answer,), sent = through(
        [thought(), "Done."],
        (front, body | {"tools": []}),
        strict="deepseek",
        settings=settings,
        model_map={"deepseek-v4-pro": "v4"},
    )
    (called,) = [message for message in sent[-1]["messages"] if message.get("tool_calls")]
    assert (answer.status, called["reasoning_content"]) == (200, "hm")


@table("front", FRONTS)
def test_a_model_under_another_name_gets_its_reasoning_back(front):
    first, again = conversation(front, "mine")
    settings = {"model_map": {"mine": "deepseek-v4-pro"}}
    answers, (_, sent) = through([thought(), "Done."], (front, first), (front, again), strict="deepseek", **settings)
    (called,) = [message for message in sent["messages"] if message.get("tool_calls")]
    assert ([answer.status for answer in answers], called["reasoning_content"]) == ([200, 200], "hm")


def test_a_chat_client_that_keeps_reasoning_sends_it_under_another_name():
    first, again = conversation("chat", "mine")
    (answer,), _ = through([thought()], ("chat", first), model_map={"mine": "Qwen/Qwen3.6-27B"})
    body = again([answer])
    body["messages"][-2]["reasoning_content"] = answer.body["choices"][0]["message"]["reasoning_content"]
    _, (sent,) = through(["Done."], ("chat", body), model_map={"mine": "Qwen/Qwen3.6-27B"})
    assert sent["messages"][-2]["reasoning_content"] == "hm"

"""Requests that a client might send, and what may come of them.

Owns the fields of each front as a client may fill them, rightly, nearly rightly or not at all, and what an answer has
to be whatever was sent. Law: the same random numbers give the same request.
"""

from __future__ import annotations

import json

import pytest

from callboard.core import (
    ArgumentsPiece,
    InvocationEnded,
    InvocationStarted,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyStarted,
    TextPiece,
    Usage,
)
from callboard.testing import Cut, Html, Raw, StatusReply

FRONTS = ("responses", "chat", "messages", "gemini")
CODES = {
    "responses": None,
    "chat": None,
    "messages": {
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "request_too_large",
        "rate_limit_error",
        "api_error",
        "timeout_error",
        "overloaded_error",
        "billing_error",
    },
}
WORDS = ("", "Hi", "x" * 300, "naïve — ✓ 😀", "\u0000", "a\nb", "<tool_call>", "data: x\n\n", "[DONE]", "../..", "null")
NAMES = ("search", "get_weather", "f", "", "a b", "x" * 70, "ns__f", "😀")
LEAVES = (None, True, False, 0, -1, 1, 1.5, -0.0, 1e300, 2**70, -(2**63), [], {}, [[]], [None], {"": None}, *WORDS)


def junk(r, depth=0):
    kind = r.random()
    if depth > 3 or kind < 0.7:
        return r.choice(LEAVES)
    if kind < 0.85:
        return [junk(r, depth + 1) for _ in range(r.randrange(4))]
    return {
        r.choice(("type", "role", "content", "name", "id", "text", "x")): junk(r, depth + 1)
        for _ in range(r.randrange(4))
    }


def spoilt(r, value, share):
    """The value with about that share of its parts replaced, dropped or added."""
    if r.random() < share:
        return junk(r)
    if isinstance(value, dict):
        kept = {key: spoilt(r, each, share) for key, each in value.items() if r.random() >= share / 2}
        return {**kept, r.choice(WORDS): junk(r)} if r.random() < share else kept
    if isinstance(value, list):
        return [spoilt(r, each, share) for each in value]
    return value


def some(r, *makers, most=3):
    return [r.choice(makers)(r) for _ in range(r.randrange(most + 1))]


def seldom(r, value, *usual):
    return value if r.random() < 0.03 else r.choice((None, *usual))


def word(r):
    return r.choice(WORDS)


def identifier(r):
    return r.choice(("call_1", "call_2", "call_3", ""))


def schema(r):
    return r.choice(
        (
            {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
            {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/a"}},
                "$defs": {"a": {"type": ["integer", "null"]}},
            },
            {"type": "object"},
            {},
            {"$ref": "#"},
            {"type": "array"},
        )
    )


def arguments(r):
    return r.choice(('{"query":"x"}', "{}", "", "{", "[]", "null", '{"a":1e999}', '{"query":"\\ud83d\\ude00"}'))


# Responses


def response_part(r):
    return r.choice(
        (
            {"type": "input_text", "text": word(r)},
            {"type": "output_text", "text": word(r), "annotations": []},
            {"type": "refusal", "refusal": word(r)},
            {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="},
            {"type": "input_image", "image_url": "https://example.org/x.png", "detail": "low"},
            {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0=", "filename": "x.pdf"},
            {"type": "input_file", "file_id": "file-1"},
        )
    )


def response_item(r):
    call, name = identifier(r), r.choice(NAMES)
    content = r.choice((word(r), some(r, response_part)))
    return r.choice(
        (
            {"role": r.choice(("user", "assistant", "system", "developer")), "content": content},
            {"type": "message", "role": "assistant", "content": content, "id": "msg_1", "status": "completed"},
            {"type": "function_call", "call_id": call, "name": name, "arguments": arguments(r)},
            {"type": "function_call_output", "call_id": call, "output": content},
            {"type": "custom_tool_call", "call_id": call, "name": name, "input": word(r)},
            {"type": "custom_tool_call_output", "call_id": call, "output": content},
            {
                "type": "reasoning",
                "id": "rs",
                "summary": [{"type": "summary_text", "text": word(r)}],
                "encrypted_content": word(r),
            },
            {"type": "additional_tools", "role": "developer", "tools": some(r, response_tool)},
            {"type": "item_reference", "id": "msg_1"},
            {"type": "compaction", "encrypted_content": word(r)},
            {"type": "web_search_call", "id": "ws", "status": "completed"},
            {"type": "tool_search_call", "call_id": call, "arguments": {}, "execution": "client"},
            {"type": "local_shell_call", "call_id": call, "action": {"type": "exec", "command": ["ls"]}},
        )
    )


def response_tool(r):
    name = r.choice(NAMES)
    return r.choice(
        (
            {
                "type": "function",
                "name": name,
                "description": word(r),
                "parameters": schema(r),
                "strict": r.choice((None, True, False)),
            },
            {"type": "function", "function": {"name": name, "parameters": schema(r)}},
            {
                "type": "custom",
                "name": name,
                "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
            },
            {
                "type": "namespace",
                "name": "ns",
                "description": "n",
                "tools": [{"type": "function", "name": "f", "parameters": schema(r)}],
            },
            {"type": "web_search"},
            {"type": "tool_search", "execution": "client", "parameters": schema(r)},
        )
    )


def responses(r):
    return {
        "input": r.choice((word(r), some(r, response_item, most=6))),
        "instructions": r.choice((None, word(r))),
        "tools": some(r, response_tool),
        "tool_choice": r.choice(
            (
                "auto",
                "none",
                "required",
                {"type": "function", "name": r.choice(NAMES)},
                {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
            )
        ),
        "parallel_tool_calls": r.choice((True, False, None)),
        "max_output_tokens": seldom(r, 0, 1, 100),
        "temperature": r.choice((None, 0, 1.0)),
        "top_logprobs": seldom(r, 21, 0, 5),
        "reasoning": r.choice((None, {"effort": "low", "summary": "auto"})),
        "text": r.choice(
            (
                None,
                {"format": {"type": "text"}},
                {"format": {"type": "json_schema", "name": "n", "schema": schema(r)}, "verbosity": "low"},
            )
        ),
        "metadata": r.choice((None, {"a": "b"})),
        "store": r.choice((None, False, True)),
        "previous_response_id": seldom(r, "resp_1"),
        "truncation": r.choice((None, "auto", "disabled")),
        "include": r.choice((None, ["reasoning.encrypted_content"])),
        "background": seldom(r, True, False),
        "service_tier": r.choice((None, "auto", "flex")),
    }


# Chat Completions


def chat_part(r):
    return r.choice(
        (
            {"type": "text", "text": word(r)},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "x.pdf"}},
            {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
            {"type": "refusal", "refusal": word(r)},
        )
    )


def chat_message(r):
    content, call = r.choice((word(r), None, some(r, chat_part))), identifier(r)
    made = {"id": call, "type": "function", "function": {"name": r.choice(NAMES), "arguments": arguments(r)}}
    return r.choice(
        (
            {"role": r.choice(("user", "assistant", "system", "developer")), "content": content},
            {"role": "assistant", "content": content, "tool_calls": [made], "reasoning_content": word(r)},
            {"role": "tool", "tool_call_id": call, "content": content},
            seldom(
                r,
                {
                    "role": "assistant",
                    "tool_calls": [{"id": call, "type": "custom", "custom": {"name": "f", "input": word(r)}}],
                },
            )
            or seldom(r, {"role": "assistant", "function_call": made["function"]})
            or seldom(r, {"role": "function", "name": r.choice(NAMES), "content": content})
            or {"role": "user", "content": word(r)},
        )
    )


def chat_tool(r):
    name = r.choice(NAMES)
    return r.choice(
        (
            {
                "type": "function",
                "function": {"name": name, "description": word(r), "parameters": schema(r), "strict": True},
            },
            {"type": "function", "function": {"name": name}},
            {"type": "custom", "custom": {"name": name, "format": {"type": "text"}}},
        )
    )


def chat(r):
    return {
        "messages": some(r, chat_message, most=6),
        "tools": some(r, chat_tool),
        "tool_choice": r.choice(
            (None, "auto", "none", "required", {"type": "function", "function": {"name": r.choice(NAMES)}})
        ),
        "parallel_tool_calls": r.choice((None, True, False)),
        "max_tokens": seldom(r, 0, 5),
        "max_completion_tokens": r.choice((None, 5)),
        "stream_options": r.choice((None, {"include_usage": True}, {"include_usage": False})),
        "response_format": r.choice(
            (None, {"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "n", "schema": schema(r)}})
        ),
        "stop": r.choice((None, "x", ["x", "y"])),
        "n": seldom(r, 2, 1),
        "logprobs": r.choice((None, True)),
        "top_logprobs": r.choice((None, 3)),
        "logit_bias": r.choice((None, {"50256": -100})),
        "seed": r.choice((None, 7)),
        "reasoning_effort": r.choice((None, "high", "much")),
        "functions": r.choice((None, [{"name": "f", "parameters": schema(r)}])),
        "user": r.choice((None, word(r))),
    }


# Messages


def block(r):
    call = identifier(r)
    return r.choice(
        (
            {"type": "text", "text": word(r), "cache_control": {"type": "ephemeral"}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": word(r)}, "title": "t"},
            {"type": "tool_use", "id": call, "name": r.choice(NAMES), "input": r.choice(({}, {"query": "x"}))},
            {
                "type": "tool_result",
                "tool_use_id": call,
                "content": r.choice((word(r), [{"type": "text", "text": word(r)}])),
                "is_error": True,
            },
            {"type": "thinking", "thinking": word(r), "signature": word(r)},
            {"type": "redacted_thinking", "data": word(r)},
            {"type": "server_tool_use", "id": call, "name": "web_search", "input": {}},
        )
    )


def messages(r):
    return {
        "max_tokens": seldom(r, 0, 5) or 100,
        "messages": [
            {"role": r.choice(("user", "assistant")), "content": r.choice((word(r), some(r, block)))}
            for _ in range(r.randrange(6))
        ],
        "system": r.choice(
            (None, word(r), [{"type": "text", "text": word(r), "cache_control": {"type": "ephemeral"}}])
        ),
        "tools": [
            r.choice(
                (
                    {"name": r.choice(NAMES), "input_schema": schema(r)},
                    {"type": "web_search_20250305", "name": "web_search"},
                    {"type": "bash_20250124", "name": "bash"},
                )
            )
            for _ in range(r.randrange(3))
        ],
        "tool_choice": r.choice(
            (
                None,
                {"type": "auto"},
                {"type": "any", "disable_parallel_tool_use": True},
                {"type": "tool", "name": r.choice(NAMES)},
                {"type": "none"},
            )
        ),
        "thinking": r.choice((None, {"type": "enabled", "budget_tokens": 2000}, {"type": "adaptive"})),
        "temperature": r.choice((None, 0.5)),
        "top_k": r.choice((None, 5)),
        "stop_sequences": r.choice((None, ["x"])),
        "metadata": r.choice((None, {"user_id": "u"})),
        "output_config": r.choice((None, {"effort": "high"})),
    }


# Gemini


def gemini_part(r):
    call, name = identifier(r), r.choice(NAMES)
    return r.choice(
        (
            {"text": word(r)},
            {"text": word(r), "thought": True, "thoughtSignature": word(r)},
            {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
            {"file_data": {"mime_type": "application/pdf", "file_uri": "https://example.org/x.pdf"}},
            {
                "functionCall": {"id": call, "name": name, "args": r.choice(({}, {"query": "x"}))},
                "thoughtSignature": "U2ln",
            },
            {"function_call": {"name": name}},
            {
                "functionResponse": {
                    "id": call,
                    "name": name,
                    "response": r.choice(({"output": word(r)}, {"error": word(r)}, {})),
                }
            },
            {"executableCode": {"language": "PYTHON", "code": "1"}},
        )
    )


def gemini_content(r):
    return {"role": r.choice(("user", "model", None)), "parts": r.choice((some(r, gemini_part), gemini_part(r)))}


def gemini(r):
    declared = {
        "name": r.choice(NAMES),
        "description": word(r),
        r.choice(("parameters", "parametersJsonSchema")): schema(r),
    }
    config = {
        "mode": r.choice(("AUTO", "ANY", "NONE", "VALIDATED")),
        "allowedFunctionNames": r.choice(([], ["f"], ["f", "search"])),
    }
    return {
        "contents": r.choice((some(r, gemini_content, most=6), gemini_content(r))),
        "system_instruction": r.choice((None, {"parts": {"text": word(r)}})),
        "tools": r.choice(
            (None, [{"functionDeclarations": [declared]}], {"function_declarations": declared}, [{"googleSearch": {}}])
        ),
        "toolConfig": r.choice((None, {"functionCallingConfig": config})),
        "generationConfig": r.choice(
            (
                None,
                {"maxOutputTokens": 5, "temperature": 1, "topK": 5, "candidateCount": r.choice((1, 1, 2))},
                {"response_mime_type": "application/json", "response_schema": schema(r)},
                {"responseMimeType": "application/json", "responseJsonSchema": schema(r)},
                {
                    "thinkingConfig": {"thinkingBudget": r.choice((-1, 0, 9)), "includeThoughts": True},
                    "stopSequences": ["x"],
                },
            )
        ),
        "safetySettings": r.choice((None, [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}])),
    }


BODIES = {"responses": responses, "chat": chat, "messages": messages, "gemini": gemini}


def body_of(r, front):
    """The bytes of a request to that front."""
    filled = {name: value for name, value in BODIES[front](r).items() if value is not None or r.random() < 0.1}
    body = {"model": "m", "stream": r.random() < 0.5, **filled}
    share = r.choice((0, 0, 0, 0, 0.01, 0.02, 0.1))
    if share:
        body = spoilt(r, body, share)
        if isinstance(body, dict) and r.random() < 0.9:
            body["model"] = "m"
    data = json.dumps(body, ensure_ascii=r.random() < 0.5).encode()
    cut = r.random()
    return data[: r.randrange(len(data) + 1)] if cut < 0.02 else data + b"}" if cut < 0.03 else data


# What the backend does

CALL = [
    InvocationStarted(0, "call_9", "search"),
    ArgumentsPiece(0, '{"que'),
    ArgumentsPiece(0, 'ry":"x"}'),
    InvocationEnded(0, "call_9", "search", {"query": "x"}, '{"query":"x"}'),
]
REPLIES = (
    "Hello",
    "",
    'I look.\n<tool_call>\n{"name": "search", "arguments": {"query": "x"}}\n</tool_call>',
    '```json\n{"name": "f", "arguments": {}}',
    [ReplyStarted(), ReasoningPiece("hm"), TextPiece("Well."), *CALL, Usage(3, 2, 1, 1), ReplyEnded("invocations")],
    [ReplyStarted(), RefusalPiece("No."), ReplyEnded("refusal")],
    [ReplyStarted(), TextPiece("It"), ReplyEnded("length")],
    StatusReply(400, {"error": {"message": "this model does not support tools"}}),
    StatusReply(429, {"error": {"message": "slow down"}}, {"Retry-After": "2"}),
    StatusReply(500),
    Html(503),
    Raw(["{", "[DONE]"]),
    Raw(['{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]}']),
    Cut([ReplyStarted(), *CALL[:2]]),
)


def judged(front, answer):
    """Raises AssertionError for an answer that no client understands, or that says the gateway failed."""
    if answer.streamed:
        assert answer.status == 200
        assert answer.data.endswith(b"\n\n")
        kinds = [event.get("type") for event in answer.events]
        match front:
            case "responses":
                last = [kind in {"response.completed", "response.incomplete", "response.failed"} for kind in kinds]
            case "chat":
                last = [
                    "error" in event or bool(event["choices"] and event["choices"][0]["finish_reason"])
                    for event in answer.events
                ]
            case "gemini":
                last = ["error" in event or "finishReason" in event["candidates"][0] for event in answer.events]
            case _:
                last = [kind in {"message_stop", "error"} for kind in kinds]
        assert sum(last) == 1, answer
        assert b"internal_error" not in answer.data
        return
    assert answer.headers["content-type"] == "application/json", answer
    body = answer.body
    assert isinstance(body, dict)
    if answer.status == 200 and front == "gemini":
        assert body["candidates"][0]["finishReason"], answer
        return
    if answer.status == 200:
        assert body.get("object", body.get("type")) in {"response", "chat.completion", "message"}, answer
        return
    assert 400 <= answer.status < 600, answer
    error = body["error"]
    assert isinstance(error["message"], str)
    assert error["message"], answer
    if front == "messages":
        assert error["type"] in CODES["messages"], answer
        assert "its log says why" not in error["message"], answer
    elif front == "gemini":
        assert error["code"] == answer.status, answer
        assert "its log says why" not in error["message"], answer
    else:
        assert set(error) == {"message", "type", "param", "code"}, answer
        assert isinstance(error["code"], str), answer
        assert error["code"] != "internal_error", answer


class Fuzz:
    fronts = FRONTS
    replies = REPLIES
    body = staticmethod(body_of)
    judge = staticmethod(judged)

    @staticmethod
    def forget(served):
        """What was learned of the model from one request is not to hide what comes of the next."""
        for backend in served.gateway.backends:
            backend._learned.clear()
            backend._models.clear()


@pytest.fixture(scope="session")
def fuzz():
    """`fronts`, `replies` of a backend, `body(random, front)` in bytes, `judge(front, answer)`, `forget(served)`."""
    return Fuzz

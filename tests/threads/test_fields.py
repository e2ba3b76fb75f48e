"""What a client says or a backend answers that has no name in the core: nothing of it is lost unsaid."""

from __future__ import annotations

import json

from tests.tables import table
from tests.threads.passing import through

from callboard.testing import Raw

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def asked(front, *bodies, replies="Hello.", **facts):
    """What the gateway answers to each body in turn, and the bodies that its backend was sent."""
    replies = [replies] * len(bodies) if isinstance(replies, str) else replies
    return through(replies, *[(front, body) for body in bodies], **facts)


def function(schema, **more):
    return {"type": "function", "name": "f", "parameters": schema, **more}


TWICE = {
    "responses": lambda *schemas: {"model": "m", "input": "Hi", "tools": [function(each) for each in schemas]},
    "chat": lambda *schemas: {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": each}} for each in schemas],
    },
    "messages": lambda *schemas: {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"name": "f", "input_schema": each} for each in schemas],
    },
    "gemini": lambda *schemas: {
        "model": "m",
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": each} for each in schemas]}],
    },
}


# Probabilities of tokens.

TOKENS = [
    {
        "token": "Hel",
        "logprob": -0.25,
        "bytes": [72, 101, 108],
        "top_logprobs": [{"token": "Hel", "logprob": -0.25, "bytes": None}],
    },
    {"token": "lo.", "logprob": -0.5, "bytes": [108, 111, 46], "top_logprobs": []},
]
HEAD = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}


def reply(message, *, choice=(), **fields):
    """A whole reply of Chat Completions."""
    said = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop", **dict(choice)}
    return HEAD | {"choices": [said]} | fields


def streamed(*deltas, finish="stop", **fields):
    """The same, streamed: each delta with what its choice has besides."""
    chunks = [
        HEAD | {"object": "chat.completion.chunk", "choices": [{"index": 0, "finish_reason": None, **each}]} | fields
        for each in (*deltas, {"delta": {}, "finish_reason": finish})
    ]
    return Raw([*chunks, "[DONE]"])


WEIGHED = {
    False: lambda: Raw([reply({"content": "Hello."}, choice={"logprobs": {"content": TOKENS, "refusal": None}})]),
    True: lambda: streamed(
        *({"delta": {"content": each["token"]}, "logprobs": {"content": [each], "refusal": None}} for each in TOKENS)
    ),
}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


@table("stream", [False, True], ids=["whole", "streamed"])
def test_a_chat_client_gets_the_probabilities_that_it_asked_for(stream):
    body = {**CHAT, "logprobs": True, "top_logprobs": 1, "stream": stream}
    (answer,), (sent,) = asked("chat", body, replies=[WEIGHED[stream]()])
    assert (sent["logprobs"], sent["top_logprobs"]) == (True, 1)
    choices = [choice for event in (answer.events if stream else [answer.body]) for choice in event["choices"]]
    found = [each for choice in choices if choice.get("logprobs") for each in choice["logprobs"]["content"]]
    assert found == TOKENS
    assert "x-callboard-dropped" not in answer.headers


@table("stream", [False, True], ids=["whole", "streamed"])
def test_a_responses_client_gets_the_probabilities_of_a_chat_backend(stream):
    body = {"model": "m", "input": "Hi", "include": ["message.output_text.logprobs"], "stream": stream}
    (answer,), (sent,) = asked("responses", body, replies=[WEIGHED[stream]()])
    assert sent["logprobs"] is True
    response = answer.events[-1]["response"] if stream else answer.body
    assert response["output"][0]["content"][0]["logprobs"] == TOKENS
    if stream:
        pieces = [event for event in answer.events if event["type"] == "response.output_text.delta"]
        assert [each for event in pieces for each in event["logprobs"]] == TOKENS
        assert "".join(event["delta"] for event in pieces) == "Hello."


def test_a_chat_client_gets_the_probabilities_of_a_responses_backend():
    part = {"type": "output_text", "text": "Hello.", "annotations": [], "logprobs": TOKENS}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    whole = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
        "output": [item],
    }
    (answer,), (sent,) = asked("chat", {**CHAT, "logprobs": True}, replies=[Raw([whole])], wire="responses")
    assert sent["include"] == ["reasoning.encrypted_content", "message.output_text.logprobs"]
    assert answer.body["choices"][0]["logprobs"]["content"] == TOKENS


def test_probabilities_of_a_call_in_the_text_open_no_empty_message():
    text = '<tool_call>{"name": "f", "arguments": {"city": "Oslo"}}</tool_call>'
    tokens = [{"token": each, "logprob": -0.5, "bytes": None, "top_logprobs": []} for each in text]
    said = streamed(*({"delta": {"content": each["token"]}, "logprobs": {"content": [each]}} for each in tokens))
    body = {**TWICE["responses"](SCHEMA), "model": "Qwen/Qwen3-32B", "stream": True, "top_logprobs": 1}
    (answer,), _ = asked("responses", body, replies=[said])
    assert [item["type"] for item in answer.events[-1]["response"]["output"]] == ["function_call"]


# Other fields of a reply.

RICH = {
    "annotations": [
        {
            "type": "url_citation",
            "url_citation": {"url": "https://a.example", "title": "A", "start_index": 0, "end_index": 3},
        }
    ],
    "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}],
    "audio": {"id": "audio_1", "data": "AAAA", "transcript": "Hello.", "expires_at": 1},
}
BESIDES = {"system_fingerprint": "fp_1", "citations": ["https://a.example"], "provider": "P"}


def test_a_chat_client_gets_what_a_chat_backend_says_besides():
    whole = reply({"content": "Hello.", **RICH}, choice={"native_finish_reason": "STOP"}, **BESIDES)
    (answer,), _ = asked("chat", CHAT, replies=[Raw([whole])])
    (choice,) = answer.body["choices"]
    assert {name: answer.body.get(name) for name in BESIDES} == BESIDES
    assert ({name: choice["message"].get(name) for name in RICH}, choice["native_finish_reason"]) == (RICH, "STOP")
    assert "x-callboard-dropped" not in answer.headers


def test_a_chat_client_gets_it_streamed():
    said = streamed(
        {"delta": {"content": "Hello."}}, *({"delta": {name: value}} for name, value in RICH.items()), **BESIDES
    )
    (answer,), _ = asked("chat", {**CHAT, "stream": True}, replies=[said])
    deltas = [choice["delta"] for event in answer.events for choice in event["choices"]]
    assert [each for each in deltas if each.keys() & RICH.keys()] == [{name: value} for name, value in RICH.items()]
    for name, value in BESIDES.items():
        assert value in [event.get(name) for event in answer.events]


@table("front", ["responses", "messages"])
def test_what_another_wire_has_no_place_for_is_told_by_its_name(front):
    body = {"responses": {"model": "m", "input": "Hi"}, "messages": {**CHAT, "max_tokens": 9}}[front]
    (answer,), _ = asked(front, body, replies=[Raw([reply({"content": "Hello.", **RICH}, **BESIDES)])])
    assert (answer.status, answer.headers["x-callboard-dropped"]) == (200, "citations, annotations, images, audio")


# Calls in the text of a server whose own parser is off: the same calls, however the text is cut.

BOOK = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "nights": {"type": "integer"}, "tags": {"type": "array"}},
}
ARGUMENTS = [
    {"city": "Oslo", "nights": 30, "tags": ["a}}", {"b": "</tool_call>"}]},
    {"city": 'Åre "Ski"', "nights": 2, "tags": []},
]
XML = "".join(
    f"<tool_call>\n<function=f>\n<parameter=city>\n{each['city']}\n</parameter>\n<parameter=nights>\n{each['nights']}\n"
    f"</parameter>\n<parameter=tags>\n{json.dumps(each['tags'])}\n</parameter>\n</function>\n</tool_call>\n"
    for each in ARGUMENTS
)
HERMES = "".join(
    f"<tool_call>\n{json.dumps({'name': 'f', 'arguments': each}, ensure_ascii=False)}\n</tool_call>\n"
    for each in ARGUMENTS
)
SPELLED = {
    "qwen3_1568_hermes": ("Qwen/Qwen3-32B", HERMES),
    "vllm_35266_xml": ("Qwen/Qwen3.5-35B-A3B", XML),
}


@table("size", [1, 2, 3, 5, 8, 13, 10_000])
@table(("model", "text"), SPELLED.values(), ids=SPELLED)
def test_vllm_35266_qwen3_1568_every_argument_of_both_calls_comes_whole_however_the_text_is_cut(model, text, size):
    """In vLLM a brace was missing, or all but one argument, where a delta had several tokens."""
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    body = {**TWICE["chat"](BOOK), "model": model, "stream": True}
    (answer,), _ = asked("chat", body, replies=[streamed(*({"delta": {"content": each}} for each in pieces))])
    told: dict[int, str] = {}
    for call in [call for event in answer.events for call in event["choices"][0]["delta"].get("tool_calls") or ()]:
        told[call["index"]] = told.get(call["index"], "") + (call["function"].get("arguments") or "")
    assert [json.loads(each) for each in told.values()] == ARGUMENTS
    assert "".join(event["choices"][0]["delta"].get("content") or "" for event in answer.events).strip() == ""
    assert answer.events[-1]["choices"][0]["finish_reason"] == "tool_calls"


@table("stream", [False, True], ids=["whole", "streamed"])
def test_exo_1757_a_call_that_cannot_be_read_reaches_the_client_as_a_call_and_the_model_hears_of_it(stream):
    """The client answers such a call with an error, as any other that it cannot run; as text it would end its turn."""
    broken = '<tool_call>\n{"name": "f", "arguments": {"city": Oslo}}\n</tool_call>'
    body = {**TWICE["responses"](SCHEMA), "model": "Qwen/Qwen3-32B", "stream": stream}
    (answer,), _ = asked("responses", body, replies=[broken])
    response = answer.events[-1]["response"] if stream else answer.body
    (call,) = response["output"]
    assert (call["type"], call["name"], "Oslo" in call["arguments"]) == ("function_call", "f", True)
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "Error: the arguments are no JSON"}
    _, (sent,) = asked("responses", {**body, "input": [{"role": "user", "content": "Hi"}, call, result]})
    assert sent["messages"][-1]["content"] == "Error: the arguments are no JSON"
    assert "Oslo" in sent["messages"][-2]["tool_calls"][0]["function"]["arguments"]

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from tests.tables import table

from callboard.errors import CallerError
from callboard.testing import SERVERS, TEMPLATES, FakeBackend, Server, ServerRule

USER = {"role": "user", "content": "Weather in Oslo?"}
SYSTEM = {"role": "system", "content": "Be brief."}
REPLY = {"role": "assistant", "content": "It rains."}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "rain"}


def call(arguments: Any, **fields: Any) -> dict[str, Any]:
    """A past reply with one call."""
    function = {"name": "get_weather", "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": function}]} | fields


def chat(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages)} | fields


def gemini(*parts: Any) -> dict[str, Any]:
    """A question, the model's parts, and the result of the first call."""
    response = {"functionResponse": {"name": "get_weather", "response": {"result": "rain"}}}
    return {
        "contents": [
            {"role": "user", "parts": [{"text": "Weather?"}]},
            {"role": "model", "parts": list(parts)},
            {"role": "user", "parts": [response]},
        ]
    }


FUNCTION_CALL = {"functionCall": {"name": "get_weather", "args": {}}}
SIGNED_CALL = FUNCTION_CALL | {"thoughtSignature": "c2ln"}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
LINK = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
TEXT = {"type": "text", "text": "Hi"}
FILE = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}}


def tool(schema: Any, **fields: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "f", "parameters": schema} | fields}]


def numbered(count: int) -> list[dict[str, Any]]:
    """So many tools, each with a name of its own."""
    return [{"type": "function", "function": {"name": f"f{number}"}} for number in range(count)]


def with_property(schema: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}} | fields


def declared(schema: Any) -> dict[str, Any]:
    return gemini(SIGNED_CALL) | {"tools": [{"functionDeclarations": [{"name": "f", "parameters": schema}]}]}


TOOL = tool({"type": "object"})
NAMED = {"type": "function", "function": {"name": "f"}}
STRICT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
CUSTOM = [{"type": "custom", "custom": {"name": "f"}}]

# Each rule: a request that is refused, words of the refusal, and the nearest request that is taken.
CASES: dict[tuple[str, str], tuple[dict[str, Any], str, dict[str, Any]]] = {
    ("vllm", "past-arguments"): (
        chat(USER, call('{"contents": "'), RESULT),
        "Unterminated string starting at: line 1 column 14 (char 13)",
        chat(USER, call(""), RESULT),
    ),
    ("vllm", "known-parts"): (
        chat({"role": "user", "content": [FILE]}),
        "Unsupported chat content part type: 'file'. Supported types: audio_embeds, ",
        chat({"role": "user", "content": [TEXT, LINK]}),
    ),
    ("vllm", "some-tools"): (chat(USER, tools=[]), "`tools` must not be an empty array.", chat(USER)),
    ("vllm", "tool-choice"): (
        chat(USER, tool_choice="auto"),
        "When using `tool_choice`, `tools` must be set.",
        chat(USER, tool_choice="none"),
    ),
    ("vllm", "stream-options"): (
        chat(USER, stream_options={"include_usage": True}),
        "Stream options can only be defined when `stream=True`.",
        chat(USER),
    ),
    ("vllm-without-parser", "automatic-choice"): (
        chat(USER, tools=TOOL),
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        chat(USER, tools=TOOL, tool_choice="none"),
    ),
    ("llama.cpp", "content-or-calls"): (
        chat(USER, {"role": "assistant", "reasoning_content": "Hm."}, USER),
        "Assistant message must contain either 'content' or 'tool_calls'!",
        chat(USER, {"role": "assistant", "content": None}, USER),
    ),
    ("llama.cpp", "known-parts"): (
        chat({"role": "user", "content": [FILE]}),
        "unsupported content[].type",
        chat({"role": "user", "content": [TEXT]}),
    ),
    ("llama.cpp", "text-parts"): (
        chat({"role": "user", "content": [PICTURE]}),
        "image input is not supported",
        chat({"role": "user", "content": [TEXT]}),
    ),
    ("llama.cpp", "function-tools"): (
        chat(USER, tools=CUSTOM),
        'Failed to parse tools: Unsupported tool type: {"type": "custom"',
        chat(USER, tools=TOOL),
    ),
    ("llama.cpp", "tool-choice"): (
        chat(USER, tools=TOOL, tool_choice="any"),
        "Invalid tool_choice: any",
        chat(USER, tools=TOOL, tool_choice="required"),
    ),
    ("llama.cpp", "one-choice"): (
        chat(USER, n=2),
        "Field 'n': Value must be between 1 <= value <= 1, but got 2",
        chat(USER, n=1),
    ),
    ("llama.cpp", "logprobs"): (
        chat(USER, tools=TOOL, logprobs=True, stream=True),
        "logprobs is not supported with tools + stream",
        chat(USER, tools=TOOL, logprobs=True),
    ),
    ("llama.cpp", "past-arguments"): (
        chat(USER, call('{"a": 2, "b": '), RESULT),
        "parse error at line 1, column 15: syntax error while parsing value - unexpected end of input",
        chat(USER, call("[2]"), RESULT),
    ),
    ("llama.cpp", "one-reply-last"): (
        chat(USER, REPLY, REPLY),
        "Cannot have 2 or more assistant messages at the end of the list.",
        chat(USER, REPLY, REPLY, USER),
    ),
    ("llama.cpp", "schemas"): (
        chat(USER, tools=tool(with_property({"$ref": "#/$defs/x"}))),
        "JSON schema error at #/properties/a: cannot resolve $ref #/$defs/x, $defs not found",
        chat(USER, tools=tool(with_property({"$ref": "#/$defs/x"}, **{"$defs": {"x": {"type": "string"}}}))),
    ),
    ("llama.cpp-b8763", "no-prefill-with-thinking"): (
        chat(USER, REPLY),
        "Assistant response prefill is incompatible with enable_thinking.",
        chat(USER, REPLY, chat_template_kwargs={"enable_thinking": False}),
    ),
    ("llama.cpp-b8763", "anchored-patterns"): (
        chat(USER, tools=tool(with_property({"type": "string", "pattern": "^a"}))),
        "Pattern must start with '^' and end with '$'",
        chat(USER, tools=tool(with_property({"type": "string", "pattern": "^a$"}))),
    ),
    ("sglang", "some-messages"): (chat(), "Messages cannot be empty.", chat(USER)),
    ("sglang", "tool-choice"): (
        chat(USER, tools=TOOL, tool_choice={"type": "function", "function": {"name": "g"}}),
        "Tool 'g' not found in tools list.",
        chat(USER, tools=TOOL, tool_choice=NAMED),
    ),
    ("sglang", "past-arguments"): (
        chat(USER, call("[2, 3]"), RESULT),
        "Assistant tool call function.arguments must be a JSON object.",
        chat(USER, call("{}"), RESULT),
    ),
    ("sglang", "reasoning-effort"): (
        chat(USER, reasoning_effort="xhigh"),
        "Input should be 'low', 'medium' or 'high'",
        chat(USER, reasoning_effort="high"),
    ),
    ("ollama", "content"): (
        chat(USER, {"role": "assistant", "content": None}, USER),
        "invalid message content type: <nil>",
        chat(USER, call("{}", content=None), RESULT),
    ),
    ("ollama", "known-parts"): (
        chat({"role": "user", "content": [LINK]}),
        "invalid image input",
        chat({"role": "user", "content": [PICTURE]}),
    ),
    ("ollama", "past-arguments"): (
        chat(USER, call(""), RESULT),
        "invalid tool call arguments",
        chat(USER, call("{}"), RESULT),
    ),
    ("ollama", "reasoning-effort"): (
        chat(USER, reasoning_effort="xhigh"),
        'invalid reasoning value: \'xhigh\' (must be "high", "medium", "low", "max", or "none")',
        chat(USER, reasoning_effort="max"),
    ),
    ("ollama-without-thinking", "no-thinking"): (
        chat(USER, reasoning_effort="low"),
        '"m" does not support thinking',
        chat(USER, reasoning_effort="none"),
    ),
    ("deepseek", "known-roles"): (
        chat({"role": "developer", "content": "Be brief."}, USER),
        "messages[0].role: unknown variant `developer`, expected one of `system`, `user`",
        chat(SYSTEM, USER),
    ),
    ("deepseek", "reasoning-passed-back"): (
        chat(USER, call("{}", reasoning_content=""), RESULT),
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        chat(USER, call("{}", reasoning_content="Hm."), RESULT, REPLY, USER),
    ),
    ("deepseek", "text-results"): (
        chat(USER, call("{}", reasoning_content="Hm."), RESULT | {"content": [TEXT]}),
        "messages[2]: invalid type: sequence, expected a string",
        chat({"role": "user", "content": [TEXT]}, call("{}", reasoning_content="Hm."), RESULT),
    ),
    ("deepseek", "tool-choice"): (
        chat(USER, tools=TOOL, tool_choice="required"),
        "Thinking mode does not support this tool_choice",
        chat(USER, tools=TOOL, tool_choice="required", thinking={"type": "disabled"}),
    ),
    ("kimi", "reasoning-with-calls"): (
        chat(USER, call("{}"), RESULT),
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
        chat(USER, call("{}", reasoning_content=""), RESULT),
    ),
    ("kimi", "tool-choice"): (
        chat(USER, tools=TOOL, tool_choice=NAMED),
        "tool_choice 'specified' is incompatible with thinking enabled",
        chat(USER, tools=TOOL, tool_choice="auto"),
    ),
    ("kimi", "thinking-or-effort"): (
        chat(USER, thinking={"type": "enabled"}, reasoning_effort="high"),
        "cannot specify both 'thinking' and 'reasoning_effort'",
        chat(USER, thinking={"type": "enabled"}),
    ),
    ("minimax", "one-system"): (
        chat(SYSTEM, SYSTEM, USER),
        "invalid params, invalid chat setting (2013)",
        chat(SYSTEM, USER),
    ),
    ("mistral", "user-or-tool-last"): (
        chat(USER, REPLY),
        "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant",
        chat(USER, REPLY | {"prefix": True}),
    ),
    ("mistral", "no-user-after-tool"): (
        chat(USER, call("{}"), RESULT, USER),
        "Unexpected role 'user' after role 'tool'",
        chat(USER, call("{}"), RESULT, REPLY, USER),
    ),
    ("mistral", "no-more-fields"): (
        chat(USER, REPLY | {"reasoning_content": "Hm."}, USER),
        "reasoning_content",
        chat(USER, REPLY, USER, max_tokens=9),
    ),
    ("openai-o4", "no-parallel-option"): (
        chat(USER, tools=TOOL, parallel_tool_calls=False),
        "Unsupported parameter: 'parallel_tool_calls' is not supported with this model.",
        chat(USER, tools=TOOL),
    ),
    ("groq", "no-reasoning"): (
        chat(USER, REPLY | {"reasoning_content": "Hm."}, USER),
        "[('messages.1' : property 'reasoning_content' is unsupported)]",
        chat(USER, REPLY, USER),
    ),
    ("cerebras", "one-strictness"): (
        chat(USER, tools=[*tool(STRICT, strict=True), *numbered(1)]),
        "Tools with mixed values for 'strict' are not allowed.",
        chat(USER, tools=tool(STRICT, strict=True)),
    ),
    ("cerebras", "no-template-options"): (
        chat(USER, chat_template_kwargs={"enable_thinking": False}),
        "property 'chat_template_kwargs' is unsupported",
        chat(USER, reasoning_effort="none"),
    ),
    ("openai", "at-most-128-tools"): (
        chat(USER, tools=numbered(129)),
        "Expected an array with maximum length 128, but got an array with length 129 instead.",
        chat(USER, tools=numbered(128)),
    ),
    ("openai", "plain-roots"): (
        chat(USER, tools=tool({"type": "object", "anyOf": [{"required": ["a"]}]})),
        "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.",
        chat(USER, tools=tool(with_property({"anyOf": [{"type": "string"}, {"type": "null"}]}))),
    ),
    ("openai", "strict-schemas"): (
        chat(USER, tools=tool(STRICT | {"required": []}, strict=True)),
        "In context=(), 'required' is required to be supplied and to be an array including every key in properties.",
        chat(USER, tools=tool(STRICT, strict=True)),
    ),
    ("openai", "results"): (
        chat(USER, call("{}"), USER),
        "The following tool_call_ids did not have response messages: call_1",
        chat(USER, call("{}"), RESULT, USER),
    ),
    ("openai", "at-least-16-tokens"): (
        {"input": "Hi", "max_output_tokens": 15},
        "Expected a value >= 16, but got 15 instead.",
        {"input": "Hi", "max_output_tokens": 16},
    ),
    ("gemini", "signed-calls"): (
        gemini(FUNCTION_CALL),
        "Function call is missing a thought_signature in functionCall parts.",
        gemini({"text": "Let me see."}, SIGNED_CALL),
    ),
    ("gemini", "responses"): (
        gemini(SIGNED_CALL, FUNCTION_CALL),
        "Please ensure that the number of function response parts is equal to the number of function call parts",
        gemini(SIGNED_CALL),
    ),
    ("gemini", "schemas"): (
        declared(with_property({"type": "array", "items": {"type": "object", "additionalProperties": False}})),
        "'tools[0].function_declarations[0].parameters.properties[0].value.items': Cannot find field.",
        declared(with_property({"type": "array", "items": {"type": "object"}})),
    ),
    ("qwen3.5", "one-system-first"): (
        chat(SYSTEM, SYSTEM, USER),
        "System message must be at the beginning.",
        chat(SYSTEM, USER),
    ),
    ("qwen3.8", "efforts"): (
        chat(USER, reasoning_effort="high"),
        "Unexpected reasoning effort high. Supported types are xhigh (default), medium, and low.",
        chat(USER, reasoning_effort="none", chat_template_kwargs={"enable_thinking": False}),
    ),
    ("qwen3.5", "known-roles"): (
        chat({"role": "developer", "content": "Be brief."}, USER),
        "Unexpected message role.",
        chat(SYSTEM, USER),
    ),
    ("qwen3.5", "a-question"): (chat(SYSTEM), "No user query found in messages.", chat(SYSTEM, USER)),
    ("qwen3.5", "arguments-have-items"): (
        chat(USER, call("[2, 3]"), RESULT),
        "Can only get item pairs from a mapping.",
        chat(USER, call('{"a": 2}'), RESULT),
    ),
    ("gemma3", "roles-alternate"): (
        chat(SYSTEM, USER, USER),
        "Conversation roles must alternate user/assistant/user/assistant/...",
        chat(SYSTEM, USER, REPLY, USER),
    ),
}
# The older llama.cpp refuses some of what the newer one does in the same words.
CASES |= {
    ("llama.cpp-b8763", name): CASES["llama.cpp", name]
    for name in ("content-or-calls", "known-parts", "text-parts", "past-arguments", "one-reply-last")
}


def rules():
    named = [(name, rule) for name, server in SERVERS.items() for rule in server.rules]
    named += [(name, rule) for name, template in TEMPLATES.items() for rule in template]
    return {(name, rule.name): rule for name, rule in named}


PATHS = {"contents": "../v1beta/models/m:generateContent", "input": "responses"}
"""Those of other wires than Chat Completions, by a field that only their bodies have."""


def answers(strict: Any, *bodies: dict[str, Any]) -> list[tuple[int, dict[str, Any], str]]:
    """The status and the body of each answer, and the rule that refused; one reply is left after the last."""

    async def ask():
        async with FakeBackend(["Hello"] * len(bodies), strict=strict) as backend, aiohttp.ClientSession() as http:
            given = []
            for body in bodies:
                path = next((PATHS[field] for field in PATHS if field in body), "chat/completions")
                async with http.post(f"{backend.url}/{path}", json=body) as response:
                    given.append((response.status, await response.json(), backend.requests[-1].refused_by))
            return given

    return asyncio.run(ask())


def answer(strict: Any, body: dict[str, Any]) -> tuple[int, dict[str, Any], str]:
    return answers(strict, body)[0]


def test_every_rule_has_a_case_and_a_thread():
    assert rules().keys() == CASES.keys()
    assert all(rule.thread.startswith("https://") for rule in rules().values())


@table("case", CASES, ids="-".join)
def test_a_rule_refuses_what_the_server_refuses_and_no_more(case):
    refused, words, taken = CASES[case]
    (status, body, rule), (taken_status, _, no_rule) = answers(case[0], refused, taken)
    assert (status, rule) == (rules()[case].status, case[1])
    assert words in str((body.get("error") or body)["message"])
    assert (taken_status, no_rule) == (200, "")


@table(
    ("server", "status", "message", "form"),
    [
        ("vllm", 400, "{}", {"error": {"type": "BadRequestError", "param": None, "code": 400}}),
        ("sglang", 400, "{}", {"object": "error", "type": "BadRequestError", "param": None, "code": 400}),
        ("llama.cpp", 500, "Jinja Exception: {}", {"error": {"code": 500, "type": "server_error"}}),
        ("llama.cpp-b8763", 400, "Jinja Exception: {}", {"error": {"code": 400, "type": "invalid_request_error"}}),
    ],
)
def test_a_templates_refusal_is_worded_by_the_server_that_renders_it(server, status, message, form):
    answered, body, _ = answer((server, "qwen3.5"), chat(USER, SYSTEM))
    error = body.get("error") or body
    assert answered == status
    assert error.pop("message").endswith(message.format("System message must be at the beginning."))
    assert body == form


def test_llama_cpp_gives_a_template_developer_messages_as_system_messages():
    developer = {"role": "developer", "content": "Be brief."}
    first, later = answers(("llama.cpp", "qwen3.5"), chat(developer, USER), chat(SYSTEM, developer, USER))
    assert (first[2], later[2]) == ("", "one-system-first")


def test_a_refusal_names_the_parameter_as_the_server_does():
    _, body, _ = answer("openai", chat(USER, tools=TOOL * 129))
    assert body["error"]["code"] == "array_above_max_length"
    _, body, _ = answer("mistral", chat(USER, call("{}"), RESULT, USER))
    assert (body["object"], body["code"]) == ("error", "3230")


def test_own_rules_and_servers_stand_beside_named_ones():
    no_tools = ServerRule("no-tools", lambda body: "tools are not supported" if body.get("tools") else None, status=422)
    mine = Server("mine", (no_tools,), form=lambda status, message: {"detail": message})
    assert answer(mine, chat(USER, tools=TOOL)) == (422, {"detail": "tools are not supported"}, "no-tools")
    status, body, _ = answer(("vllm", no_tools), chat(USER, tools=TOOL))
    assert (status, body["error"]["type"]) == (422, "BadRequestError")
    assert (answer(("vllm", no_tools), chat(USER)))[0] == 200


def test_a_refused_request_gets_no_reply_of_the_script():
    refused, taken = answers("minimax", chat(SYSTEM, SYSTEM, USER), chat(SYSTEM, USER))
    assert refused[::2] == (400, "one-system")
    assert taken[1]["id"] == "fake-0"


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(CallerError, match=r"no strict server or template is named 'vlm'.*did you mean 'vllm'"):
        FakeBackend([], strict="vlm")


@table("server", [*SERVERS, *TEMPLATES])
@table(
    "body",
    [
        {"messages": None},
        {"messages": [1, {"role": 2, "content": [None]}]},
        chat({"role": "assistant", "tool_calls": {"a": 1}, "content": ""}, USER),
        chat({"role": "assistant", "tool_calls": [{"function": "f"}], "content": ""}, USER),
        {"contents": [{"role": "model", "parts": [{"functionCall": None}]}]},
        {"contents": 1, "tools": [{"functionDeclarations": [{"parameters": {"properties": {"a": [{"const": 1}]}}}]}]},
        chat(USER, tools=[1, {"function": {"parameters": {"properties": [], "anyOf": 1, "$ref": "#/a"}}}]),
        chat({"role": ["user"], "content": "Hi"}),
    ],
)
def test_a_body_of_any_shape_gets_an_answer(server, body):
    assert answer(server, body)[0] in (200, 400, 500)

"""What a refusal says of an endpoint: another request is tried, and only what helped is known."""

from __future__ import annotations

import asyncio
import json

from tests.tables import table

from callboard import access_model, core
from callboard.core import reply_events
from callboard.providers.lessons import MAX_TRIALS, refuses_tools, suggest_facts
from callboard.testing import FakeBackend, StatusReply

SAID = (
    core.SupervisorCanister("Be brief."),
    core.UserCanister("Hi"),
    core.AssistantCanister((core.ReasoningContent("Hm.", origin="m"), core.TextualContent("Hello."))),
    core.SupervisorCanister("Be kind."),
    core.UserCanister("And?"),
)
SCHEMA = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
TOOL = core.ToolDeclaration("add", schema=SCHEMA, strict=True)


def refusing(*rules):
    """A backend that refuses what a rule finds in a body, in its words."""

    def reply(body):
        return next((StatusReply(400, {"error": {"message": said}}) for fault, said in rules if fault(body)), "Fine.")

    return reply


def late_system(body):
    return any(each["role"] == "system" for each in body["messages"][1:])


def strict(body):
    return any("strict" in each["function"] for each in body.get("tools", ()))


def thought(field):
    return lambda body: any(field in each for each in body["messages"])


LATE = (late_system, "System message must be at the beginning.")
STRICT = (strict, "tools.0.function.strict: Extra inputs are not permitted")


def ask(replies, *, count=2, tools=(TOOL,), **profile):
    async def scenario():
        async with FakeBackend(replies) as backend:
            model = access_model(
                "m", base_url=backend.url, profile={"uses_tools": True, "reasoning_history": "all", **profile}
            )
            request = core.Request("m", SAID, tuple(tools))
            events = [[event async for event in reply_events(model, request)] for _ in range(count)]
            await model.aclose()
            return events, backend.requests

    return asyncio.run(scenario())


@table("stream", [False, True])
def test_what_helped_is_known_from_then_on(stream):
    (first, second), requests = ask(refusing(LATE, STRICT), supports_streaming=stream)
    assert isinstance(first[-1], core.ReplyEnded)
    assert isinstance(second[-1], core.ReplyEnded)
    assert len(requests) == 4  # refused twice, taken twice
    notes = [each.text for each in first if isinstance(each, core.Note)]
    assert notes == ["the endpoint refused a request: merge_system_messages=true, supports_strict=false from now on"]
    assert not [each for each in second if isinstance(each, core.Note)]
    texts = [each["content"] for each in requests[-1].body["messages"]]
    assert texts[0] == "Be brief."
    assert "Be kind." in texts[-2] + texts[-1]


def test_one_fact_after_the_other_is_tried():
    rules = [(thought(field), f"unknown field: {field}") for field in ("reasoning_content", "reasoning")]
    (first, _), requests = ask(refusing(*rules))
    assert isinstance(first[-1], core.ReplyEnded)
    assert len(requests) == 4
    assert not thought("reasoning")(requests[-1].body)


def test_nothing_is_known_unless_the_other_request_is_taken():
    (first, second), requests = ask(refusing((lambda _: True, "System message must be at the beginning")))
    assert isinstance(first[-1], core.ReplyFailed)
    assert isinstance(second[-1], core.ReplyFailed)
    assert len(requests) == 4
    assert late_system(requests[2].body)


def test_what_would_change_nothing_of_the_request_is_not_tried():
    (failed,), requests = ask(refusing((lambda _: True, "strict is not supported")), count=1, tools=())
    assert isinstance(failed[-1], core.ReplyFailed)
    assert len(requests) == 1


def test_a_refusal_that_names_everything_costs_few_requests():
    """A server may repeat what a client sent."""
    said = "system must be first, strict, stream_options, parallel_tool_calls, reasoning_content, content: unsupported"
    _, requests = ask(refusing((lambda _: True, said)), count=1)
    assert len(requests) <= MAX_TRIALS + 1


@table(
    ("said", "facts"),
    [
        ("System message must be at the beginning.", {"merge_system_messages": True}),
        ("Jinja Exception: System role not supported", {"supports_system_role": False}),
        ("Conversation roles must alternate user/assistant/user/assistant/...", {"requires_alternating_roles": True}),
        ("Unknown parameter: 'stream_options'.", {"reports_usage": False}),
        ("parallel_tool_calls is not supported with this model", {"supports_parallel_calls": False}),
        (
            "The reasoning_content in the thinking mode must be passed back to the API.",
            {"requires_reasoning_history": True, "reasoning_history": "tools"},
        ),
        ("messages[1].content: Input should be a valid string", {"supports_content_parts": False}),
        ("content must be a string", {"supports_content_parts": False}),
        (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            {"max_tokens_field": "max_completion_tokens"},
        ),
        ("Assistant response prefill is incompatible with enable_thinking.", {"prefill": "none"}),
        ("This model's maximum context length is 8192 tokens", {}),
        ("Rate limit reached", {}),
        ("Invalid API key", {}),
    ],
)
def test_the_words_of_servers(said, facts):
    assert next(suggest_facts(core.ReplyFailed("provider", "invalid_request", said), {}), {}) == facts


@table(
    "said",
    [
        # Ollama
        "registry.ollama.ai/library/gemma:2b does not support tools",
        '"gemma3:12b" does not support tools',
        # Anthropic, Bedrock
        "This model doesn't support tool use.",
        "This model doesn't support tool use in streaming mode.",
        # vLLM, SGLang, llama.cpp
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        'tool_choice="required" requires --tool-call-parser to be set',
        "Please set --tool-call-parser to use tools",
        "tools param requires --jinja flag",
        "Cannot use tools with stream",
        # OpenRouter
        "No endpoints found that support tool use. To learn more about provider routing, visit: https://openrouter.ai/docs",
        # OpenAI, Azure
        "Unsupported parameter: 'tools' is not supported with this model.",
        "Unrecognized request argument supplied: tools",
        "Unrecognized request arguments supplied: tool_choice, tools",
        "tools is not supported in this model. For a list of supported models, refer to https://go.microsoft.com/fwlink",
        "functions are not supported with this model",
        # Groq, Together, Fireworks, Mistral, DeepSeek, Cerebras, NVIDIA, xAI, SiliconFlow, DashScope, Novita
        "`tool calling` is not supported with this model",
        "`tools` is not supported for this model",
        "Function calling is not supported for this model",
        "This model does not support function calling",
        "Extra inputs are not permitted, field: 'tools', value: [{'type': 'function'}]",
        "Function calling is not enabled for this model",
        "deepseek-reasoner does not support Function Calling",
        "Tools are not currently supported for this model",
        "Tool use is currently not available for model llama3.1-8b",
        "Tool use has not been enabled, because it is unsupported by microsoft/phi-3-mini-4k-instruct.",
        "Client side tools are not supported for this model.",
        "Function call is not supported for this model.",
        "<400> InternalError.Algo.InvalidParameter: The tool call is not supported.",
        "model features function calling not support",
        # Gemini, and Google's parser of JSON
        "Function calling is not enabled for models/gemma-3-27b-it",
        "Tool use with function calling is unsupported by the model.",
        'Invalid JSON payload received. Unknown name "tools": Cannot find field.',
        # LM Studio, TGI, litellm, Perplexity, Cohere
        "Model does not support tools.",
        "Template error: template does not support tools",
        "litellm.UnsupportedParamsError: together_ai does not support parameters: ['tools'], for model=x/y.",
        '["At body -> tools: Extra inputs are not permitted"]',
        '[{"type":"extra_forbidden","loc":["body","tools"],"msg":"Extra inputs are not permitted"}]',
        "tools are not supported by this model",
        # servers of one's own
        'json: unknown field "tools"',
        "Additional properties are not allowed ('tools' was unexpected)",
        "got an unexpected keyword argument 'tools'",
        "Model m is not compatible with tool use",
        "The model has no tool calling support",
        "this model lacks support for tool calls",
        "Tool calling is disabled",
        "tools are only supported by larger models",
    ],
)
def test_the_words_of_servers_without_tools(said):
    assert refuses_tools(core.ReplyFailed("caller", "invalid_request_error", said, json.dumps({"error": said})))


@table(
    "said",
    [
        "Invalid schema for function 'find': In context=('properties', 'a'), 'oneOf' is not permitted.",
        "Invalid schema for function 'find': 'oneOf' is not permitted.",
        "Invalid 'tools[0].function.name': string does not match pattern. Expected a string that matches the pattern",
        "tools.0.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12",
        "tools.3.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
        "tools.0.function.strict: Extra inputs are not permitted",
        '[{"loc":["body","tools",0,"function","strict"],"msg":"Extra inputs are not permitted"}]',
        "Invalid JSON payload received. Unknown name \"additionalProperties\" at 'tools[0].function_declarations[0].parameters'",
        "* GenerateContentRequest.tools[0].function_declarations[0].parameters.properties[x].items: missing field.",
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.",
        "messages with role 'tool' must be a response to a preceding message with 'tool_calls'.",
        "No tool output found for function call call_1.",
        "No tool call found for function call output with call_id call_1.",
        "messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1.",
        "`tool_use` ids were found without `tool_result` blocks immediately after: toolu_1.",
        "tools: Tool names must be unique.",
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 200.",
        "image input is not supported",
        "The model `m` does not exist or you do not have access to it.",
        "This model does not support streaming",
        "temperature is not supported with this model",
        "roles must alternate user/assistant/user/assistant/...",
        "Rate limit reached for requests",
    ],
)
def test_words_that_are_not_about_tools(said):
    assert not refuses_tools(core.ReplyFailed("caller", "invalid_request_error", said, json.dumps({"error": said})))


def test_a_template_without_a_place_for_results():
    failed = core.ReplyFailed(
        "caller", "invalid_request_error", "roles must alternate user/assistant/user/assistant/..."
    )
    assert refuses_tools(failed, has_results=True)

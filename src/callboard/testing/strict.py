"""What real servers refuse: `FakeBackend(replies, strict="vllm")` refuses it too.

A `ServerRule` reads a request's body and answers with the words in which the real server refuses it, or None. A `Server` is
a name, its rules, and the form of its errors. Some refusals come from the chat template of a model and reach the
client through whichever server renders it: these are `TEMPLATES`, named beside a server, as in `("vllm", "qwen3.5")`.

Every rule names the thread that it comes from, and `versions` says where the refusal was seen. A rule is here only if
a thread, a documentation page or the server's source shows the refusal: a fake that refuses more than the real server
would make callers mend what is not broken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from callboard.errors import CallerError
from callboard.testing import refusals
from callboard.testing.refusals import Check
from callboard.text.suggest import suggest


class ServerRule(msgspec.Struct, frozen=True):
    """One thing that a server refuses.

    Attributes:
        name: What is asked of a request, in a few words with hyphens.
        check: Takes a request's body and returns the message of the refusal; None lets the request pass.
        thread: The address at which the refusal is shown.
        versions: Where it was seen; empty if the thread does not say.
        status: The HTTP status of the refusal.
        wire: The wire whose bodies are checked.
        fields: What the error object holds besides, or instead of, what the server's form gives.
        in_template: Whether the chat template refuses, so that the server's `template` words the message.
    """

    name: str
    check: Check
    thread: str = ""
    versions: str = ""
    status: int = 400
    wire: str = "chat"
    fields: Mapping[str, Any] = {}
    in_template: bool = False


# The forms of the servers' errors.


def _openai(status: int, message: str) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _vllm(status: int, message: str) -> dict[str, Any]:
    kind = "BadRequestError" if status < 500 else "InternalServerError"
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


def _llama_cpp(status: int, message: str) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"code": status, "message": message, "type": kind}}


def _sglang(status: int, message: str) -> dict[str, Any]:
    return {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": status}


def _mistral(_status: int, message: str) -> dict[str, Any]:
    content = json.loads(message) if message.startswith("{") else message
    return {"object": "error", "message": content, "type": "invalid_request_error", "param": None, "code": None}


def _deepseek(_status: int, message: str) -> dict[str, Any]:
    kind = "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


def _kimi(_status: int, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error"}}


def _gemini(status: int, message: str) -> dict[str, Any]:
    return {"error": {"code": status, "message": message, "status": "INVALID_ARGUMENT"}}


def _minimax(status: int, message: str) -> dict[str, Any]:
    error = {"type": "bad_request_error", "message": message, "http_code": str(status)}
    return {"type": "error", "error": error, "request_id": "06366cc7e530a985256ac3ac395c8cb6"}


class Server(msgspec.Struct, frozen=True):
    """A server's rules and the form of its errors.

    Attributes:
        name: As it is given to `strict`.
        rules: Asked in this order; the first refusal is the answer.
        form: Takes the status and the message and returns the body of the answer.
        template: How a chat template's exception is worded: `{}` stands for the template's own message.
        template_status: The status of a refusal by a chat template.
        roles: The roles that it gives to a chat template under another name.
    """

    name: str
    rules: tuple[ServerRule, ...] = ()
    form: Callable[[int, str], dict[str, Any]] = _openai
    template: str = "{}"
    template_status: int = 400
    roles: Mapping[str, str] = {}


Strict: TypeAlias = str | ServerRule | Server | Sequence[str | ServerRule | Server]


class StrictRefusal(msgspec.Struct, frozen=True):
    """The answer to a request that a rule refuses."""

    rule: ServerRule
    status: int
    body: Mapping[str, Any]


class Rulebook:
    """The rules of what `strict` names; its first server decides the form of the errors.

    Raises:
        CallerError: A name is neither in `SERVERS` nor in `TEMPLATES`.
    """

    def __init__(self, strict: Strict) -> None:
        named = strict if isinstance(strict, Sequence) and not isinstance(strict, str) else [strict]
        servers: list[Server] = []
        self._rules: list[ServerRule] = []
        for item in named:
            if isinstance(item, ServerRule):
                self._rules.append(item)
            elif isinstance(item, Server) or item in SERVERS:
                servers.append(item if isinstance(item, Server) else SERVERS[item])
                self._rules += servers[-1].rules
            elif item in TEMPLATES:
                self._rules += TEMPLATES[item]
            else:
                hint = suggest(item, [*SERVERS, *TEMPLATES])
                raise CallerError(f"no strict server or template is named {item!r}", path="strict", hint=hint)
        self._server = servers[0] if servers else Server("")

    def refuse(self, wire: str, body: refusals.Body) -> StrictRefusal | None:
        """The first rule's refusal of a body of that wire; None if each lets it pass."""
        rendered = {**body, "messages": [self._rename(message) for message in refusals.messages(body)]}
        for rule in self._rules:
            message = rule.check(rendered if rule.in_template else body) if rule.wire == wire else None
            if message is not None:
                return self._refusal(rule, message)
        return None

    def _rename(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        role = message.get("role")
        renamed = self._server.roles.get(role) if isinstance(role, str) else None
        return {**message, "role": renamed} if renamed else message

    def _refusal(self, rule: ServerRule, message: str) -> StrictRefusal:
        server = self._server
        status = server.template_status if rule.in_template else rule.status
        body = server.form(status, server.template.replace("{}", message) if rule.in_template else message)
        (body["error"] if isinstance(body.get("error"), dict) else body).update(rule.fields)
        return StrictRefusal(rule, status, body)


_LLAMA_CPP_SOURCE = "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/server-common.cpp"
_OLLAMA_SOURCE = "https://github.com/ollama/ollama/blob/main/openai/openai.go"
_SGLANG_SOURCE = "https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/entrypoints/openai/serving_chat.py"
_VLLM_SOURCE = "https://github.com/vllm-project/vllm/blob/main/vllm/entrypoints/openai/chat_completion/protocol.py"


def _issue(repository: str, number: int) -> str:
    return f"https://github.com/{repository}/issues/{number}"


_TOOLS = {"param": "tools", "code": "array_above_max_length"}
_PARAMETERS = {"param": "tools[0].function.parameters", "code": "invalid_function_parameters"}
_MEASURED = "b11549"

_LLAMA_CPP_RULES = (
    ServerRule("content-or-calls", refusals.content_or_calls, _LLAMA_CPP_SOURCE, _MEASURED),
    ServerRule("known-parts", refusals.parts_of_llama_cpp, _LLAMA_CPP_SOURCE, _MEASURED),
    ServerRule("text-parts", refusals.text_parts, _LLAMA_CPP_SOURCE, _MEASURED, status=500),
    ServerRule("function-tools", refusals.function_tools, _LLAMA_CPP_SOURCE, _MEASURED, status=500),
    ServerRule("tool-choice", refusals.choice_of_llama_cpp, _LLAMA_CPP_SOURCE, _MEASURED),
    ServerRule("one-choice", refusals.one_choice, _LLAMA_CPP_SOURCE, _MEASURED),
    ServerRule("logprobs", refusals.no_logprobs_of_streamed_calls, _LLAMA_CPP_SOURCE, _MEASURED),
    ServerRule(
        "past-arguments",
        refusals.past_arguments_of_llama_cpp,
        _issue("OpenHands/OpenHands", 13949),
        _MEASURED,
        status=500,
    ),
    ServerRule("one-reply-last", refusals.one_reply_last, _LLAMA_CPP_SOURCE, _MEASURED),
)

SERVERS: Mapping[str, Server] = {
    server.name: server
    for server in (
        Server(
            "vllm",
            (
                ServerRule(
                    "past-arguments",
                    refusals.past_arguments_of_vllm,
                    _issue("vllm-project/vllm", 47761),
                    "0.23 to 0.25.1; later ones read such arguments as {}",
                ),
                ServerRule("known-parts", refusals.parts_of_vllm, _VLLM_SOURCE),
                ServerRule("some-tools", refusals.some_tools, _VLLM_SOURCE, fields={"param": "tools"}),
                ServerRule("tool-choice", refusals.choice_of_vllm, _VLLM_SOURCE, fields={"param": "tool_choice"}),
                ServerRule(
                    "stream-options",
                    refusals.stream_options_of_a_stream,
                    _VLLM_SOURCE,
                    fields={"param": "stream_options"},
                ),
            ),
            _vllm,
        ),
        Server(
            "vllm-without-parser",
            (
                ServerRule(
                    "automatic-choice",
                    refusals.no_automatic_choice,
                    "https://docs.vllm.ai/en/latest/features/tool_calling.html",
                    "started without --enable-auto-tool-choice",
                ),
            ),
            _vllm,
        ),
        Server(
            "llama.cpp",
            (
                *_LLAMA_CPP_RULES,
                ServerRule("schemas", refusals.schemas_of_llama_cpp, _LLAMA_CPP_SOURCE, _MEASURED),
            ),
            _llama_cpp,
            "\n------------\nWhile executing CallExpression at line 85, column 32 in source:\n...\n"
            "Error: Jinja Exception: {}",
            template_status=500,
            roles={"developer": "system"},
        ),
        Server(
            "llama.cpp-b8763",
            (
                *(msgspec.structs.replace(rule, versions="b8763") for rule in _LLAMA_CPP_RULES[:3]),
                *(msgspec.structs.replace(rule, versions="b8763") for rule in _LLAMA_CPP_RULES[-2:]),
                ServerRule(
                    "no-prefill-with-thinking",
                    refusals.no_prefill_with_thinking,
                    _issue("ggml-org/llama.cpp", 20861),
                    "b8468 to b8763",
                ),
                ServerRule(
                    "anchored-patterns",
                    refusals.anchored_patterns,
                    _issue("ggml-org/llama.cpp", 26930),
                    "until b10217",
                ),
            ),
            _llama_cpp,
            "Unable to generate parser for this template. Automatic parser generation failed: \n------------\n"
            "While executing CallExpression at line 85, column 32 in source:\n...\nError: Jinja Exception: {}",
            roles={"developer": "system"},
        ),
        Server(
            "sglang",
            (
                ServerRule("some-messages", refusals.some_messages, _SGLANG_SOURCE),
                ServerRule("tool-choice", refusals.choice_of_sglang, _SGLANG_SOURCE),
                ServerRule(
                    "past-arguments",
                    refusals.past_arguments_of_sglang,
                    "https://github.com/sgl-project/sglang/pull/28035",
                ),
                ServerRule(
                    "reasoning-effort",
                    refusals.effort_is_one_of(
                        "low",
                        "medium",
                        "high",
                        words="1 validation error:\n  {{'type': 'literal_error', 'loc': ('body', 'reasoning_effort'), "
                        "'msg': \"Input should be 'low', 'medium' or 'high'\", 'input': '{}'}}",
                    ),
                    _issue("router-for-me/CLIProxyAPI", 1572),
                    "2026-02; later ones take none, xhigh and max",
                ),
            ),
            _sglang,
        ),
        Server(
            "ollama",
            (
                ServerRule("content", refusals.content_without_calls, _issue("pydantic/pydantic-ai", 5206)),
                ServerRule("known-parts", refusals.parts_of_ollama, _OLLAMA_SOURCE),
                ServerRule("past-arguments", refusals.past_arguments_of_ollama, _OLLAMA_SOURCE),
                ServerRule(
                    "reasoning-effort",
                    refusals.effort_is_one_of(
                        "high",
                        "medium",
                        "low",
                        "max",
                        "none",
                        words='invalid reasoning value: \'{}\' (must be "high", "medium", "low", "max", or "none")',
                    ),
                    "https://github.com/ollama/ollama/pull/17252",
                    "0.32.1",
                ),
            ),
            _openai,
        ),
        Server(
            "deepseek",
            (
                ServerRule("known-roles", refusals.roles_of_deepseek, _issue("decolua/9router", 773)),
                ServerRule(
                    "reasoning-passed-back", refusals.reasoning_passed_back, _issue("earendil-works/pi", 3636), "V4"
                ),
                ServerRule(
                    "text-results", refusals.text_results, "https://github.com/Gitlawb/openclaude/pull/806", "2026-04"
                ),
                ServerRule("tool-choice", refusals.choice_of_deepseek, _issue("deepseek-ai/DeepSeek-V3", 1376), "V4"),
            ),
            _deepseek,
        ),
        Server(
            "kimi",
            (
                ServerRule(
                    "reasoning-with-calls",
                    refusals.reasoning_with_calls,
                    _issue("continuedev/continue", 11600),
                    "K2.5",
                ),
                ServerRule("tool-choice", refusals.choice_of_kimi, _issue("can1357/oh-my-pi", 827), "K2.6"),
                ServerRule(
                    "thinking-or-effort", refusals.thinking_or_effort, _issue("HKUDS/nanobot", 3939), "K2.5, K2.6"
                ),
            ),
            _kimi,
        ),
        Server(
            "minimax",
            (ServerRule("one-system", refusals.one_system, _issue("openclaw/openclaw", 19386), "M2, M2.5"),),
            _minimax,
        ),
        Server(
            "mistral",
            (
                ServerRule(
                    "user-or-tool-last",
                    refusals.user_or_tool_last,
                    _issue("huggingface/smolagents", 757),
                ),
                ServerRule(
                    "no-more-fields",
                    refusals.no_more_fields,
                    _issue("charmbracelet/crush", 1590),
                    "reasoning_content; max_completion_tokens in eca#231",
                    status=422,
                ),
                ServerRule(
                    "no-user-after-tool",
                    refusals.no_user_after_tool,
                    "https://github.com/avante-corp/avante.nvim/pull/2695",
                    fields={"type": "invalid_request_message_order", "code": "3230"},
                ),
            ),
            _mistral,
        ),
        Server(
            "openai",
            (
                ServerRule(
                    "at-most-128-tools", refusals.at_most_128_tools, _issue("vishalmysore/Tools4AI", 16), fields=_TOOLS
                ),
                ServerRule(
                    "plain-roots",
                    refusals.plain_roots,
                    _issue("nspady/google-calendar-mcp", 39),
                    fields=_PARAMETERS,
                ),
                ServerRule(
                    "strict-schemas", refusals.strict_schemas, _issue("camel-ai/camel", 2231), fields=_PARAMETERS
                ),
                ServerRule("results", refusals.results_of_every_call, _issue("BerriAI/litellm", 10083)),
                ServerRule(
                    "at-least-16-tokens",
                    refusals.at_least_16_tokens,
                    _issue("vectorize-io/hindsight", 58),
                    wire="responses",
                    fields={"param": "max_output_tokens", "code": "integer_below_min_value"},
                ),
            ),
            _openai,
        ),
        Server(
            "openai-o4",
            (
                ServerRule(
                    "no-parallel-option",
                    refusals.no_parallel_option,
                    _issue("evalstate/fast-agent", 279),
                    "o1, o3-mini, o4-mini",
                    fields={"param": "parallel_tool_calls", "code": "unsupported_parameter"},
                ),
            ),
            _openai,
        ),
        Server(
            "groq",
            (
                ServerRule(
                    "no-reasoning",
                    refusals.no_reasoning_for_groq,
                    _issue("NousResearch/hermes-agent", 11089),
                    "2026-09",
                ),
            ),
            _kimi,
        ),
        Server(
            "cerebras",
            (
                ServerRule(
                    "one-strictness",
                    refusals.one_strictness,
                    _issue("RooCodeInc/Roo-Code", 10334),
                    fields={"param": "tools", "code": "wrong_api_format"},
                    status=422,
                ),
            ),
            _openai,
        ),
        Server(
            "gemini",
            (
                ServerRule(
                    "signed-calls",
                    refusals.signed_calls,
                    _issue("nanbingxyz/5ire", 405),
                    "Gemini 3 and newer",
                    wire="gemini",
                ),
                ServerRule(
                    "responses", refusals.as_many_responses, _issue("google-gemini/gemini-cli", 16984), wire="gemini"
                ),
                ServerRule("schemas", refusals.schemas_of_gemini, _issue("felinics/Memoh", 620), wire="gemini"),
            ),
            _gemini,
        ),
    )
}

TEMPLATES: Mapping[str, tuple[ServerRule, ...]] = {
    "qwen3.5": (
        ServerRule(
            "one-system-first",
            refusals.one_system_first,
            _issue("vllm-project/vllm", 41114),
            "Qwen 3.5, 3.6 and 3.8",
            in_template=True,
        ),
        ServerRule("known-roles", refusals.roles_of_qwen, _issue("ogx-ai/ogx", 6069), in_template=True),
        ServerRule("a-question", refusals.a_question, _issue("vllm-project/vllm", 36432), "Qwen 3.5", in_template=True),
        ServerRule(
            "arguments-have-items",
            refusals.arguments_have_items,
            _issue("QwenLM/Qwen3.8", 117),
            "Qwen 3 Coder, Qwen 3.5",
            in_template=True,
        ),
    ),
    "gemma3": (
        ServerRule(
            "roles-alternate",
            refusals.roles_alternate,
            _issue("suitenumerique/conversations", 197),
            "Gemma 3",
            in_template=True,
        ),
    ),
}

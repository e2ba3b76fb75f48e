"""Learn facts about a model's endpoint from its refusals.

Each lesson has the words in which servers refuse what others take, and the facts of a profile that follow.
Law: the words of a refusal are only a reason to ask once more, because a server may repeat the client's own words. A
fact is known when the other request succeeds.
Sources: vllm#41114, llama.cpp#20733, litellm#39852, openclaw#19386 (system messages); litellm#16143, avante.nvim#2695
(roles); 5ire#405 (signatures); openai-python#2184 (max_tokens); ollama#17252, CLIProxyAPI#1572 (efforts);
OpenWhispr#831, toponymy#148, free-claude-code#89 (fields of chat templates);
DeepSeek-V3#1376, oh-my-pi#827 (forced calls); the endpoints' own answers for the optional fields.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from callboard.core import Note, ReplyFailed, ToolDeclaration
from callboard.errors import ProviderError
from callboard.profiles import Resolution
from callboard.providers.transport import HttpResponse, Transport

STATUSES: Final = frozenset({400, 404, 405, 415, 422, 500, 501})
"""With which a request is refused for what is in it; templates that raise are a 500 with llama.cpp."""
MAX_TRIALS: Final = 4
"""Refusals of one request that are learned from."""
_NOT_TAKEN: Final = (
    r"(?:not|n't) (?:\w+ ){0,2}(?:known|support|allow|permit|accept|valid|expect|recogni)|unsupported|unknown|unexpected"
    r"|unrecogni[sz]ed|invalid|extra (?:inputs|fields)|forbidden|no longer"
)
_ALTERNATE: Final = (
    r"roles? must alternate|alternate user|consecutive (?:user|assistant)|alternating roles|unexpected role"
)
_TOOLS: Final = r"['\"`\[]*\b(?:tools?|functions?|function_calls?)\b(?:[ _-](?:us(?:e|age)|calls?|calling|choice)\b|_choice\b)?['\"`\]]*"
_TAKEN: Final = r"(?:support|enabl|allow|permit|accept|implement|availab|compatib|capab)"
_TOOL_REFUSAL: Final = re.compile(
    # "does not support tools", "cannot use tools", "not compatible with tool use"
    rf"(?:\bnot|n't|\bunable to|\bcannot)\W(?:\w+\W){{0,2}}?(?:{_TAKEN}\w*|used?|call|handle)[\W_]+(?:\w+[\W_]+){{0,3}}?{_TOOLS}"
    # "tool use is currently not available", "functions are unsupported", ["body", "tools"] "Extra inputs are not permitted"
    rf"|{_TOOLS}\W+(?:\w+\W+){{0,4}}?(?:(?:not|n't|only)\W(?:\w+\W){{0,2}}?{_TAKEN}|unsupported|disabled|forbidden)"
    # "unrecognized request argument supplied: tools", "unknown field: tools"
    r"|\b(?:unknown|unexpected|unrecogni[sz]ed|unsupported|extra|additional)\W+(?:\w+\W+){0,5}?"
    r"(?:tools|functions|tool_choice|function_call)\b"
    # "no endpoints found that support tool use", "lacks support for tool calls"
    r"|\b(?:no|lacks?|without) (?=[^.]{0,50}\b(?:tool|function))(?:[\w-]+ ){0,4}support"
    # servers that have to be started with a flag
    r"|\btools?\b.{0,60}\brequires? --|--jinja\b|--enable-auto-tool-choice|--tool-call-parser",
    re.IGNORECASE | re.DOTALL,
)
"""Words in which servers say that a model takes no tools. `refuses_tools` reads them."""
_ONE_TOOL: Final = re.compile(
    r"(?:tools|declarations)['\"]?\s*[\[.,]\s*\d|\b(?:invalid|input_|json |in |the )schema\b|\bschema (?:for|of)\b",
    re.IGNORECASE,
)
"""Words about a place within one tool, which another mode would not cure."""


class Lesson(NamedTuple):
    """`facts` follow where each of `words` is found in the refusal, in any order and case."""

    facts: Mapping[str, Any]
    words: tuple[str, ...]


LESSONS: Final = (
    Lesson(
        {"merge_system_messages": True},
        (
            r"\bsystem\b",
            r"must be (?:at|the) |at the (?:start|beginning)|(?:come|be) first|only (?:one|the first)|multiple|more than one",
        ),
    ),
    Lesson(
        {"supports_system_role": False}, (r"system (?:role|message|instruction|prompt)s?|role.{0,20}system", _NOT_TAKEN)
    ),
    Lesson(
        {"requires_alternating_roles": True},
        (_ALTERNATE,),
    ),
    Lesson({"merge_system_messages": True}, (rf"{_ALTERNATE}|invalid chat setting",)),
    Lesson(
        {"dummy_signature": "skip_thought_signature_validator"},
        (r"thought_signature", r"missing|required|must have"),
    ),
    Lesson({"supports_forced_calls": False}, (r"\btool_choice\b", f"{_NOT_TAKEN}|incompatible")),
    Lesson({"supports_strict": False}, (r"\bstrict\b", _NOT_TAKEN)),
    Lesson({"supports_streaming": False}, (r"\bstream(?:ing|ed)?\b", _NOT_TAKEN)),
    Lesson({"reports_usage": False}, (r"stream_options|include_usage", f"{_NOT_TAKEN}|only")),
    Lesson({"supports_parallel_calls": False}, (r"parallel[_ ]tool[_ ]calls", _NOT_TAKEN)),
    Lesson(
        {"requires_reasoning_history": True, "reasoning_history": "tools"},
        (r"reasoning[_ ]content|thinking", r"must be passed|missing|required|must (?:contain|have)"),
    ),
    Lesson({"reasoning_field": "reasoning"}, (r"\breasoning_content\b", _NOT_TAKEN)),
    Lesson({"reasoning_field": ""}, (r"\breasoning(?:_content)?\b", _NOT_TAKEN)),
    Lesson(
        {"supports_content_parts": False},
        (
            r"\bcontent\b|multi-?modal|\bimage",
            rf"(?:must|should) be (?:a |of type )?(?:valid )?str|expected (?:a )?str|type.{{0,30}}string|{_NOT_TAKEN}",
        ),
    ),
    Lesson(
        {"thinking_on": {}, "thinking_off": {}},
        (r"chat_template|enable_thinking|thinking_budget|['\"`.:] ?thinking\b", _NOT_TAKEN),
    ),
    Lesson({"efforts": ("minimal", "low", "medium", "high", "xhigh")}, (r"reasoning is mandatory",)),
    Lesson(
        {"efforts": ("low", "medium", "high")},
        (r"reasoning[_ .](?:effort|value)|\beffort\b", rf"{_NOT_TAKEN}|(?:must|should) be"),
    ),
    Lesson(
        {"efforts": ("",)},
        (r"reasoning[_ .](?:effort|value)|\beffort\b|\b(?:not|n't) support thinking\b", _NOT_TAKEN),
    ),
    Lesson({"max_tokens_field": "max_completion_tokens"}, (r"\bmax_tokens\b", r"\bmax_completion_tokens\b")),
    Lesson(
        {"prefill": "none"},
        (
            r"assistant (?:message|response)|prefill|last (?:message|role)",
            rf"{_NOT_TAKEN}|incompatible|must (?:be|end)|cannot",
        ),
    ),
)
"""In the order in which they are tried; of two for one fact, or with the same words, the second is for where the first
did not help: a second system message breaks the turns as well."""


def suggest_facts(failed: ReplyFailed, known: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The facts of which a refusal may speak.

    Args:
        failed: The refusal.
        known: Facts that were learned for the request already.

    Yields:
        Facts of a profile that belong together.
    """
    text = f"{failed.message} {failed.excerpt}"
    free = set().union(*[lesson.facts for lesson in LESSONS]) - known.keys()
    for lesson in LESSONS:
        if lesson.facts.items() <= known.items():
            free |= lesson.facts.keys()
        elif lesson.facts.keys() <= free and all(_pattern(words).search(text) for words in lesson.words):
            yield lesson.facts


def refuses_tools(failed: ReplyFailed, *, has_results: bool = False) -> bool:
    """Whether a refusal suggests that the model takes no tools on the wire.

    Args:
        failed: The refusal.
        has_results: Whether the conversation has results of calls. Some templates have no place for these and say that
            the roles do not alternate.
    """
    text = f"{failed.message} {failed.excerpt}"
    if has_results and _pattern(_ALTERNATE).search(text):
        return True
    return _TOOL_REFUSAL.search(text) is not None and _ONE_TOOL.search(text) is None


def _pattern(words: str) -> re.Pattern[str]:
    return re.compile(words, re.IGNORECASE)  # kept by `re`


_LIST_SECONDS: Final = 3.0
_MAX_LIST: Final = 1024 * 1024
_MAX_NAMES: Final = 10
_VERSION: Final = re.compile(r"/v\d+\w*(/|$)")
MAX_TOOLS: Final = 128
MAX_DESCRIPTION: Final = 1024
_MAX_NAMED: Final = 3
"""OpenAI's limits for tools and descriptions. Other endpoints accept more, so this is only a hint."""


async def with_hint(
    failed: ReplyFailed,
    answer: HttpResponse,
    resolution: Resolution,
    *,
    base_url: str,
    headers: Mapping[str, str],
    transport: Transport,
) -> ReplyFailed:
    """The failure with the URL and the status of the answer, and with what helps against its kind."""
    path = f"{answer.where} answered {answer.status}"
    hint = ""
    if answer.status in (401, 403):
        variable = resolution.profile.key_variable
        hint = f"is the key in {variable} right?" if variable else "is its key in CALLBOARD_API_KEY, or in api_key=?"
    elif answer.status == 404 or answer.content_type == "text/html":
        names = await _list_models(f"{base_url}/models", headers, transport)
        if names and resolution.model not in names:
            hint = f"no model {resolution.model} is there; there are {_short(names)}"
        elif not names and not _VERSION.search(base_url):
            hint = "did you forget /v1 at the end of its base URL?"
        else:
            hint = "is it the URL of an API, without the path of a request?"
    return msgspec.structs.replace(failed, path=path, hint=hint)


async def _list_models(url: str, headers: Mapping[str, str], transport: Transport) -> list[str]:
    """The models that an endpoint lists; none where it does not."""
    try:
        async with asyncio.timeout(_LIST_SECONDS), transport.get(url, headers=headers) as answer:
            listing: Any = msgspec.json.decode(await answer.read(_MAX_LIST))
        return [str(each["id"]) for each in listing["data"]]
    except (ProviderError, TimeoutError, msgspec.MsgspecError, UnicodeError, LookupError, TypeError):
        return []


def _short(names: list[str]) -> str:
    return ", ".join(names[:_MAX_NAMES]) + (f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else "")


def suspect_tools(tools: Sequence[ToolDeclaration]) -> Iterator[Note]:
    """Yield a Note for each exceeded limit, with advice."""
    if len(tools) > MAX_TOOLS:
        choose = "a server's `tools` or `exclude` chooses among them"
        yield Note("alert", f"{len(tools)} tools are declared, and some endpoints take {MAX_TOOLS}: {choose}")
    if long := [tool.name for tool in tools if len(tool.description) > MAX_DESCRIPTION]:
        names = ", ".join([*long[:_MAX_NAMED], *(["…"] if len(long) > _MAX_NAMED else [])])
        which = f"the descriptions of {len(long)} tools are" if len(long) > 1 else "the description of one tool is"
        shorter = "a server's `description_bytes` makes them shorter"
        yield Note(
            "alert",
            f"{which} longer than {MAX_DESCRIPTION} characters, and some endpoints refuse that ({names}): {shorter}",
        )

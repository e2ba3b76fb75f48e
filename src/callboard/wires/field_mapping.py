"""Translate what a client asked for on one wire for a backend on another.

Encoders carry what has a name in the core. These tables are about the other fields: which have the same meaning
elsewhere, and which mean nothing to a backend.
Law: each field of `Request.extra`, and of its tools', is translated, named as lost, or in the tables of those that need
neither. Constant work a field and a content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from callboard import core
from callboard.wires.common.contents import content_kind, message_fields, original_item
from callboard.wires.common.tool_declarations import NAMESPACE_TEXT

LONGEST_USER = 64
"""Characters that OpenAI takes for a user; Claude Code's has about 150."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


BUDGETS: Mapping[str, int] = {"minimal": 512, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 24576}
"""Tokens by effort. Google defines the values for low, medium and high."""


def effort_of(budget: int) -> str:
    """The least effort that has the budget, in tokens; `high` for all above it, `none` for none."""
    if budget <= 0:
        return "none"
    return next((effort for effort, most in BUDGETS.items() if budget <= most), "high")


class WireField(msgspec.Struct, frozen=True):
    """A field of a wire that another wire has too."""

    path: str
    """Such as `text.verbosity`."""
    values: tuple[tuple[Any, Any], ...] = ()
    """Pairs of a common value and this wire's; where there are any, no others can be translated."""
    fit: Callable[[Any], Any] | None = None
    """Gives the value as the wire takes it, None where it does not."""
    companions: Mapping[str, Any] = _NOTHING
    """Fields that have to be set with it."""

    def decode(self, value: Any) -> Any:
        return next((ours for ours, theirs in self.values if theirs == value), None) if self.values else value

    def encode(self, value: Any) -> Any:
        if self.values:
            return next((theirs for ours, theirs in self.values if ours == value), None)
        return self.fit(value) if self.fit is not None else value


def _short_user(value: Any) -> Any:
    return value if isinstance(value, str) and len(value) <= LONGEST_USER else None


def _same_path(path: str, fit: Callable[[Any], Any] | None = None) -> dict[str, WireField]:
    """A field that has the same path on OpenAI's two wires."""
    return dict.fromkeys(("responses", "chat"), WireField(path, fit=fit))


_JSON = {"type": "json_object"}

_LOGPROBS = "include.logprobs"
"""An entry of the list `include`."""
_LOGPROBS_INCLUDED = "message.output_text.logprobs"
_ENCRYPTED = "reasoning.encrypted_content"

SHARED_FIELDS: tuple[Mapping[str, WireField], ...] = (
    _same_path("metadata"),
    _same_path("user", _short_user) | {"messages": WireField("metadata.user_id")},
    _same_path("safety_identifier", _short_user) | {"messages": WireField("metadata.user_id")},
    _same_path("service_tier")
    | {
        "messages": WireField("service_tier", values=(("default", "standard_only"),)),
        "gemini": WireField(
            "serviceTier", values=(("default", "standard"), ("flex", "flex"), ("priority", "priority"))
        ),
    },
    _same_path("prompt_cache_key"),
    _same_path("prompt_cache_retention"),
    _same_path("prompt_cache_options.mode"),
    _same_path("prompt_cache_options.ttl"),
    _same_path("moderation"),
    {"responses": WireField("text.verbosity"), "chat": WireField("verbosity")},
    {
        "responses": WireField("text.format", values=((_JSON, _JSON),)),
        "chat": WireField("response_format", values=((_JSON, _JSON),)),
        "gemini": WireField("generationConfig.responseMimeType", values=((_JSON, "application/json"),)),
    },
    {
        "responses": WireField("top_logprobs", companions={_LOGPROBS: True}),
        "chat": WireField("top_logprobs", companions={"logprobs": True}),
    },
    {"responses": WireField(_LOGPROBS), "chat": WireField("logprobs")},
    {"chat": WireField("frequency_penalty"), "gemini": WireField("generationConfig.frequencyPenalty")},
    {"chat": WireField("presence_penalty"), "gemini": WireField("generationConfig.presencePenalty")},
    {
        "messages": WireField(
            "top_k", fit=lambda value: int(value) if isinstance(value, float) and value.is_integer() else value
        ),
        "gemini": WireField("generationConfig.topK"),
    },
)
"""Fields without a name in the core, by the wires that have them. If two become one field, the first counts."""

IGNORED_FIELDS = frozenset(
    {
        "cache_control",  # other providers cache the beginning of a conversation automatically
        "generationConfig.thinkingConfig.includeThoughts",  # thoughts are sent if the backend sends them
        "include",
        "messages.content.cache_control",
        "previous_response_id",
        "reasoning.generate_summary",
        "reasoning.summary",
        "store",
        "stream_options",
        "thinking.display",
        "tools.cache_control",
    }
)
"""Fields that mean nothing to a backend: they are between the gateway and its client."""

HINTS = frozenset(
    {
        "client_metadata",
        "context_management",
        "generationConfig.topK",
        "metadata",
        "metadata.user_id",
        "prompt_cache_key",
        "prompt_cache_options.mode",
        "prompt_cache_options.ttl",
        "prompt_cache_retention",
        "reasoning.context",
        "safety_identifier",
        "thinking.budget_tokens",  # the effort says about the same
        "tools.defer_loading",  # the tool is declared at once
        "top_k",
        "user",
    }
)
"""Fields that may be lost without a change of what is asked: they are about the client, its provider's cache and work."""


def loses_meaning(dropped: str) -> bool:
    """Whether a model is asked for something else without this part of a request."""
    return dropped not in HINTS and not dropped.startswith(NAMESPACE_TEXT)


DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    "background": (False,),
    "frequency_penalty": (0,),
    "generationConfig.candidateCount": (1,),
    "generationConfig.frequencyPenalty": (0,),
    "generationConfig.presencePenalty": (0,),
    "generationConfig.responseLogprobs": (False,),
    "generationConfig.responseModalities": (["TEXT"],),
    "generationConfig.thinkingConfig.thinkingBudget": (-1, 0),
    "generationConfig.thinkingConfig.thinkingLevel": ("MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"),
    "logit_bias": ({},),
    "logprobs": (False,),
    "metadata": ({},),
    "modalities": (["text"],),
    "n": (1,),
    "presence_penalty": (0,),
    "prompt_cache_options.mode": ("implicit",),
    "reasoning.context": ("auto",),
    "reasoning.mode": ("standard",),
    "serviceTier": ("unspecified",),
    "service_tier": ("auto",),
    "speed": ("standard",),
    "thinking.type": ("adaptive", "enabled"),
    "tools.defer_loading": (False,),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}
"""Values that ask for what happens anyway, or that the core's effort expresses."""

_OBJECTS: Mapping[str, frozenset[str]] = {
    "responses": frozenset({"prompt_cache_options", "reasoning", "text"}),
    "chat": frozenset({"prompt_cache_options", "tools.function"}),
    "messages": frozenset({"metadata", "output_config", "thinking"}),
    "gemini": frozenset({"generationConfig", "generationConfig.thinkingConfig", "toolConfig"}),
}
"""Objects whose fields are translated one by one."""

_WITH_LOGPROBS = frozenset({"responses", "chat"})
_SERVER_FIELDS = frozenset(
    {
        "cost",
        "kv_transfer_params",
        "matched_stop",
        "native_finish_reason",
        "prompt_token_ids",
        "provider",
        "service_tier",
        "stop_reason",
        "system_fingerprint",
        "timings",
        "token_ids",
    }
)
"""Fields of replies about the server and its work."""
_MESSAGES = "messages"
_DEFERRED = "defer_loading"
_REFERENCE = "tool_reference"
_SEARCHES = "tool_search_tool"
"""The prefix of the kinds of Anthropic's own tools that find deferred ones."""
_FILE = "file_id"
_SIGNS = frozenset({"responses", "messages", "gemini"})
"""Wires whose providers sign or seal reasoning."""
_SEPARATOR = "|"
"""Between the wire on which reasoning was signed and its model."""
_ONE_STORE = frozenset({"responses", "chat"})
"""Wires whose files have one name at their provider."""


def translate_request(request: core.Request, front: str, back: str) -> tuple[core.Request, tuple[str, ...]]:
    """Translate a request of the wire `front` for the wire `back`.

    Returns:
        The request, and the paths of the fields that are lost.

    Paths are `front`'s, such as `text.verbosity`. Paths of tools' fields begin with `tools.`. A tool that Anthropic
    would load when the conversation refers to it is declared from then on. Contents under a `file_id`,
    which only their provider has, are left out.
    """
    if front == back:
        return request, ()
    unmapped = dict(_requested_fields(request.extra, front))
    included = request.extra.get("include")
    if front == "responses" and isinstance(included, list) and _LOGPROBS_INCLUDED in included:
        unmapped[_LOGPROBS] = True
    controls = _effort_of_budget(request.controls, unmapped)
    fields: dict[str, Any] = {}
    for meaning in SHARED_FIELDS:
        here, there = meaning.get(front), meaning.get(back)
        if here is None or there is None or here.path not in unmapped or there.path in fields:
            continue
        value = here.decode(unmapped[here.path])
        if value is not None and (value := there.encode(value)) is not None:
            fields |= {there.path: value, **there.companions}
            for path in (here.path, *here.companions):
                unmapped.pop(path, None)
    tools = _loaded_tools(request)
    for tool in tools:  # their encoders leave out what is another wire's
        unmapped.update(_requested_fields(tool.extra.get(front, _NOTHING), front, "tools."))
    canisters = [_own_signatures(each, back) if _has_reasoning(each) else each for each in request.canisters]
    remaining, dropped = _drop_provider_bound(canisters, files=not {front, back} <= _ONE_STORE)
    unmapped.update(dict.fromkeys(dropped, True))
    unmapped.update((path, True) for path in message_fields(front, request.canisters) if path not in IGNORED_FIELDS)
    tokens = {"include": [_ENCRYPTED, _LOGPROBS_INCLUDED]} if fields.pop(_LOGPROBS, False) else {}
    extra = nest_fields(fields) | tokens
    return msgspec.structs.replace(request, canisters=remaining, tools=tools, extra=extra, controls=controls), tuple(
        unmapped
    )


def untranslated_fields(events: Iterable[core.Event], front: str) -> list[str]:
    """The names of a reply's fields that the wire `front` lacks, without those about the server and its work."""
    fields: list[str] = []
    for event in events:
        if type(event) is core.Logprobs and front not in _WITH_LOGPROBS:
            fields.append("logprobs")
        elif type(event) is core.ReplyExtra and event.wire != front:
            fields += [name for name in (*event.fields, *event.choice, *event.message) if name not in _SERVER_FIELDS]
    return fields


def mark_signatures(events: list[core.Event], front: str, back: str) -> list[core.Event]:
    """Mark the reasoning of a reply for a client of the wire `front` as signed on the wire `back`.

    When the client sends it back, `translate_request` keeps only the signatures that the backend's provider can open.
    It drops signatures of other providers and signatures that a client invented.
    """
    if front == back or back not in _SIGNS or not any(type(event) is core.ReasoningPiece for event in events):
        return events
    return [
        msgspec.structs.replace(event, origin=f"{back}{_SEPARATOR}{event.origin}")
        if type(event) is core.ReasoningPiece
        else event
        for event in events
    ]


def _has_reasoning(canister: core.Canister) -> bool:
    return isinstance(canister, core.AssistantCanister) and any(
        type(part) is core.ReasoningContent for part in canister.content
    )


def _own_signatures(canister: Any, back: str) -> Any:
    """The canister with the signatures of the wire `back` only."""
    content = [_own(part, back) if type(part) is core.ReasoningContent else part for part in canister.content]
    return msgspec.structs.replace(canister, content=tuple(content))


def _own(part: core.ReasoningContent, back: str) -> core.ReasoningContent:
    wire, mark, origin = part.origin.partition(_SEPARATOR)
    if mark and wire == back:
        return msgspec.structs.replace(part, origin=origin)
    return msgspec.structs.replace(part, opaque="") if part.opaque else part


def _loaded_tools(request: core.Request) -> tuple[core.ToolDeclaration, ...]:
    """The tools that are in Anthropic's prompt: deferred ones after the others, in the order in which they were found.

    All of them, where Anthropic itself searches for tools.
    """
    deferred = {tool.name: tool for tool in request.tools if tool.extra.get(_MESSAGES, _NOTHING).get(_DEFERRED)}
    if not deferred or any(tool.kind.startswith(_SEARCHES) for tool in request.hosted):
        return request.tools
    names = dict.fromkeys([name for name in _referenced_names(request) if name in deferred])
    loaded = [tool for tool in request.tools if tool.name not in deferred]
    for tool in [deferred[name] for name in names]:
        fields = {name: value for name, value in tool.extra[_MESSAGES].items() if name != _DEFERRED}
        loaded.append(msgspec.structs.replace(tool, extra={**tool.extra, _MESSAGES: fields}))
    return tuple(loaded)


def _referenced_names(request: core.Request) -> Iterator[str]:
    """The names of tools that are called, chosen, or found by a search."""
    for canister in request.canisters:
        if isinstance(canister, core.InvocationCanister):
            yield canister.name
            continue
        for part in canister.content:
            block = part.extra.get(_MESSAGES) if part.extra else None
            if isinstance(block, Mapping) and block.get("type") == _REFERENCE:
                yield str(block.get("tool_name"))
    if isinstance(request.tool_choice, core.NamedTool):
        yield request.tool_choice.name


def _drop_provider_bound(
    canisters: Sequence[core.Canister], *, files: bool
) -> tuple[tuple[core.Canister, ...], list[str]]:
    """The canisters without contents that only their provider can read, and their kinds; stored files only if `files`."""
    remaining: list[core.Canister] = []
    dropped: list[str] = []
    for canister in canisters:
        if isinstance(canister, core.InvocationCanister):
            remaining.append(canister)
            continue
        bound = [_provider_bound_kind(content, files=files) for content in canister.content]
        dropped += filter(None, bound)
        if any(bound):
            content = tuple([part for part, only in zip(canister.content, bound, strict=True) if not only])
            if content or not isinstance(canister, core.AssistantCanister):  # a reply without a word is refused
                remaining.append(msgspec.structs.replace(canister, content=content))
        else:
            remaining.append(canister)
    return (tuple(remaining), dropped) if dropped else (tuple(canisters), dropped)


def _provider_bound_kind(content: Any, *, files: bool) -> str:
    """The kind of a content that only its provider can read; "" for any other."""
    if not content.extra:
        return ""
    if original_item(content) is not None:
        return content_kind(content)
    if not (files and isinstance(content, core.PictureContent | core.FileContent)) or content.data or content.url:
        return ""
    return _FILE if content.extra.get(_FILE) else ""


def _requested_fields(fields: Mapping[str, Any], wire: str, within: str = "") -> Iterator[tuple[str, Any]]:
    """The fields that ask for something, by path."""
    objects = _OBJECTS.get(wire, frozenset())
    for name, value in fields.items():
        path = within + name
        if path in objects and isinstance(value, Mapping):
            yield from _requested_fields(value, wire, f"{path}.")
        elif not (value is None or path in IGNORED_FIELDS or value in DEFAULTS.get(path, ())):
            yield path, value


def _effort_of_budget(controls: core.Controls, fields: Mapping[str, Any]) -> core.Controls:
    """The controls, with the effort of a budget of Anthropic's where they have none."""
    budget = fields.get("thinking.budget_tokens")
    if controls.effort is not None or type(budget) is not int:
        return controls
    return msgspec.structs.replace(controls, effort=effort_of(budget))


def nest_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A body with these fields, by path."""
    body: dict[str, Any] = {}
    for path, value in fields.items():
        *objects, name = path.split(".")
        inner = body
        for each in objects:
            inner = inner.setdefault(each, {})
        inner[name] = value
    return body

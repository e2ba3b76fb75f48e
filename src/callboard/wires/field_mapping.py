"""What a client asks for on one wire, on its way to a backend on another.

Owns which fields of a body mean the same elsewhere, and which mean nothing behind a gateway. Knows nothing of what
has a name in the core, for encoders carry that, nor of what a backend makes of a field.
Law: each field of `Request.extra`, and of its tools', is carried, named as lost, or in the tables of those that need
neither. Constant work a field and a content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from callboard.core import (
    AssistantCanister,
    Canister,
    Controls,
    Event,
    FileContent,
    InvocationCanister,
    Logprobs,
    NamedTool,
    PictureContent,
    ReasoningContent,
    ReasoningPiece,
    ReplyExtra,
    Request,
    ToolDeclaration,
)
from callboard.wires.common.contents import content_kind, message_fields, original_item
from callboard.wires.efforts import effort_of

LONGEST_USER = 64
"""Characters that OpenAI takes for a user; Claude Code's has about 150."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Place(msgspec.Struct, frozen=True):
    """Where a wire says something, such as `text.verbosity`.

    `words` are pairs of a value on its way and this wire's; where there are any, no other can be said. `fit` gives
    the value as the wire takes it, None where it does not. `besides` has to be said with it.
    """

    path: str
    words: tuple[tuple[Any, Any], ...] = ()
    fit: Callable[[Any], Any] | None = None
    besides: Mapping[str, Any] = _NOTHING

    def heard(self, value: Any) -> Any:
        return next((ours for ours, theirs in self.words if theirs == value), None) if self.words else value

    def said(self, value: Any) -> Any:
        if self.words:
            return next((theirs for ours, theirs in self.words if ours == value), None)
        return self.fit(value) if self.fit is not None else value


def _user(value: Any) -> Any:
    return value if isinstance(value, str) and len(value) <= LONGEST_USER else None


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _same(path: str, **elsewhere: str) -> Mapping[str, Place]:
    """What OpenAI's two wires say in one place."""
    return {wire: Place(where) for wire, where in {"responses": path, "chat": path, **elsewhere}.items()}


_JSON = {"type": "json_object"}

_LOGPROBS = "include.logprobs"
"""Stands for an entry of the list `include`."""
_LOGPROBS_INCLUDED = "message.output_text.logprobs"
_ENCRYPTED = "reasoning.encrypted_content"

SHARED_FIELDS: tuple[Mapping[str, Place], ...] = (
    _same("metadata"),
    {
        "responses": Place("user", fit=_user),
        "chat": Place("user", fit=_user),
        "messages": Place("metadata.user_id"),
    },
    {
        "responses": Place("safety_identifier", fit=_user),
        "chat": Place("safety_identifier", fit=_user),
        "messages": Place("metadata.user_id"),
    },
    {
        "responses": Place("service_tier"),
        "chat": Place("service_tier"),
        "messages": Place("service_tier", words=(("default", "standard_only"),)),
        "gemini": Place("serviceTier", words=(("default", "standard"), ("flex", "flex"), ("priority", "priority"))),
    },
    _same("prompt_cache_key"),
    _same("prompt_cache_retention"),
    _same("prompt_cache_options.mode"),
    _same("prompt_cache_options.ttl"),
    _same("moderation"),
    {"responses": Place("text.verbosity"), "chat": Place("verbosity")},
    {
        "responses": Place("text.format", words=((_JSON, _JSON),)),
        "chat": Place("response_format", words=((_JSON, _JSON),)),
        "gemini": Place("generationConfig.responseMimeType", words=((_JSON, "application/json"),)),
    },
    {
        "responses": Place("top_logprobs", besides={_LOGPROBS: True}),
        "chat": Place("top_logprobs", besides={"logprobs": True}),
    },
    {"responses": Place(_LOGPROBS), "chat": Place("logprobs")},
    {"chat": Place("frequency_penalty"), "gemini": Place("generationConfig.frequencyPenalty")},
    {"chat": Place("presence_penalty"), "gemini": Place("generationConfig.presencePenalty")},
    {"messages": Place("top_k", fit=_whole), "gemini": Place("generationConfig.topK")},
)
"""What has no name in the core, by the wires that can say it. Of two that meet in one place the first counts."""

IGNORED_FIELDS = frozenset(
    {
        "cache_control",  # other providers keep the beginning of a conversation without being told
        "generationConfig.thinkingConfig.includeThoughts",  # thoughts are told where the backend tells them
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
"""Fields that mean nothing behind a gateway: they are between it and its client."""

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
"""Values that ask for what is done anyway, or that the core's effort says."""

_OBJECTS: Mapping[str, frozenset[str]] = {
    "responses": frozenset({"prompt_cache_options", "reasoning", "text"}),
    "chat": frozenset({"prompt_cache_options", "tools.function"}),
    "messages": frozenset({"metadata", "output_config", "thinking"}),
    "gemini": frozenset({"generationConfig", "generationConfig.thinkingConfig", "toolConfig"}),
}
"""Objects whose fields are looked at one by one."""

_TELLS_LOGPROBS = frozenset({"responses", "chat"})
_OF_THE_SERVER = frozenset(
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
"""Fields of replies by which servers tell how they worked."""
_MESSAGES = "messages"
_DEFERRED = "defer_loading"
_REFERENCE = "tool_reference"
_SEARCHES = "tool_search_tool"
"""How the kinds of Anthropic's own tools begin that find deferred ones."""
_FILE = "file_id"
_SIGNS = frozenset({"responses", "messages", "gemini"})
"""Wires whose providers sign or seal what their models think."""
_ON = "|"
"""Stands between the wire on which something was signed and the model that thought it."""
_ONE_STORE = frozenset({"responses", "chat"})
"""Wires whose files have one name at their provider."""


def translate_request(request: Request, front: str, back: str) -> tuple[Request, tuple[str, ...]]:
    """The request that came over the wire `front`, for the wire `back`, and the paths of the fields that are lost.

    Paths are `front`'s, such as `text.verbosity`; those of tools' fields begin with `tools.`. A tool that Anthropic
    would load when the conversation refers to it is declared from then on. Contents that only their provider has,
    under a `file_id`, are left out.
    """
    if front == back:
        return request, ()
    left = dict(_asked(request.extra, front))
    included = request.extra.get("include")
    if front == "responses" and isinstance(included, list) and _LOGPROBS_INCLUDED in included:
        left[_LOGPROBS] = True
    controls = _thinking(request.controls, left)
    told: dict[str, Any] = {}
    for meaning in SHARED_FIELDS:
        here, there = meaning.get(front), meaning.get(back)
        if here is None or there is None or here.path not in left or there.path in told:
            continue
        value = here.heard(left[here.path])
        if value is not None and (value := there.said(value)) is not None:
            told |= {there.path: value, **there.besides}
            for path in (here.path, *here.besides):
                left.pop(path, None)
    tools = _loaded(request)
    for tool in tools:  # their encoders leave out what is another wire's
        left.update(_asked(tool.extra.get(front, _NOTHING), front, "tools."))
    canisters: Sequence[Canister] = request.canisters
    if any(map(_thinks, canisters)):
        canisters = tuple([_own_signatures(each, back) if _thinks(each) else each for each in canisters])
    canisters, lost = _without_bound(canisters, files=not {front, back} <= _ONE_STORE)
    left.update(dict.fromkeys(lost, True))
    left.update((path, True) for path in message_fields(front, request.canisters) if path not in IGNORED_FIELDS)
    tokens = {"include": [_ENCRYPTED, _LOGPROBS_INCLUDED]} if told.pop(_LOGPROBS, False) else {}
    extra = _nested(told) | tokens
    return msgspec.structs.replace(request, canisters=canisters, tools=tools, extra=extra, controls=controls), tuple(
        left
    )


def untranslated_fields(events: Iterable[Event], front: str) -> list[str]:
    """The fields of a reply that a client of the wire `front` cannot be told, by their names.

    What a server says of itself and its work is none.
    """
    fields: list[str] = []
    for event in events:
        if type(event) is Logprobs and front not in _TELLS_LOGPROBS:
            fields.append("logprobs")
        elif type(event) is ReplyExtra and event.wire != front:
            fields += [name for name in (*event.fields, *event.choice, *event.message) if name not in _OF_THE_SERVER]
    return fields


def mark_signatures(events: list[Event], front: str, back: str) -> list[Event]:
    """The events of a reply for a client of the wire `front`, whose reasoning says that it was signed on the wire `back`.

    Who reads it again (`translate_request`) knows by that what another provider signed, or a client made up, and sends only what
    this one can open.
    """
    if front == back or back not in _SIGNS or not any(type(event) is ReasoningPiece for event in events):
        return events
    return [
        msgspec.structs.replace(event, origin=f"{back}{_ON}{event.origin}") if type(event) is ReasoningPiece else event
        for event in events
    ]


def _thinks(canister: Canister) -> bool:
    return isinstance(canister, AssistantCanister) and any(type(part) is ReasoningContent for part in canister.content)


def _own_signatures(canister: Any, back: str) -> Any:
    """With the signatures only that were given on the wire `back`."""
    content = [_own(part, back) if type(part) is ReasoningContent else part for part in canister.content]
    return msgspec.structs.replace(canister, content=tuple(content))


def _own(part: ReasoningContent, back: str) -> ReasoningContent:
    wire, mark, origin = part.origin.partition(_ON)
    if mark and wire == back:
        return msgspec.structs.replace(part, origin=origin)
    return msgspec.structs.replace(part, opaque="") if part.opaque else part


def _loaded(request: Request) -> tuple[ToolDeclaration, ...]:
    """The tools that are in Anthropic's prompt, those that were found behind the others, in the order in which they were.

    All, where it is Anthropic that would search for them.
    """
    deferred = {tool.name: tool for tool in request.tools if tool.extra.get(_MESSAGES, _NOTHING).get(_DEFERRED)}
    if not deferred or any(tool.kind.startswith(_SEARCHES) for tool in request.hosted):
        return request.tools
    found = dict.fromkeys([name for name in _referred(request) if name in deferred])
    loaded = [tool for tool in request.tools if tool.name not in deferred]
    return (*loaded, *[_plain(deferred[name]) for name in found])


def _plain(tool: ToolDeclaration) -> ToolDeclaration:
    fields = {name: value for name, value in tool.extra[_MESSAGES].items() if name != _DEFERRED}
    return msgspec.structs.replace(tool, extra={**tool.extra, _MESSAGES: fields})


def _referred(request: Request) -> Iterator[str]:
    """The names of tools that are called, chosen, or found by a search."""
    for canister in request.canisters:
        if isinstance(canister, InvocationCanister):
            yield canister.name
            continue
        for part in canister.content:
            block = part.extra.get(_MESSAGES) if part.extra else None
            if isinstance(block, Mapping) and block.get("type") == _REFERENCE:
                yield str(block.get("tool_name"))
    if isinstance(request.tool_choice, NamedTool):
        yield request.tool_choice.name


def _without_bound(canisters: Sequence[Canister], *, files: bool) -> tuple[tuple[Canister, ...], list[str]]:
    """The canisters without what only their provider can read, and what that was; stored files only if `files`."""
    left: list[Canister] = []
    lost: list[str] = []
    for canister in canisters:
        if isinstance(canister, InvocationCanister):
            left.append(canister)
            continue
        bound = [_bound_to(content, files=files) for content in canister.content]
        lost += filter(None, bound)
        if any(bound):
            content = tuple([part for part, only in zip(canister.content, bound, strict=True) if not only])
            if content or not isinstance(canister, AssistantCanister):  # a reply without a word is refused
                left.append(msgspec.structs.replace(canister, content=content))
        else:
            left.append(canister)
    return (tuple(left), lost) if lost else (tuple(canisters), lost)


def _bound_to(content: Any, *, files: bool) -> str:
    """What a content is that means something to its provider alone; empty for any other."""
    if not content.extra:
        return ""
    if original_item(content) is not None:
        return content_kind(content)
    if not (files and isinstance(content, PictureContent | FileContent)) or content.data or content.url:
        return ""
    return _FILE if content.extra.get(_FILE) else ""


def _asked(fields: Mapping[str, Any], wire: str, within: str = "") -> Iterator[tuple[str, Any]]:
    """The fields that ask for something, by their paths."""
    objects = _OBJECTS.get(wire, frozenset())
    for name, value in fields.items():
        path = within + name
        if path in objects and isinstance(value, Mapping):
            yield from _asked(value, wire, f"{path}.")
        elif not (value is None or path in IGNORED_FIELDS or value in DEFAULTS.get(path, ())):
            yield path, value


def _thinking(controls: Controls, left: Mapping[str, Any]) -> Controls:
    """The controls, with the effort of a budget of Anthropic's where they have none."""
    budget = left.get("thinking.budget_tokens")
    if controls.effort is not None or type(budget) is not int:
        return controls
    return msgspec.structs.replace(controls, effort=effort_of(budget))


def _nested(told: Mapping[str, Any]) -> dict[str, Any]:
    """Paths as the objects that they lead through."""
    body: dict[str, Any] = {}
    for path, value in told.items():
        *objects, name = path.split(".")
        inner = body
        for each in objects:
            inner = inner.setdefault(each, {})
        inner[name] = value
    return body

"""Adapt a request and its conversation to what a model's chat template and its endpoint accept.

The facts of the profile change it in this order: the last message, instructions, roles, reasoning.
Laws: no text is lost or moved. Canisters that need no change stay the same object. The last message is the model's
only if the request asks the model to continue that message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import is_
from typing import Any

from msgspec.structs import replace

from callboard import core
from callboard.core import EFFORTS, contents
from callboard.loop import GO_ON
from callboard.profiles import Profile
from callboard.wires.chat.content import split_media
from callboard.wires.chat.encode_messages import CHAT_PREFILLS, ChatCapabilities
from callboard.wires.common.contents import contents_with_title
from callboard.wires.common.encoded_request import EncodedRequest
from callboard.wires.common.group_turns import tag_instructions
from callboard.wires.field_mapping import BUDGETS, nest_fields
from callboard.wires.wire import Wire

CONTINUE = "Go on from exactly where your last message ends, without repeating it."
"""Added after a message that the reply should continue, if the endpoint cannot continue messages."""
NOT_RECORDED = "(not recorded)"
"""Reasoning of a turn that must have some, if the real reasoning is lost or was sealed by another model."""
HAVE_RESULTS = "I have the results."
"""Added between results and the next user message, if roles must alternate."""
_MODELS = (core.AssistantCanister, core.InvocationCanister)
_PREFILLS = {"messages": frozenset({"last"}), "chat": frozenset(CHAT_PREFILLS) - {"last"}}
"""Ways in which a wire's clients ask for a continuation of the last message, and its servers understand."""
_APART = frozenset({"messages", "gemini"})
"""Wires that send the leading instructions outside the messages, in any number of parts."""
_OWN_ITEMS = {"messages": "messages", "responses": "item"}
"""The key of a content's `extra` under which a wire keeps what its provider's own tools did."""

Canisters = Sequence[core.Canister]


def adapt_history(request: core.Request, facts: Profile) -> tuple[core.Request, tuple[str, ...]]:
    """Return the request with its conversation adapted to the profile, and the names of dropped parts."""
    canisters, prefill, dropped = _close_history(request.canisters, request, facts)
    for rule in _RULES:
        canisters = rule(canisters, request, facts)
    if facts.wire == "messages" and _cannot_think(canisters, request):
        extra = {name: value for name, value in request.extra.items() if name != "thinking"}
        request, dropped = replace(request, extra=extra), (*dropped, "thinking")
    if canisters is request.canisters and prefill == request.prefill:
        return request, dropped
    return replace(request, canisters=canisters, prefill=prefill), dropped


# Instructions.


def _one_system(canisters: Canisters, _: core.Request, facts: Profile) -> Canisters:
    """The leading instructions as one, later ones as texts of the user's at their places."""
    if not facts.merge_system_messages and facts.supports_system_role:
        return canisters
    leading = next(
        (i for i, each in enumerate(canisters) if not isinstance(each, core.SupervisorCanister)), len(canisters)
    )
    behind = canisters[leading:]
    if (
        leading < 2
        and facts.supports_system_role
        and not any(isinstance(each, core.SupervisorCanister) for each in behind)
    ):
        return canisters
    first: Canisters = canisters[:leading]
    if facts.wire not in _APART:
        first = _merge_system([each for each in first if isinstance(each, core.SupervisorCanister)])
    fitting = (
        (*first, *map(_mark_supervisor, behind))
        if facts.supports_system_role
        else map(_mark_supervisor, (*first, *behind))
    )
    return _same(canisters, list(fitting))


def _merge_system(messages: list[core.SupervisorCanister]) -> tuple[core.Canister, ...]:
    if len(messages) < 2:
        return tuple(messages)
    return (core.SupervisorCanister((core.TextualContent("\n\n".join([each.text for each in messages])),)),)


def _mark_supervisor(canister: core.Canister) -> core.Canister:
    """Instructions as what the user says, between tags."""
    if not isinstance(canister, core.SupervisorCanister):
        return canister
    return core.UserCanister((core.TextualContent(tag_instructions(canister.text)),))


# Reasoning.


def _reasoning(canisters: Canisters, request: core.Request, facts: Profile) -> Canisters:
    """Keep the reasoning that the model accepts, and fill in reasoning that the model requires."""
    rule = facts.reasoning_history
    fills = facts.requires_reasoning_history and facts.wire == "chat"
    if rule == "all" and not fills:
        return canisters
    fitting: list[core.Canister] = []
    for exchange, last in _exchanges(canisters):
        calls = any(isinstance(each, core.InvocationCanister) for each in exchange)
        if rule == "never" or (rule == "turn" and not last) or (rule == "tools" and not calls):
            fitting += map(_thoughtless, exchange)
        else:
            fitting += _fill_reasoning(exchange, request.model) if fills and calls else exchange
    return _same(canisters, fitting)


def _same(canisters: Canisters, fitting: list[core.Canister]) -> Canisters:
    """Return the original object if nothing changed."""
    same = len(fitting) == len(canisters) and all(map(is_, fitting, canisters))
    return canisters if same else tuple(fitting)


def _exchanges(canisters: Canisters) -> Iterator[tuple[Canisters, bool]]:
    """Yield each user message with all that follows it, and True for the last one."""
    starts = [
        place
        for place, each in enumerate(canisters)
        if isinstance(each, core.UserCanister | core.DocumentCanister)
        and not (place and isinstance(canisters[place - 1], core.UserCanister | core.DocumentCanister))
    ]
    for start, end in zip([0, *starts], [*starts, len(canisters)], strict=True):
        yield canisters[start:end], end == len(canisters)


def _thoughtless(canister: core.Canister) -> core.Canister:
    if not isinstance(canister, core.AssistantCanister) or not any(map(_is_thought, canister.content)):
        return canister
    return replace(canister, content=tuple([part for part in canister.content if not _is_thought(part)]))


def _is_thought(part: core.Content) -> bool:
    """Whether it is what a model thought, and not an item of the provider's own tools."""
    return isinstance(part, core.ReasoningContent) and not part.extra


def _fill_reasoning(canisters: Canisters, model: str) -> Iterator[core.Canister]:
    """The canisters with reasoning of `model` on every message: what another model thought, as far as it can be read."""
    place = 0
    while place < len(canisters):
        end = place
        while end < len(canisters) and isinstance(canisters[end], _MODELS):
            end += 1
        if end == place:
            yield canisters[place]
            place += 1
            continue
        message = canisters[place:end]
        thoughts = [part for each in message for part in _thoughts(each) if part.text]
        if any(part.origin == model for part in thoughts):
            yield from message
        else:
            text = "\n\n".join([part.text for part in thoughts]) or NOT_RECORDED
            yield core.AssistantCanister((core.ReasoningContent(text, origin=model),))
            yield from map(_thoughtless, message)
        place = end


def _thoughts(canister: core.Canister) -> list[core.ReasoningContent]:
    content = canister.content if isinstance(canister, core.AssistantCanister) else ()
    return [part for part in content if isinstance(part, core.ReasoningContent) and not part.extra]


def _cannot_think(canisters: Canisters, request: core.Request) -> bool:
    """Return True if Claude would refuse to think: the last results belong to calls without a thought of its own.

    That happens in a turn that another model began, or whose thoughts a client lost. Only models with a thinking
    budget (`enabled`) refuse. The thoughts cannot be restored, because they are signed.
    """
    thinking = request.extra.get("thinking")
    if not (isinstance(thinking, Mapping) and thinking.get("type") == "enabled"):
        return False
    end = len(canisters)
    while end and isinstance(canisters[end - 1], core.ResultCanister):
        end -= 1
    start = end
    while start and isinstance(canisters[start - 1], _MODELS):
        start -= 1
    if start == end or end == len(canisters):
        return False
    opening = canisters[start]
    first = opening.content[:1] if isinstance(opening, core.AssistantCanister) else ()
    return not any(
        isinstance(part, core.ReasoningContent) and part.opaque and part.origin == request.model for part in first
    )


# Roles.


def _alternate_roles(canisters: Canisters, _: core.Request, facts: Profile) -> Canisters:
    """Merge adjacent user messages. Put one before the model's first message, and never directly after results."""
    if not facts.requires_alternating_roles:
        return canisters
    fitting: list[core.Canister] = []
    users = [
        core.UserCanister(contents_with_title(each)) if isinstance(each, core.DocumentCanister) else each
        for each in _with_pictures_apart(canisters, facts)
    ]
    for is_user, group in groupby(users, key=lambda each: isinstance(each, core.UserCanister)):
        last = fitting[-1] if fitting else None
        if is_user:
            if isinstance(last, core.ResultCanister):
                fitting.append(core.AssistantCanister(contents(HAVE_RESULTS)))
            fitting.append(_join([each for each in group if isinstance(each, core.UserCanister)]))
            continue
        for canister in group:
            if isinstance(canister, _MODELS) and (last is None or isinstance(last, core.SupervisorCanister)):
                fitting.append(core.UserCanister(contents(GO_ON)))
            fitting.append(canister)
            last = canister
    return _same(canisters, fitting)


def _with_pictures_apart(canisters: Canisters, facts: Profile) -> Iterator[core.Canister]:
    """Yield the canisters. On chat, move media out of results into a user message after them."""
    carried: list[core.Content] = []
    for canister in canisters:
        if carried and not isinstance(canister, core.ResultCanister):
            yield core.UserCanister(tuple(carried))
            carried = []
        if isinstance(canister, core.ResultCanister) and facts.wire == "chat" and facts.supports_content_parts:
            canister, parts = split_media(canister)  # noqa: PLW2901
            carried += parts
        yield canister
    if carried:
        yield core.UserCanister(tuple(carried))


def _join(messages: Sequence[core.UserCanister]) -> core.UserCanister:
    """Messages as one; texts where two of them meet are one, with an empty line between them."""
    if len(messages) == 1:
        return messages[0]
    content: list[core.Content] = []
    texts: list[str] = []
    for message in messages:
        for place, part in enumerate(message.content):
            if not isinstance(part, core.TextualContent):
                content += _text(texts)
                texts = []
                content.append(part)
                continue
            if place:
                content += _text(texts)
                texts = []
            texts.append(part.text)
    return core.UserCanister((*content, *_text(texts)))


def _text(texts: Sequence[str]) -> tuple[core.Content, ...]:
    return (core.TextualContent("\n\n".join(texts)),) if texts else ()


_RULES: tuple[Callable[[Canisters, core.Request, Profile], Canisters], ...] = (
    _one_system,
    _alternate_roles,
    _reasoning,
)


# The last message.


def _close_history(
    canisters: Canisters, request: core.Request, facts: Profile
) -> tuple[Canisters, str, tuple[str, ...]]:
    """The conversation with a last message that is not the model's, or the way in which a prefill is asked for."""
    last = canisters[-1] if canisters else None
    if not isinstance(last, core.AssistantCanister) or _is_paused(last, facts.wire):
        return canisters, "", ()
    if not request.prefill:
        return (*canisters, core.UserCanister(contents(GO_ON))), "", ()
    way: str = facts.prefill
    if not way and request.prefill in _PREFILLS.get(facts.wire, ()):
        way = request.prefill
    if way in {"", "none"}:
        return (*canisters, core.UserCanister(contents(CONTINUE))), "", ("prefill",)
    return canisters, way, ()


def _is_paused(canister: core.AssistantCanister, wire: str) -> bool:
    """Return True if the provider's own tools ran. Such a reply continues when it is sent back unchanged."""
    key: Any = _OWN_ITEMS.get(wire)
    return any(part.extra and key in part.extra for part in canister.content[-1:])


def adapt_request(request: core.Request, facts: Profile) -> tuple[core.Request, tuple[str, ...]]:
    """The request with no more than the model and its endpoint take, and what of it cannot be asked for."""
    dropped: tuple[str, ...] = ()
    effort = request.controls.effort
    if effort is not None:
        request, dropped = _adapt_effort(request, effort, facts)
    if not (facts.supports_forced_calls or request.tool_choice in {"auto", "none"} or effort == "none"):
        request, dropped = replace(request, tool_choice="auto"), (*dropped, "tool_choice")
    if not facts.supports_strict and any(tool.strict is not None for tool in request.tools):
        request = replace(request, tools=tuple([replace(tool, strict=None) for tool in request.tools]))
    request, unsent = adapt_history(request, facts)
    return request, (*dropped, *unsent)


def _adapt_effort(request: core.Request, effort: str, facts: Profile) -> tuple[core.Request, tuple[str, ...]]:
    """The request with an effort that the endpoint knows, or with words for it, and the effort if it has neither."""
    is_off = effort == "none"
    has_fields = facts.wire == "chat" and bool(facts.thinking_off if is_off else facts.thinking_on)
    if facts.thinking_words and not has_fields:
        word = core.SupervisorCanister(contents(facts.thinking_words[is_off]))
        request, has_fields = replace(request, canisters=(word, *request.canisters)), True
    if facts.wire == "chat" and not facts.effort_field:
        return request, () if has_fields else (f"effort {effort}",)
    if not facts.efforts or effort in facts.efforts:
        return request, ()
    nearest = _nearest(effort, facts.efforts)
    if has_fields and (is_off or nearest is None):
        return request, ()  # `adapt_body` leaves the effort itself out
    is_lost = is_off or nearest is None
    controls = replace(request.controls, effort=nearest)
    return replace(request, controls=controls), (f"effort {effort}",) if is_lost else ()


def encode_request(wire: Wire, request: core.Request, facts: Profile) -> EncodedRequest:
    """The request as the endpoint takes it."""
    options: dict[str, Any] = {}
    if wire.name == "chat":
        options["capabilities"] = ChatCapabilities(facts.reasoning_field, facts.supports_content_parts)
    elif wire.name == "messages":
        options["breakpoints"] = True  # Anthropic caches only as far as a breakpoint
    elif wire.name == "gemini":
        options["dummy_signature"] = facts.dummy_signature
    return wire.encode_request(request, **options)


def adapt_body(body: dict[str, Any], facts: Profile) -> dict[str, Any]:
    """The chat body in the endpoint's own spelling; the same object where nothing differs."""
    if (effort := body.get("reasoning_effort")) is not None:
        body = _spell_effort(body, str(effort), facts)
    if facts.max_tokens_field != "max_tokens" and "max_tokens" in body:
        body = {facts.max_tokens_field if key == "max_tokens" else key: value for key, value in body.items()}
    left_out = {field for field, taken in _OPTIONAL.items() if not getattr(facts, taken)}
    if left_out & body.keys():
        body = {key: value for key, value in body.items() if key not in left_out}
    return body


_OPTIONAL: Mapping[str, str] = {
    "parallel_tool_calls": "supports_parallel_calls",
    "stream_options": "reports_usage",
}
"""Fields that some endpoints refuse, and the fact that says whether an endpoint accepts the field."""


def _spell_effort(body: dict[str, Any], effort: str, facts: Profile) -> dict[str, Any]:
    """The chat body with the fields for an effort. Fields that the client sent itself win."""
    fields = facts.thinking_off if effort == "none" else facts.thinking_on
    sends_effort = bool(facts.effort_field) and (not facts.efforts or effort in facts.efforts)
    if sends_effort and facts.effort_field == "reasoning_effort" and not fields:
        return body
    rest = {key: value for key, value in body.items() if key != "reasoning_effort"}
    spelled: Any = nest_fields({facts.effort_field: effort}) if sends_effort else {}
    return _merge(_merge(spelled, _fill(fields, BUDGETS.get(effort, 0))), rest)


def _fill(fields: Any, budget: int) -> Any:
    if isinstance(fields, Mapping):
        return {key: _fill(value, budget) for key, value in fields.items()}
    return budget if fields == "$budget" else fields


def _merge(lower: Mapping[str, Any], higher: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**lower, **higher}
    for key in lower.keys() & higher.keys():
        if isinstance(lower[key], Mapping) and isinstance(higher[key], Mapping):
            merged[key] = _merge(lower[key], higher[key])
    return merged


def _nearest(effort: str, known: tuple[str, ...]) -> str | None:
    """Return the nearest known effort, or the lesser of two. Return None if the word is not an effort.

    `none` is never the nearest: a model that should think a little keeps thinking.
    """
    if effort not in EFFORTS:
        return None
    rank = EFFORTS.index(effort)
    ranked = [each for each in known if each in EFFORTS[1:]]
    return min(ranked, key=lambda each: (abs(EFFORTS.index(each) - rank), EFFORTS.index(each)), default=None)

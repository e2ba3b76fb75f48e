"""Adapt a request to what its endpoint takes otherwise than OpenAI, as the profile says: no endpoint by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from callboard.core import Request
from callboard.profiles import Profile
from callboard.providers.adapt_history import adapt_history
from callboard.wires.chat import RequestEncoder as ChatRequestEncoder
from callboard.wires.chat.encode_messages import ChatCapabilities
from callboard.wires.wire import CHAT, RequestEncoder, Wire

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""From the least to the most."""


def adapt_request(request: Request, facts: Profile) -> tuple[Request, tuple[str, ...]]:
    """The request with no more than the model and its endpoint take, and what of it cannot be asked for."""
    dropped: tuple[str, ...] = ()
    effort = request.controls.effort
    if effort is not None and facts.efforts and effort not in facts.efforts:
        nearest = _nearest(effort, facts.efforts)
        if nearest in {None, "none"}:
            dropped = (f"effort {effort}",)
        request = replace(request, controls=replace(request.controls, effort=nearest))
    if not (facts.supports_forced_calls or request.tool_choice in {"auto", "none"} or effort == "none"):
        request, dropped = replace(request, tool_choice="auto"), (*dropped, "tool_choice")
    if not facts.supports_strict and any(tool.strict is not None for tool in request.tools):
        request = replace(request, tools=tuple([replace(tool, strict=None) for tool in request.tools]))
    request, unsent = adapt_history(request, facts)
    return request, (*dropped, *unsent)


def create_encoder(wire: Wire, facts: Profile) -> RequestEncoder:
    """A new encoder of the endpoint's requests."""
    if facts.dummy_signature and wire.name == "gemini":
        from callboard.wires import gemini  # noqa: PLC0415  # for its endpoint only

        return gemini.RequestEncoder(dummy_signature=facts.dummy_signature)
    if wire is not CHAT:
        return wire.encoder()
    return ChatRequestEncoder(capabilities=ChatCapabilities(facts.reasoning_field, facts.supports_content_parts))


def adapt_body(body: dict[str, Any], facts: Profile) -> dict[str, Any]:
    """The chat body in the endpoint's own spelling; the same object where nothing differs."""
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
"""Fields that some endpoints refuse, and the facts that say whether they take them."""


def _nearest(effort: str, known: tuple[str, ...]) -> str | None:
    """The known effort that is nearest, the lesser of two; None for a word that is none of them.

    `none` is nobody's nearest: a model that was to think a little goes on thinking.
    """
    if effort not in EFFORTS:
        return None
    rank = EFFORTS.index(effort)
    ranked = [each for each in known if each in EFFORTS[1:]]
    return min(ranked, key=lambda each: (abs(EFFORTS.index(each) - rank), EFFORTS.index(each)), default=None)

"""The wires that clients speak to the gateway, as rows.

Owns what a front checks, how a reply begins there, and what keeps a silent stream alive. Knows nothing of backends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import msgspec

from callboard.core import Event, ReplyFailed, Request, Stage
from callboard.servers.gateway.refusal import Refusal
from callboard.servers.gateway.settings import Limits
from callboard.wires import Wire, wire_named

_GENERIC = frozenset({"api_error", "invalid_request_error"})
_TYPES: Mapping[int, str] = MappingProxyType(
    {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        503: "overloaded_error",
        504: "timeout_error",
        529: "overloaded_error",
    }
)
"""Anthropic's words for statuses, where a code has none."""


class Front(msgspec.Struct, frozen=True):
    """`read` gives the request and what of it was dropped; `check` raises a Refusal; `options` are the encoder's
    besides those of every wire; `beat` is sent when nothing was said for a while. With `tells_faults` a backend's
    fault is told in the stream, since the client shows no other.
    """

    name: str
    prefix: str
    read: Callable[[Mapping[str, Any]], tuple[Request, tuple[str, ...]]]
    check: Callable[[Mapping[str, Any], Limits], None]
    options: Callable[[Mapping[str, Any], bool], dict[str, Any]]
    beat: Callable[[Any], list[bytes]]
    tells_faults: bool = False

    @property
    def wire(self) -> Wire:
        return wire_named(self.name)

    def error(self, failed: ReplyFailed, status: int) -> dict[str, Any]:
        """The body of an answer of that status."""
        body = self.wire.encode_error(failed)[1]
        if self.name == "messages" and body["error"]["type"] in _GENERIC:
            body["error"]["type"] = _TYPES.get(status, body["error"]["type"])
        return body

    def encoder(self, *, body: Mapping[str, Any], seed: bool, **said: Any) -> Stage[Event, bytes]:
        return self.wire.stream_encoder(**said, **self.options(body, seed))


def _plainly(wire: str) -> Callable[[Mapping[str, Any]], tuple[Request, tuple[str, ...]]]:
    def read(body: Mapping[str, Any]) -> tuple[Request, tuple[str, ...]]:
        return wire_named(wire).decode_request(body), ()

    return read


def _read_responses(body: Mapping[str, Any]) -> tuple[Request, tuple[str, ...]]:
    from callboard.wires.responses import read_request  # noqa: PLC0415 - loaded when it is first asked for

    asked = read_request(body)
    return asked.request, asked.dropped


def _check_responses(body: Mapping[str, Any], limits: Limits) -> None:
    if body.get("background"):
        raise Refusal("background_not_supported", "background replies are not supported", path="background")
    if body.get("prompt") is not None:
        raise Refusal("prompt_reference_not_supported", "prompts are not kept here", path="prompt")
    _check_count(body.get("input"), "input", limits.items)
    _check_tokens(body, "max_output_tokens", limits)
    instructions = body.get("instructions")
    if isinstance(instructions, str) and len(instructions) > limits.instructions:
        message = f"{len(instructions)} characters; at most {limits.instructions} are taken"
        raise Refusal("instructions_too_large", message, path="instructions")
    _check_logprobs(body, limits)


def _check_chat(body: Mapping[str, Any], limits: Limits) -> None:
    _check_count(body.get("messages"), "messages", limits.items)
    for name in ("max_tokens", "max_completion_tokens"):
        _check_tokens(body, name, limits)
    _check_logprobs(body, limits)


def _check_messages(body: Mapping[str, Any], limits: Limits) -> None:
    _check_count(body.get("messages"), "messages", limits.items)
    _check_tokens(body, "max_tokens", limits)


def _check_count(items: Any, path: str, most: int) -> None:
    if isinstance(items, list) and len(items) > most:
        raise Refusal("too_many_messages", f"{len(items)} items; at most {most} are taken", path=path)


def _check_tokens(body: Mapping[str, Any], name: str, limits: Limits) -> None:
    asked = body.get(name)
    if type(asked) is int and not 1 <= asked <= limits.max_tokens:
        raise Refusal("invalid_max_tokens", f"{asked} is not between 1 and {limits.max_tokens}", path=name)


def _check_logprobs(body: Mapping[str, Any], limits: Limits) -> None:
    asked = body.get("top_logprobs")
    if type(asked) is int and not 0 <= asked <= limits.top_logprobs:
        message = f"{asked} is not between 0 and {limits.top_logprobs}"
        raise Refusal("invalid_top_logprobs", message, path="top_logprobs")


def _responses_options(body: Mapping[str, Any], seed: bool) -> dict[str, Any]:
    return {"echo": body, "seed_events": seed}


def _chat_options(body: Mapping[str, Any], seed: bool) -> dict[str, Any]:
    options = body.get("stream_options")
    return {"include_usage": isinstance(options, Mapping) and bool(options.get("include_usage"))}


@cache
def fronts() -> Mapping[str, Front]:
    """By their wires' names."""
    rows = (
        Front(
            "responses",
            "resp_",
            _read_responses,
            _check_responses,
            _responses_options,
            lambda encoder: encoder.heartbeat(),
            # Codex hides what a status of 500 says, and asks again either way.
            tells_faults=True,
        ),
        Front("chat", "chatcmpl-", _plainly("chat"), _check_chat, _chat_options, lambda _: [b": keep-alive\n\n"]),
        Front(
            "messages",
            "msg_",
            _plainly("messages"),
            _check_messages,
            lambda body, seed: {},
            lambda _: [b'event: ping\ndata: {"type":"ping"}\n\n'],
        ),
    )
    return MappingProxyType({row.name: row for row in rows})

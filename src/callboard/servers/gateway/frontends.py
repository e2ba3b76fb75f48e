"""The wires that clients speak to the gateway, one row each: checks of a request, encoding of a reply, and errors."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from callboard.core import Event, ReplyFailed, Request, Stage
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.settings import GatewayLimits
from callboard.text.sse import Framer, Payload, SSEEncoder
from callboard.wires import Wire, get_wire
from callboard.wires.gemini import ArrayEncoder
from callboard.wires.gemini import decode_request as decode_gemini_request
from callboard.wires.gemini.schema import camel_case
from callboard.wires.responses import read_request

ALT, SSE = "alt", "sse"
URL_FIELDS = frozenset({"model", "stream", ALT})
"""Facts from the URL of a request to Google's API. The gateway adds them to the body."""
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
"""Anthropic's error types by status, for codes without a type of their own."""
_STATUSES: Mapping[int, str] = MappingProxyType(
    {
        401: "UNAUTHENTICATED",
        403: "PERMISSION_DENIED",
        404: "NOT_FOUND",
        408: "DEADLINE_EXCEEDED",
        429: "RESOURCE_EXHAUSTED",
        502: "UNAVAILABLE",
        503: "UNAVAILABLE",
        504: "DEADLINE_EXCEEDED",
    }
)
"""Google's words by status. Other statuses are INVALID_ARGUMENT below 500, INTERNAL from 500."""
_REASON = re.compile(r"[A-Z][A-Z0-9_]{0,61}[A-Z0-9]")
"""Reasons that google.rpc.ErrorInfo allows."""


def _event_stream(body: Mapping[str, Any]) -> str:
    return "text/event-stream; charset=utf-8"


class Frontend(msgspec.Struct, frozen=True):
    """A wire that clients speak."""

    name: str
    wire: Wire
    prefix: str
    """Prefix of the replies' identifiers."""
    decode_request: Callable[[Mapping[str, Any]], tuple[Request, tuple[str, ...]]]
    """Decodes a body to its request and the names of dropped fields."""
    check: Callable[[Mapping[str, Any], GatewayLimits], None]
    """Raises an HttpError if the body must be refused."""
    encoder_options: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Options of the wire's stream encoder for a reply to the body."""
    heartbeat: Callable[[Any], list[Payload] | bytes]
    """Returns payloads, or bytes that are sent unchanged."""
    set_error_status: Callable[[dict[str, Any], ReplyFailed, int], None] = lambda error, failed, status: None
    """Puts the status of the answer into the error."""
    content_type: Callable[[Mapping[str, Any]], str] = _event_stream
    """Content type of the stream that answers the body."""
    framer: Callable[[Mapping[str, Any]], Framer] = lambda _: SSEEncoder()
    """Makes the framer of a stream's payloads."""
    too_long: str = (
        "This model's maximum context length is {window} tokens. However, your messages resulted in {tokens} tokens. "
        "Please reduce the length of the messages."
    )
    """The provider's own words about a conversation that does not fit. Clients compact when they read them."""
    streams_failures: bool = False
    """True if a stream reports a backend's failure, for clients that do not show it otherwise."""

    def error(self, failed: ReplyFailed, status: int) -> dict[str, Any]:
        body = self.wire.encode_error(failed)[1]
        self.set_error_status(body["error"], failed, status)
        return body

    def error_body(self, error: HttpError) -> dict[str, Any]:
        """Return the body of an error of the gateway itself."""
        body = self.error(error.failure, error.status)
        if error.details is not None:
            body["error"]["details"] = error.details
        if "param" in body["error"]:
            body["error"]["param"] = error.path or None
        return body

    def encoder(self, *, body: Mapping[str, Any], compat_events: bool, **options: Any) -> Stage[Event, Payload]:
        if self.name == "responses":
            options["compat_events"] = compat_events
        return self.wire.stream_encoder(**self.encoder_options(body), **options)


def _set_anthropic_status(error: dict[str, Any], failed: ReplyFailed, status: int) -> None:
    if error["type"] in _GENERIC:
        error["type"] = _TYPES.get(status, error["type"])


def _set_google_status(error: dict[str, Any], failed: ReplyFailed, status: int) -> None:
    if error["code"] != status:
        error |= {"code": status, "status": _STATUSES.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")}
    if _REASON.fullmatch(reason := failed.code.upper()):
        kind = "type.googleapis.com/google.rpc.ErrorInfo"
        error["details"] = [{"@type": kind, "reason": reason, "domain": "callboard"}]


def _decode_with(wire: Wire) -> Callable[[Mapping[str, Any]], tuple[Request, tuple[str, ...]]]:
    return lambda body: (wire.decode_request(body), ())


def _decode_responses(body: Mapping[str, Any]) -> tuple[Request, tuple[str, ...]]:
    parsed = read_request(body)
    return parsed.request, parsed.dropped


def _decode_gemini(body: Mapping[str, Any]) -> tuple[Request, tuple[str, ...]]:
    fields = {name: value for name, value in body.items() if name not in URL_FIELDS}
    return decode_gemini_request(fields, model=f"models/{body['model']}", stream=body["stream"]), ()


def _check_responses(body: Mapping[str, Any], limits: GatewayLimits) -> None:
    if body.get("background"):
        message = "the gateway has no background responses; leave this out, and stream the reply or wait for it"
        raise HttpError("background_not_supported", message, path="background")
    if body.get("prompt") is not None:
        raise HttpError("prompt_reference_not_supported", "the gateway does not store prompts", path="prompt")
    if body.get("conversation") is not None:
        message = "the gateway does not store conversations; send the whole history as input"
        raise HttpError("conversation_not_supported", message, path="conversation")
    _check_count(body.get("input"), "input", limits.items)
    _check_tokens(body, "max_output_tokens", limits)
    instructions = body.get("instructions")
    if isinstance(instructions, str) and len(instructions) > limits.instructions:
        message = f"{len(instructions)} characters; the limit is {limits.instructions}"
        raise HttpError("instructions_too_large", message, path="instructions")
    _check_logprobs(body, limits)


def _check_chat(body: Mapping[str, Any], limits: GatewayLimits) -> None:
    _check_count(body.get("messages"), "messages", limits.items)
    for name in ("max_tokens", "max_completion_tokens"):
        _check_tokens(body, name, limits)
    _check_choices(body, "n")
    _check_logprobs(body, limits)


def _check_messages(body: Mapping[str, Any], limits: GatewayLimits) -> None:
    if body.get("thread") is not None:
        raise HttpError(
            "thread_unsupported_request",
            "the gateway does not store threads; send the whole conversation without it",
            path="thread",
            details={"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
        )
    _check_count(body.get("messages"), "messages", limits.items)
    _check_tokens(body, "max_tokens", limits)


def _check_gemini(body: Mapping[str, Any], limits: GatewayLimits) -> None:
    _check_count(body.get("contents"), "contents", limits.items)
    for name in ("generationConfig", "generation_config"):
        if isinstance(config := body.get(name), Mapping):
            generation = camel_case(config)
            _check_tokens(generation, "maxOutputTokens", limits, "generationConfig.")
            _check_choices(generation, "candidateCount", "generationConfig.")


def _check_choices(body: Mapping[str, Any], name: str, within: str = "") -> None:
    if body.get(name) not in (None, 1):
        raise HttpError("invalid_request", "only one reply per request; send one request for each", path=within + name)


def _check_count(items: Any, path: str, limit: int) -> None:
    if isinstance(items, list) and len(items) > limit:
        raise HttpError("too_many_messages", f"{len(items)} items; the limit is {limit}", path=path)


def _check_tokens(body: Mapping[str, Any], name: str, limits: GatewayLimits, within: str = "") -> None:
    count = body.get(name)
    if type(count) is int and not 1 <= count <= limits.max_tokens:
        raise HttpError("invalid_max_tokens", f"{count} is not between 1 and {limits.max_tokens}", path=within + name)


def _check_logprobs(body: Mapping[str, Any], limits: GatewayLimits) -> None:
    count = body.get("top_logprobs")
    if type(count) is int and not 0 <= count <= limits.top_logprobs:
        message = f"{count} is not between 0 and {limits.top_logprobs}"
        raise HttpError("invalid_top_logprobs", message, path="top_logprobs")


def _include_usage(body: Mapping[str, Any]) -> dict[str, Any]:
    options = body.get("stream_options")
    return {"include_usage": isinstance(options, Mapping) and bool(options.get("include_usage"))}


def _frame_gemini(body: Mapping[str, Any]) -> Framer:
    return SSEEncoder() if body.get(ALT) == SSE else ArrayEncoder()


_CHAT, _MESSAGES = get_wire("chat"), get_wire("messages")
_ROWS = (
    Frontend(
        "responses",
        get_wire("responses"),
        "resp_",
        _decode_responses,
        _check_responses,
        lambda body: {"echo": body, "clock": time.time},
        lambda encoder: encoder.heartbeat(),
        # Codex hides the message of a status 500, and retries in both cases.
        streams_failures=True,
    ),
    Frontend(
        "chat", _CHAT, "chatcmpl-", _decode_with(_CHAT), _check_chat, _include_usage, lambda _: b": keep-alive\n\n"
    ),
    Frontend(
        "messages",
        _MESSAGES,
        "msg_",
        _decode_with(_MESSAGES),
        _check_messages,
        lambda body: {},
        lambda _: [(b"ping", b'{"type":"ping"}')],
        _set_anthropic_status,
        too_long="prompt is too long: {tokens} tokens > {window} maximum",
    ),
    Frontend(
        "gemini",
        get_wire("gemini"),
        "",
        _decode_gemini,
        _check_gemini,
        lambda body: {},
        # A newline is ignored in an event stream and in JSON. google-genai takes a comment for an unfinished error.
        lambda _: b"\n",
        _set_google_status,
        lambda body: _event_stream(body) if body.get(ALT) == SSE else "application/json",
        framer=_frame_gemini,
        too_long="The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window}).",
    ),
)
FRONTENDS: Mapping[str, Frontend] = MappingProxyType({row.name: row for row in _ROWS})
"""The fronts by the names of their wires."""

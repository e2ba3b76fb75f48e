"""Errors in both directions: what a backend answers when it refuses, and OpenAI's form of a failure.

`decode_error` reads the bodies of all providers, because servers that imitate one of them write errors as they like.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.core import ReplyFailed

EXCERPT = 500
"""The most characters of an excerpt."""

_CODES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout",
    413: "too_large",
    422: "invalid_request_error",
    429: "rate_limit_exceeded",
    503: "overloaded_error",
    504: "timeout",
    529: "overloaded_error",
}
_NAMES = {"exceed_context_size_error": "context_length_exceeded"}
"""Other servers' words for OpenAI's codes (llama.cpp). Codex and others shorten a conversation when they see the code."""
_RATE_LIMITED = re.compile(r"rate_?limit|too_?many_?requests|resource_?exhausted", re.IGNORECASE)
_NO_MONEY = re.compile("quota|billing|credit", re.IGNORECASE)
"""Codes of a 429 that no waiting cures."""
_LIMIT_CODE = "rate_limit_exceeded"
_REFUSALS = re.compile(
    r"\b(?:image|audio|video) input is not supported|\bunsupported content(?: part type|\[\]\.type)"
    r"|\bfailed to parse messages\b|\bjinja exception\b|\bat row \d+, column \d+|\bat line \d+, column \d+ in source",
    re.IGNORECASE,
)
"""llama.cpp answers 500 to requests that it cannot take: pictures for a model without vision, and conversations that
the model's template refuses. These are the caller's fault."""
_TOO_LONG = re.compile(
    r"\bexceeds? the available context size"  # llama.cpp
    r"|\bmaximum context length\b|\blonger than the maximum model length"  # vLLM, DeepSeek, OpenAI, SGLang
    r"|\blonger than the model's context length"  # SGLang
    r"|\binput length exceeds the (?:maximum )?context length"  # Ollama
    r"|\bprompt is too long\b|\bexceed context limit"  # Anthropic
    r"|\binput token count\b.{0,40}\bexceeds the maximum number of tokens"  # Gemini
    r"|\binitial prompt is greater than the context length",  # LM Studio
    re.IGNORECASE,
)
"""Messages about a conversation that is too long for the model; only OpenAI has a code for it."""
_TOO_LONG_CODE = "context_length_exceeded"
_MAY_BE_TOO_LONG = frozenset({0, 400, 413, 422, 500})
_PASSING = frozenset({408, 409, 425, 429})
_FAILED = 500
_TOO_MANY = 429
_CALLERS_TYPE = "invalid_request_error"
_LIMIT_TYPES = {_LIMIT_CODE: "rate_limit_error", "insufficient_quota": "insufficient_quota"}
"""OpenAI's types of codes that have one of their own."""


def decode_error(status: int, body: bytes) -> ReplyFailed:
    """The failure that an HTTP status other than 2xx and its body describe.

    The code is the body's own, else its type, else one that the status stands for. Every provider's code for a rate
    limit is `rate_limit_exceeded`. A status of 4xx is the caller's fault except where trying again helps.
    """
    text = body[: 4 * EXCERPT].decode("utf-8", "replace").strip()[:EXCERPT]
    try:
        error = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        page = not text or text.startswith("<")
        message = f"the provider answered {status}" if page else text
        return ReplyFailed(_party(status), _code(status), message, text)
    if isinstance(error, list) and error:
        error = error[0]
    if isinstance(error, dict):
        error = error.get("error") or error
    return read_error(error, status, text)


def read_error(error: Any, status: int, excerpt: str) -> ReplyFailed:
    """The failure that an error object, or a bare message, describes; `status` is 0 where there was none."""
    if not isinstance(error, dict):
        error = {"message": error}
    message = next((m for m in map(error.get, ("message", "detail", "error")) if m), None)
    if message is None:
        message = f"the provider answered {status}" if status else "the provider reported an error"
    elif not isinstance(message, str):
        message = excerpt
    code, kind = error.get("code"), error.get("type")
    if type(code) is int:
        status = status or code
    if status == _FAILED and _REFUSALS.search(message):
        return ReplyFailed("caller", _CALLERS_TYPE, message[:EXCERPT], excerpt)
    if status in _MAY_BE_TOO_LONG and _TOO_LONG.search(message):
        return ReplyFailed("caller", _TOO_LONG_CODE, message[:EXCERPT], excerpt)
    named = next((name for name in (code, kind) if isinstance(name, str) and name), None)
    party = _party(status) if status else "caller" if kind == _CALLERS_TYPE else "provider"
    named = _NAMES.get(named or "", named) or _code(status)
    if (status == _TOO_MANY or _RATE_LIMITED.search(named)) and not _NO_MONEY.search(named):
        named = _LIMIT_CODE
    return ReplyFailed(party, named, message[:EXCERPT], excerpt)


def malformed_reply(message: str, excerpt: str) -> ReplyFailed:
    """The failure of a backend whose answer is not of its wire."""
    return ReplyFailed("provider", "malformed", message, excerpt)


def excerpt_of(body: Any) -> str:
    """Return the beginning of an answer as readable text."""
    if isinstance(body, bytes):
        return body[: 4 * EXCERPT].decode("utf-8", "replace")[:EXCERPT]
    return (body if isinstance(body, str) else repr(body))[:EXCERPT].encode("utf-8", "replace").decode()


def openai_error_body(failure: ReplyFailed) -> dict[str, Any]:
    """The failure as OpenAI writes it."""
    kind = _LIMIT_TYPES.get(failure.code, _CALLERS_TYPE if failure.party == "caller" else "server_error")
    error: Mapping[str, Any] = {"message": failure.message, "type": kind, "param": None, "code": failure.code or None}
    return {"error": error}


def encode_openai_error(failure: ReplyFailed) -> tuple[int, dict[str, Any]]:
    """The HTTP status and the body of a failure before anything was sent."""
    by_code = next((status for status, code in _CODES.items() if code == failure.code), None)
    return by_code or (400 if failure.party == "caller" else 502), openai_error_body(failure)


def _code(status: int) -> str:
    return _CODES.get(status, "invalid_request_error" if 400 <= status < 500 else "server_error")


def _party(status: int) -> str:
    return "caller" if 400 <= status < 500 and status not in _PASSING else "provider"

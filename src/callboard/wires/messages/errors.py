"""Anthropic's error types and their statuses, decoded and encoded.

Source: the error objects of the `anthropic` package 2.12.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callboard.core import ReplyFailed
from callboard.wires.common import errors
from callboard.wires.common.errors import decode_error

__all__ = ["decode_error", "encode_error", "error_body", "read_error"]

_STATUSES: Mapping[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_TYPES: Mapping[str, str] = {
    "context_length_exceeded": "invalid_request_error",
    "invalid_api_key": "authentication_error",
    "UNAUTHENTICATED": "authentication_error",
    "insufficient_quota": "billing_error",
    "PERMISSION_DENIED": "permission_error",
    "model_not_found": "not_found_error",
    "NOT_FOUND": "not_found_error",
    "too_large": "request_too_large",
    "rate_limit_exceeded": "rate_limit_error",
    "RESOURCE_EXHAUSTED": "rate_limit_error",
    "timeout": "timeout_error",
    "DEADLINE_EXCEEDED": "timeout_error",
    "UNAVAILABLE": "overloaded_error",
}
"""Other wires' words, and ours."""


def read_error(error: Any, excerpt: str) -> ReplyFailed:
    """The failure that the error object of a stream describes; its type implies a status."""
    kind = error.get("type") if isinstance(error, dict) else None
    return errors.read_error(error, _STATUSES.get(kind, 0) if isinstance(kind, str) else 0, excerpt)


def encode_error(failure: ReplyFailed) -> tuple[int, dict[str, Any]]:
    """The status and body that tell a client of the failure before anything was sent."""
    kind = _type(failure)
    return _STATUSES[kind], error_body(failure)


def error_body(failure: ReplyFailed) -> dict[str, Any]:
    """The failure as Anthropic writes it, in a body and in a stream."""
    return {"type": "error", "error": {"type": _type(failure), "message": failure.message}}


def _type(failure: ReplyFailed) -> str:
    kind = _TYPES.get(failure.code, failure.code)
    if kind in _STATUSES:
        return kind
    return "invalid_request_error" if failure.party == "caller" else "api_error"

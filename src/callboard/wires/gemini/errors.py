"""Google's error bodies, decoded and encoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callboard.core import ReplyFailed
from callboard.wires.common import errors
from callboard.wires.common.errors import decode_error

__all__ = ["decode_error", "encode_error", "read_error"]

_STATUSES: Mapping[str, int] = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "INTERNAL": 500,
    "UNKNOWN": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}

_TOLD: Mapping[str, tuple[int, str]] = {
    "authentication_error": (401, "UNAUTHENTICATED"),
    "invalid_api_key": (401, "UNAUTHENTICATED"),
    "permission_error": (403, "PERMISSION_DENIED"),
    "not_found_error": (404, "NOT_FOUND"),
    "model_not_found": (404, "NOT_FOUND"),
    "rate_limit_exceeded": (429, "RESOURCE_EXHAUSTED"),
    "rate_limit_error": (429, "RESOURCE_EXHAUSTED"),
    "insufficient_quota": (429, "RESOURCE_EXHAUSTED"),
    "cancelled": (499, "CANCELLED"),
    "overloaded_error": (503, "UNAVAILABLE"),
    "unreachable": (503, "UNAVAILABLE"),
    "timeout": (504, "DEADLINE_EXCEEDED"),
}
_CALLERS = (400, "INVALID_ARGUMENT")
_OURS = (500, "INTERNAL")


def read_error(error: Any, excerpt: str) -> ReplyFailed:
    """The failure that the error object of a chunk describes."""
    if isinstance(error, Mapping) and type(error.get("code")) is not int:
        return errors.read_error(error, _STATUSES.get(str(error.get("status")), 0), excerpt)
    return errors.read_error(error, 0, excerpt)


def encode_error(failure: ReplyFailed) -> tuple[int, dict[str, Any]]:
    """The HTTP status and the body, as Google writes it."""
    code, status = _TOLD.get(failure.code, _CALLERS if failure.party == "caller" else _OURS)
    return code, {"error": {"code": code, "message": failure.message, "status": status}}

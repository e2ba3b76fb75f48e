"""Errors of the gateway, and their statuses.

If the Codex proxy that this gateway follows has a code for an error, the gateway uses the same code.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from callboard.core import ReplyFailed
from callboard.errors import PAGE

STATUSES: Mapping[str, int] = MappingProxyType(
    {
        "invalid_json": 400,
        "invalid_request": 400,
        "model_required": 400,
        "background_not_supported": 400,
        "prompt_reference_not_supported": 400,
        "conversation_not_supported": 400,
        "previous_response_not_found": 400,
        "thread_unsupported_request": 400,
        "stream_not_supported": 400,
        "would_lose": 400,
        "too_many_messages": 400,
        "invalid_max_tokens": 400,
        "instructions_too_large": 400,
        "invalid_top_logprobs": 400,
        "input_content_too_large": 413,
        "request_too_large": 413,
        "missing_api_key": 401,
        "invalid_api_key": 401,
        "origin_not_allowed": 403,
        "host_not_allowed": 403,
        "model_not_found": 404,
        "not_found": 404,
        "method_not_allowed": 405,
        "timeout": 408,
        "unsupported_content_encoding": 415,
        "rate_limit_exceeded": 429,
        "insufficient_quota": 429,
        "internal_error": 500,
        "backend_unavailable": 502,
        "backend_unavailable_circuit_open": 503,
        "overloaded": 503,
        "store_unavailable": 503,
    }
)
_CALLERS = range(400, 500)


class HttpError(Exception):
    """A refused request. The error becomes the answer, in the front's own format, with a Link to its documentation.

    Args:
        code: A key of STATUSES.
        message: Text for the client.
        path: Path of the fault in the body.
        headers: Headers to add to the answer.
        details: A field of Anthropic's errors. Its SDK uses the field to decide what to send instead.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        path: str = "",
        headers: Mapping[str, str] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = STATUSES[code]
        where = f"{path}: " if path else ""
        self.failure = ReplyFailed("caller" if self.status in _CALLERS else "provider", code, f"{where}{message}")
        self.path = path
        self.headers = {"link": f'<{PAGE}#gateway-{code}>; rel="help"', **(headers or {})}
        self.details = details

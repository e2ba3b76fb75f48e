"""What a backend says when it refuses, and what a client is told."""

from __future__ import annotations

import json

from tests.tables import table

from callboard.core import ReplyFailed
from callboard.wires.gemini import decode_error, encode_error


@table(
    ("status", "body", "party", "code", "message"),
    [
        (
            400,
            '{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT"}}',
            "caller",
            "invalid_request_error",
            "bad",
        ),
        (
            429,
            '[{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED","details":[]}}]',
            "provider",
            "rate_limit_exceeded",
            "slow",
        ),
        (
            403,
            '{"error":{"code":403,"message":"key","status":"PERMISSION_DENIED"}}',
            "caller",
            "permission_error",
            "key",
        ),
        (503, '{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}', "provider", "overloaded_error", "busy"),
        (500, "<html>", "provider", "server_error", "the provider answered 500"),
        (404, "[]", "caller", "not_found_error", "the provider answered 404"),
    ],
)
def test_error_bodies(status, body, party, code, message):
    failure = decode_error(status, body.encode())
    assert (failure.party, failure.code, failure.message) == (party, code, message)


@table(
    ("party", "code", "status", "name"),
    [
        ("caller", "invalid_request_error", 400, "INVALID_ARGUMENT"),
        ("caller", "context_length_exceeded", 400, "INVALID_ARGUMENT"),
        ("caller", "authentication_error", 401, "UNAUTHENTICATED"),
        ("caller", "permission_error", 403, "PERMISSION_DENIED"),
        ("caller", "not_found_error", 404, "NOT_FOUND"),
        ("provider", "rate_limit_exceeded", 429, "RESOURCE_EXHAUSTED"),
        ("provider", "overloaded_error", 503, "UNAVAILABLE"),
        ("provider", "timeout", 504, "DEADLINE_EXCEEDED"),
        ("provider", "malformed", 500, "INTERNAL"),
        ("provider", "", 500, "INTERNAL"),
    ],
)
def test_what_a_client_is_told(party, code, status, name):
    failure = ReplyFailed(party, code, "why", "excerpt")
    told, body = encode_error(failure)
    assert (told, body) == (status, {"error": {"code": status, "message": "why", "status": name}})
    back = decode_error(told, json.dumps(body).encode())
    assert (back.party, back.message) == (party, "why")

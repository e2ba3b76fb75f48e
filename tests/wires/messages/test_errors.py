"""What a backend says when it refuses, and what a client is told."""

from __future__ import annotations

import json

from tests.tables import table

from callboard.core import ReplyFailed
from callboard.wires.messages import decode_error, encode_error

ANTHROPIC = [
    (400, "invalid_request_error", "caller"),
    (401, "authentication_error", "caller"),
    (402, "billing_error", "caller"),
    (403, "permission_error", "caller"),
    (404, "not_found_error", "caller"),
    (413, "request_too_large", "caller"),
    (429, "rate_limit_error", "provider"),
    (500, "api_error", "provider"),
    (504, "timeout_error", "provider"),
    (529, "overloaded_error", "provider"),
]


@table(("status", "kind", "party"), ANTHROPIC)
def test_anthropic_s_errors_both_ways(status, kind, party):
    body = {"type": "error", "error": {"type": kind, "message": "why"}}
    failure = decode_error(status, json.dumps(body).encode())
    code = {"rate_limit_error": "rate_limit_exceeded"}.get(kind, kind)  # every provider's has one code
    assert (failure.party, failure.code, failure.message) == (party, code, "why")
    assert encode_error(failure) == (status, body)


@table(
    ("code", "party", "status", "kind"),
    [
        ("rate_limit_exceeded", "provider", 429, "rate_limit_error"),
        ("insufficient_quota", "caller", 402, "billing_error"),
        ("context_length_exceeded", "caller", 400, "invalid_request_error"),
        ("too_large", "caller", 413, "request_too_large"),
        ("timeout", "provider", 504, "timeout_error"),
        ("RESOURCE_EXHAUSTED", "provider", 429, "rate_limit_error"),
        ("cut", "provider", 500, "api_error"),
        ("malformed", "provider", 500, "api_error"),
        ("", "caller", 400, "invalid_request_error"),
        ("whatever", "caller", 400, "invalid_request_error"),
    ],
)
def test_other_words(code, party, status, kind):
    said = encode_error(ReplyFailed(party, code, "why"))
    assert said == (status, {"type": "error", "error": {"type": kind, "message": "why"}})


def test_a_page_in_place_of_json():
    failure = decode_error(502, b"<html>bad gateway</html>")
    assert (failure.party, failure.message) == ("provider", "the provider answered 502")

"""What a backend says when it refuses, in every form that was seen, and what a client is told.

A row of `tests/vectors/errors.jsonl` is the status and the body of a refusal, and the failure that it is.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.tables import table

from callboard.core import ReplyFailed
from callboard.wires import WIRES

VECTORS = Path(__file__).parents[1] / "vectors" / "errors.jsonl"
ROWS = [json.loads(line) for line in VECTORS.read_text("utf-8").splitlines()]


@table("row", ROWS, ids=lambda row: f"{row['wire']} {row['status']} {row['body'][:30]}")
def test_error_bodies(row):
    failure = WIRES[row["wire"]].decode_error(row["status"], row["body"].encode())
    assert (failure.party, failure.code, failure.message) == (row["party"], row["code"], row["message"])
    assert failure.excerpt == row["body"][:500]


def test_excerpts_are_capped_in_characters():
    decode_error = WIRES["chat"].decode_error
    assert decode_error(500, "é".encode() * 100_000).excerpt == "é" * 500
    assert len(decode_error(500, b"\xff" * 100_000).message) == 500


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
    failure = WIRES["messages"].decode_error(status, json.dumps(body).encode())
    code = {"rate_limit_error": "rate_limit_exceeded"}.get(kind, kind)  # every provider's has one code
    assert (failure.party, failure.code, failure.message) == (party, code, "why")
    assert WIRES["messages"].encode_error(failure) == (status, body)


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
def test_other_words_for_anthropic_s_client(code, party, status, kind):
    said = WIRES["messages"].encode_error(ReplyFailed(party, code, "why"))
    assert said == (status, {"type": "error", "error": {"type": kind, "message": "why"}})


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
def test_what_google_s_client_is_told(party, code, status, name):
    failure = ReplyFailed(party, code, "why", "excerpt")
    told, body = WIRES["gemini"].encode_error(failure)
    assert (told, body) == (status, {"error": {"code": status, "message": "why", "status": name}})
    back = WIRES["gemini"].decode_error(told, json.dumps(body).encode())
    assert (back.party, back.message) == (party, "why")

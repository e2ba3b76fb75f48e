"""What a backend says when it refuses, in every form that was seen."""

from __future__ import annotations

from tests.tables import table

from callboard.wires.chat import decode_error


@table(
    ("status", "body", "party", "code", "message"),
    [
        (
            400,
            '{"error":{"message":"bad","type":"invalid_request_error","code":"context_length_exceeded"}}',
            "caller",
            "context_length_exceeded",
            "bad",
        ),
        (
            401,
            '{"error":{"message":"key","type":"authentication_error","code":null}}',
            "caller",
            "authentication_error",
            "key",
        ),
        (429, '{"error":{"message":"slow","code":429}}', "provider", "rate_limit_exceeded", "slow"),
        (
            400,
            '{"object":"error","message":"vllm","type":"BadRequestError","param":null,"code":400}',
            "caller",
            "BadRequestError",
            "vllm",
        ),
        (500, '{"error":"boom"}', "provider", "server_error", "boom"),
        (
            422,
            '{"detail":[{"loc":["body"],"msg":"missing"}]}',
            "caller",
            "invalid_request_error",
            '{"detail":[{"loc":["body"],"msg":"missing"}]}',
        ),
        (404, '{"detail":"Not Found"}', "caller", "not_found_error", "Not Found"),
        (
            400,
            '[{"error":{"code":400,"message":"a list","status":"INVALID_ARGUMENT"}}]',
            "caller",
            "invalid_request_error",
            "a list",
        ),
        (403, "no entry", "caller", "permission_error", "no entry"),
        (502, "<html><title>502</title></html>", "provider", "server_error", "the provider answered 502"),
        (503, "", "provider", "overloaded_error", "the provider answered 503"),
        (408, "{}", "provider", "timeout", "the provider answered 408"),
        (413, "null", "caller", "too_large", "the provider answered 413"),
        (418, '"teapot"', "caller", "invalid_request_error", "teapot"),
        (529, '{"error":{}}', "provider", "overloaded_error", "the provider answered 529"),
        (
            500,
            '{"error":{"code":500,"message":"image input is not supported - hint: if this is unexpected, you may need to provide the mmproj","type":"server_error"}}',
            "caller",
            "invalid_request_error",
            "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        ),
        (
            500,
            '{"error":{"code":500,"message":"Failed to parse messages: Unsupported content part type: \\"image_url\\"","type":"server_error"}}',
            "caller",
            "invalid_request_error",
            'Failed to parse messages: Unsupported content part type: "image_url"',
        ),
        (
            500,
            '{"error":{"code":500,"message":"Value is not callable: null at row 49, column 79:","type":"server_error"}}',
            "caller",
            "invalid_request_error",
            "Value is not callable: null at row 49, column 79:",
        ),
        (
            500,
            '{"error":{"code":500,"message":"Error: Jinja Exception: Conversation roles must alternate","type":"server_error"}}',
            "caller",
            "invalid_request_error",
            "Error: Jinja Exception: Conversation roles must alternate",
        ),
        (
            502,
            '{"error":{"message":"image input is not supported"}}',
            "provider",
            "server_error",
            "image input is not supported",
        ),
        (
            400,
            '{"error":{"code":400,"message":"request (9 tokens) exceeds the available context size (8 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9,"n_ctx":8}}',
            "caller",
            "context_length_exceeded",
            "request (9 tokens) exceeds the available context size (8 tokens), try increasing it",
        ),
        (500, "[" * 5000, "provider", "server_error", "[" * 500),
    ],
    ids=lambda value: str(value)[:30],
)
def test_error_bodies(status, body, party, code, message):
    failure = decode_error(status, body.encode())
    assert (failure.party, failure.code, failure.message) == (party, code, message)
    assert failure.excerpt == body[:500]


def test_excerpts_are_capped_in_characters():
    failure = decode_error(500, "é".encode() * 100_000)
    assert failure.excerpt == "é" * 500
    assert len(decode_error(500, b"\xff" * 100_000).message) == 500

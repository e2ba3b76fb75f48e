"""Google's finish reasons and counts of tokens, decoded and encoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callboard.core import Ending, Usage
from callboard.wires.common.reply_stream import count
from callboard.wires.gemini.schema import UsageShape

ENDINGS: Mapping[str, Ending] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        (
            "SAFETY",
            "RECITATION",
            "LANGUAGE",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "MODEL_ARMOR",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
            "IMAGE_OTHER",
            "NO_IMAGE",
        ),
        "filter",
    ),
}
"""A reason that is in no table is a plain stop."""

FAILURES = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
        "MALFORMED_RESPONSE",
        "OTHER",
    }
)
"""Reasons that are the provider's failure; the code is the reason in lower case."""

MALFORMED_CALL = "MALFORMED_FUNCTION_CALL"
"""Where a call's arguments are no object, or never became whole: this wire has no place for it."""

_REASONS: Mapping[Ending, str] = {
    "stop": "STOP",
    "invocations": "STOP",
    "length": "MAX_TOKENS",
    "filter": "SAFETY",
    "refusal": "SAFETY",
    "no_call": "OTHER",
    "retry": "STOP",
}


def finish_reason(reason: Ending, *, malformed: bool) -> str:
    """Google's word for an ending; `malformed` says that a call could not be sent."""
    return MALFORMED_CALL if malformed and reason in {"stop", "invocations"} else _REASONS[reason]


def read_usage(usage: UsageShape) -> Usage:
    thoughts = count(usage.thoughts_token_count)
    return Usage(
        count(usage.prompt_token_count) + count(usage.tool_use_prompt_token_count),
        count(usage.candidates_token_count) + thoughts,
        count(usage.cached_content_token_count),
        thoughts,
    )


def usage_body(usage: Usage) -> dict[str, Any]:
    return {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": max(usage.output - usage.reasoning, 0),
        "totalTokenCount": usage.input + usage.output,
        "cachedContentTokenCount": usage.cached,
        "thoughtsTokenCount": usage.reasoning,
    }

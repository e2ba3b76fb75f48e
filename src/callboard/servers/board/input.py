"""What a browser sends: forms, numbers and short values, each read with a bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

MAX_FORM: Final = 1024 * 1024
"""Bytes of a form."""
MAX_FIELDS: Final = 100
_MAX_VALUE: Final = 500
"""Characters of a value."""
_MAX_DIGITS: Final = 9

Form: TypeAlias = Mapping[str, str]


async def read_form(request: Request) -> Form:
    """The fields of a form. Raises HTTPException for one that is too large, or none."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM:
            raise HTTPException(413, f"a form has at most {MAX_FORM:,} bytes")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError:
        raise HTTPException(400, "this is no form of the board") from None


def read_number(text: str) -> int | None:
    """A number from 0 on; None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


def read_value(text: str | None) -> str:
    """A value, cut; "" where there is none."""
    return (text or "")[:_MAX_VALUE]

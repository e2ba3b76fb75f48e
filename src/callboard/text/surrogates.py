r"""Replace halves of surrogate pairs in JSON, such as an escape `\ud83d` without its other half, or write them escaped.

Clients and servers that cut texts by UTF-16 units write them, and no decoder of JSON accepts one. Python names files
with them whose names are not UTF-8, and no encoder of JSON accepts these.

Law: linear; JSON without halves stays as it is.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

_ESCAPE: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r'|(?P<high>\\u[dD][89abAB][0-9a-fA-F]{2})(?P<ends>(?="))?'
    r'|(?P<begins>(?<="))?(?P<low>\\u[dD][c-fC-F][0-9a-fA-F]{2})'
    r"|\\.",
    re.DOTALL,
)
_REPLACEMENT: Final = r"\ufffd"


def replace_halves(json: str) -> str:
    """Replace each half in the JSON by the replacement character."""
    return _ESCAPE.sub(lambda escape: _REPLACEMENT if escape["high"] or escape["low"] else escape[0], json)


def join_halves(json: str, before: str = "") -> tuple[str, str, str]:
    """Return the JSON of a stream's next piece, with the halves that its strings begin and end with put together.

    Args:
        json: A piece of a stream, whole JSON.
        before: The half that the last piece ended with.

    Returns:
        The JSON without a half at the end of a string, that half, and `before` if nothing joined it.
    """
    held = ""

    def mend(escape: re.Match[str]) -> str:
        nonlocal before, held
        if escape["high"] and escape["ends"] is not None:
            held = escape["high"]
            return ""
        if escape["low"] and escape["begins"] is not None and before:
            half, before = before, ""
            return half + escape["low"]
        return _REPLACEMENT if escape["high"] or escape["low"] else escape[0]

    return _ESCAPE.sub(mend, json), held, before


_encoder = msgspec.json.Encoder()


def encode_json(value: Any) -> bytes:
    r"""The value as JSON in one line. Halves of surrogate pairs are written as Python writes them, such as `\\udcff`."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_escape_all(msgspec.to_builtins(value)))


def escape_surrogates(text: str) -> str:
    """Return the text with halves of surrogate pairs escaped, so that UTF-8 can encode it."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _escape_all(value: Any) -> Any:
    match value:
        case str():
            return escape_surrogates(value)
        case list() | tuple():
            return [_escape_all(each) for each in value]
        case dict():
            return {_escape_all(key): _escape_all(each) for key, each in value.items()}
        case _:
            return value

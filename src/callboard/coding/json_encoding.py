"""JSON of values that may hold halves of surrogate pairs, by which Python names files whose names are not UTF-8.

Law: a job does not fail for what its files are called.
"""

from __future__ import annotations

from typing import Any

import msgspec

_encoder = msgspec.json.Encoder()


def encode_json(value: Any) -> bytes:
    r"""The value as JSON in one line. Halves of surrogate pairs are written as Python writes them, such as `\\udcff`."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_escape_all(msgspec.to_builtins(value)))


def escape_surrogates(text: str) -> str:
    """The text with halves of surrogate pairs escaped, so that UTF-8 can encode it."""
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

"""What a job leaves on disk and tells machines, as JSON.

Owns what is put in place of characters that no JSON carries: halves of surrogate pairs, by which Python names files
whose names are not UTF-8.
Law: a job does not fail for what its files are called.
"""

from __future__ import annotations

from typing import Any

import msgspec

_encoder = msgspec.json.Encoder()


def encoded(value: Any) -> bytes:
    r"""The value as JSON in one line. Halves of surrogate pairs are written as Python writes them, such as `\\udcff`."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_carried(msgspec.to_builtins(value)))


def carried(text: str) -> str:
    """The text, which UTF-8 can carry then."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _carried(value: Any) -> Any:
    match value:
        case str():
            return carried(value)
        case list() | tuple():
            return [_carried(each) for each in value]
        case dict():
            return {_carried(key): _carried(each) for key, each in value.items()}
        case _:
            return value

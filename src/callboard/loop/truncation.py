"""Estimate how many characters a canister has, and cut it to fewer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from callboard.core import (
    AssistantCanister,
    Canister,
    Content,
    FileContent,
    InvocationCanister,
    PictureContent,
    ResultCanister,
    TextualContent,
)
from callboard.text.truncate import truncate_middle

PICTURE: Final = 4000
"""Characters that a picture counts as."""
_FRAME: Final = 16
"""Characters around each canister."""

_encode = msgspec.json.Encoder(enc_hook=str).encode


def size_of(canister: Canister) -> int:
    """In characters."""
    if isinstance(canister, InvocationCanister):
        return len(canister.name) + len(canister.raw or _encode(canister.arguments)) + _FRAME
    size = _FRAME
    for part in canister.content:
        size += _size_of_part(part)
    return size


def _size_of_part(part: Content) -> int:
    if isinstance(part, PictureContent):
        return PICTURE
    return len(part.data) if isinstance(part, FileContent) else len(part.text)


def share_room(sizes: Iterable[int], room: int) -> int:
    """The most that each may have, so that all of them have room."""
    ordered = sorted(sizes)
    for at, size in enumerate(ordered):
        share = room // (len(ordered) - at)
        if size > share:
            return share
        room -= size
    return ordered[-1] if ordered else 0


def cut_to(canister: Canister, most: int) -> Canister:
    """The canister with about that many characters: of texts their beginning and end."""
    if size_of(canister) <= most:
        return canister
    if isinstance(canister, InvocationCanister):
        return _cut_call(canister, most)
    if isinstance(canister, ResultCanister):
        others = sum(not isinstance(part, TextualContent) for part in canister.content)
        note = f"\n[{others} pictures or files are not shown]" if others else ""
        text = truncate_middle(canister.text, most - _FRAME - len(note))
        return replace(canister, content=(TextualContent(f"{text}{note}"),))
    if isinstance(canister, AssistantCanister):
        other_parts = tuple([part for part in canister.content if not isinstance(part, TextualContent)])
        text = truncate_middle(canister.text, most - _FRAME - sum(map(_size_of_part, other_parts)))
        return replace(canister, content=(*other_parts, TextualContent(text)) if text else other_parts)
    return canister


def _cut_call(call: InvocationCanister, most: int) -> InvocationCanister:
    original = call.arguments
    if original is None:
        return replace(call, raw=truncate_middle(call.raw, most - _FRAME - len(call.name)))
    sizes = {name: len(value) for name, value in original.items() if isinstance(value, str)}
    fixed = size_of(call) - sum(sizes.values())
    share = share_room(sizes.values(), max(0, most - fixed))
    shorter = call
    # What is escaped in JSON is longer there, up to six times.
    for each in (share, share // 2, share // 6):
        arguments = {
            name: truncate_middle(value, each) if isinstance(value, str) else value for name, value in original.items()
        }
        shorter = replace(call, arguments=arguments, raw=_encode(arguments).decode())
        if size_of(shorter) <= most:
            break
    return shorter

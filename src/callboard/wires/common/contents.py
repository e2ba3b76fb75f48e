"""Contents on every wire: their names among what was dropped, their extra fields, documents as text, data as base64,
opaque reasoning with the name of its model.

`extra` holds fields without a name in the core, under the name of their wire. They are written on that wire only. Base64 and data URLs follow RFC 4648 and RFC 2397. Opaque reasoning is sealed with
its model's name, so that it is sent to no other model when a client sends it back.

Laws: unseal(seal(opaque, origin), any) is (opaque, origin); of a seal that was cut off, nothing opaque is left.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from callboard.core import Canister, Content, DocumentCanister, InvocationCanister, ReasoningContent, TextualContent
from callboard.errors import CallerError

_MARK = "callboard.1."


def seal(opaque: str, origin: str) -> str:
    """One string: `callboard.1.`, the origin in base64, a check sum and the opaque text, with dots between them."""
    return f"{_MARK}{base64.urlsafe_b64encode(origin.encode()).decode()}.{_sum(opaque)}.{opaque}"


def seal_for_client(opaque: str, origin: str, model: str) -> str:
    """The opaque text for a client that asked for `model`: as it is if it is that model's, else with its origin."""
    origin = origin or model
    if origin == model and not opaque.startswith(_MARK):  # the seal of another gateway is sealed again, not opened
        return opaque
    return seal(opaque, origin)


def unseal(text: str, origin: str) -> tuple[str, str]:
    """The opaque text and the model it came from; `origin` is the model of a text without our seal."""
    named, dot, rest = text.removeprefix(_MARK).partition(".")
    if not (dot and text.startswith(_MARK)):
        return text, origin
    check, _, opaque = rest.partition(".")
    try:
        named = base64.b64decode(named, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return text, origin
    return opaque if check == _sum(opaque) else "", named


def _sum(opaque: str) -> str:
    return f"{zlib.crc32(opaque.encode('utf-8', 'surrogatepass')):08x}"


ITEM = "item"
"""The key of a content's `extra` that holds an item as it came: what the provider's own tools did, or a compaction.

Only the Responses wire carries it.
"""
SCHEME = "data:"
_STANDARD = str.maketrans("-_", "+/")


def content_kind(content: Content) -> str:
    """The name of a content among what was dropped."""
    item = original_item(content)
    return str(content.__struct_config__.tag) if item is None else f"item {item.get('type')}"


def original_item(content: Content) -> Mapping[str, Any] | None:
    """Return the Responses item that the content came from, if there is one."""
    item = content.extra.get(ITEM) if isinstance(content, ReasoningContent) and content.extra else None
    return item if isinstance(item, dict) else None


def plain_text(content: Sequence[Content]) -> str | None:
    """The text of contents that are one text without fields of its own; None for others."""
    if len(content) != 1:
        return None
    only = content[0]
    return only.text if type(only) is TextualContent and not only.extra else None


def contents_with_title(document: DocumentCanister) -> tuple[Content, ...]:
    """The contents of a document, its title before them."""
    match document:
        case DocumentCanister(title=""):
            return document.content
        case DocumentCanister(title=title, content=(TextualContent(text=text), *rest)):
            return (TextualContent(f"{title}\n\n{text}"), *rest)
        case _:
            return (TextualContent(document.title), *document.content)


def own_fields(wire: str, extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields that an `extra` stores for this wire."""
    fields = extra.get(wire) if extra else None
    return dict(fields) if isinstance(fields, Mapping) else {}


def message_fields(wire: str, canisters: Iterable[Canister]) -> Counter[str]:
    """Count the fields that messages store for this wire, by path."""
    count: Counter[str] = Counter()
    for canister in canisters:
        if canister.extra:
            count.update(f"messages.{name}" for name in own_fields(wire, canister.extra))
        for part in () if isinstance(canister, InvocationCanister) else canister.content:
            if part.extra and wire == "chat":  # other wires keep whole parts so
                count.update(f"messages.content.{name}" for name in own_fields(wire, part.extra))
    return count


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decode_base64(text: str, path: str) -> bytes:
    """Decode base64. The URL alphabet and missing padding are accepted. Raises CallerError at `path`."""
    standard = text.translate(_STANDARD).rstrip("=")
    try:
        return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise CallerError("not base64", path=path) from None


def encode_data_url(data: bytes, mime_type: str) -> str:
    return f"{SCHEME}{mime_type};base64,{encode_base64(data)}"


def decode_data_url(url: str, path: str) -> tuple[bytes, str]:
    """Bytes and type of a data URL in base64, or of base64 without its head: the type is then empty.

    Raises CallerError at `path`.
    """
    head, _, payload = url.rpartition(",")
    mime_type, *parameters = head.removeprefix(SCHEME).split(";")
    if head and "base64" not in parameters:
        raise CallerError("a data URL that is not base64", path=path)
    return decode_base64(payload, path), mime_type


def is_audio(mime_type: str) -> bool:
    return mime_type.lower().startswith("audio/")

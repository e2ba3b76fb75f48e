"""Make a server's descriptions and schemas safe to read.

Law: a server's texts are hostile. Texts that cannot be cleaned are refused with a reason, never changed in meaning.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from callboard.errors import SchemaError
from callboard.schema.subschemas import inside, rebuild

MAX_TOOLS: Final = 512
"""Maximum tools of one server."""
MAX_NAME: Final = 128
"""Maximum characters of a tool's name, from the protocol (SEP-986)."""
SCHEMA_BYTES: Final = 64 * 1024
"""Maximum bytes of JSON of one tool's schema."""
MAX_PROPERTIES: Final = 512
"""Maximum properties in one tool's schema, including inner objects."""

_VISIBLE_CONTROLS: Final = frozenset("\n\t")
_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Co", "Cs"})
# Fillers that are letters, and selectors that can hide bytes after a character. U+FE0F turns a sign into an emoji.
_HIDDEN: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2028\u2029\u3164\uffa0") | frozenset(
    chr(code) for code in (*range(0xFE00, 0xFE0F), *range(0xE0000, 0xE1000))
)
_TEXTS: Final = ("title", "description", "$comment")
"""Keywords of a schema that are written for people."""


def has_hidden(text: str) -> bool:
    """True if the text has an invisible character."""
    return any(_is_hidden(char) for char in text)


def clean_text(text: str, limit: int) -> str:
    """Return the text without invisible characters and HTML comments, cut to `limit` bytes."""
    plain = text if text.isascii() and text.isprintable() else "".join([char for char in text if not _is_hidden(char)])
    # Joined by spaces: otherwise the parts around a comment could form another comment.
    plain = " ".join(_outside_comments(plain)).strip()
    data = plain.encode()
    return plain if len(data) <= limit else f"{data[:limit].decode('utf-8', 'ignore')} [cut]"


def clean_schema(schema: Mapping[str, Any], limit: int) -> Mapping[str, Any]:
    """Return the schema with cleaned texts. It must be compiled before, which limits its depth and its references.

    Raises:
        SchemaError: The schema is too large, or has invisible characters outside its texts.
    """
    if len(msgspec.json.encode(schema)) > SCHEMA_BYTES:
        raise SchemaError(f"larger than {SCHEMA_BYTES // 1024} KB")
    clean: Mapping[str, Any] = _clean_texts(schema, limit)
    if _count_properties(clean) > MAX_PROPERTIES:
        raise SchemaError(f"more than {MAX_PROPERTIES} properties")
    if any(has_hidden(text) for text in _strings(clean)):
        raise SchemaError("hidden characters outside of its descriptions")
    return schema if clean == schema else clean


def _clean_texts(schema: Any, limit: int) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    texts = {key: clean_text(schema[key], limit) for key in _TEXTS if isinstance(schema.get(key), str)}
    return {**rebuild(schema, lambda part: _clean_texts(part, limit)), **texts}


def _count_properties(schema: Any) -> int:
    if not isinstance(schema, Mapping):
        return 0
    own = schema.get("properties")
    return (len(own) if isinstance(own, Mapping) else 0) + sum(_count_properties(part) for _, part in inside(schema))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield key
            yield from _strings(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _strings(part)


def _outside_comments(text: str) -> Iterator[str]:
    """Yield the parts outside of HTML comments. An unclosed comment extends to the end, as in a browser."""
    at = 0
    while (begins := text.find("<!--", at)) >= 0:
        yield text[at:begins]
        ends = text.find("-->", begins + 4)
        if ends < 0:
            return
        at = ends + 3
    yield text[at:]


def _is_hidden(char: str) -> bool:
    return char not in _VISIBLE_CONTROLS and (unicodedata.category(char) in _HIDDEN_CATEGORIES or char in _HIDDEN)

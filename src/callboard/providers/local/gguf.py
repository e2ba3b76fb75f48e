"""Read the metadata at the head of a GGUF file: its context window, the memory of its cache and its chat template.

The file is untrusted. Lengths are checked against the file's size and the limits below before anything is read.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from callboard.errors import ModelFileError

MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_FORMATS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Struct formats of the numbers, by their type."""
_STRING: Final = 8
_ARRAY: Final = 9
_MAX_KEYS: Final = 10_000
_MAX_ITEMS: Final = 10_000_000
"""Maximum items of an array. Vocabularies have fewer than a million."""
_MAX_TEXT: Final = 1024 * 1024
_MAX_LAYERS: Final = 4096
_MAX_TOKENS: Final = 1 << 30
_F16_BYTES: Final = 2


class Gguf(msgspec.Struct, frozen=True):
    """Facts of a model's file. `context` is in tokens; 0 and "" mean that the file does not say."""

    title: str = ""
    licence: str = ""
    context: int = 0
    token_bytes: int = 0
    """Memory of one token in a cache of the type f16."""
    chat_template: str = ""


def read_gguf(path: Path, *, whole: bool = False) -> Gguf:
    """Return the facts of a file. Only with `whole`, the chat template is read: it is behind the vocabulary.

    Raises:
        ModelFileError: It is not a GGUF file, or its metadata is damaged.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            values: dict[str, Any] = {}
            for key, value in _iterate(file, size):
                if not whole and key.startswith("tokenizer."):
                    break
                values[key] = value
            return _describe(values)
    except struct.error:
        raise ModelFileError("not a GGUF file: it ends within its metadata", path=str(path)) from None
    except ValueError as error:
        raise ModelFileError(f"not a GGUF file: {error}", path=str(path)) from None
    except OSError as error:
        raise ModelFileError(error.strerror or "cannot be read", path=str(path)) from None


def _describe(values: dict[str, Any]) -> Gguf:
    def count(key: str, most: int) -> int:
        value = values.get(f"{values.get('general.architecture')}.{key}")
        return value if isinstance(value, int) and 0 < value <= most else 0

    def text(key: str) -> str:
        value = values.get(key)
        return value if isinstance(value, str) else ""

    layers, heads = count("block_count", _MAX_LAYERS), count("attention.head_count", _MAX_TOKENS)
    head_size = count("embedding_length", _MAX_TOKENS) // heads if heads else 0
    sizes = [count(f"attention.{each}_length", _MAX_TOKENS) or head_size for each in ("key", "value")]
    pairs = values.get(f"{values.get('general.architecture')}.attention.head_count_kv", heads)
    # Models with layers of several kinds have a list. A layer without attention has 0.
    # Qwen3.5 has attention in every fourth layer only.
    layers //= count("full_attention_interval", _MAX_LAYERS) or 1
    total = sum(pairs) if isinstance(pairs, list) else layers * pairs
    return Gguf(
        title=text("general.name"),
        licence=text("general.license"),
        context=count("context_length", _MAX_TOKENS),
        token_bytes=max(0, total * sum(sizes) * _F16_BYTES),
        chat_template=text("tokenizer.chat_template"),
    )


def _iterate(file: BinaryIO, size: int) -> Iterator[tuple[str, Any]]:
    if file.read(4) != MAGIC:
        raise ValueError("it does not begin with GGUF")
    version, _, keys = _unpack(file, "<IQQ")
    if version not in _VERSIONS or keys > _MAX_KEYS:
        raise ValueError(f"version {version} with {keys} keys")
    for _ in range(keys):
        key = _read_text(file, size)
        (kind,) = _unpack(file, "<I")
        yield key, _read_array(file, size) if kind == _ARRAY else _read_value(file, size, kind)


def _read_value(file: BinaryIO, size: int, kind: int) -> Any:
    if kind == _STRING:
        return _read_text(file, size)
    if kind not in _FORMATS:
        raise ValueError(f"type {kind}")
    return _unpack(file, f"<{_FORMATS[kind]}")[0]


def _read_array(file: BinaryIO, size: int) -> list[int] | None:
    """Return a short list of whole numbers. Skip other arrays."""
    kind, count = _unpack(file, "<IQ")
    if count > _MAX_ITEMS:
        raise ValueError(f"an array of {count} items")
    if kind == _STRING:
        for _ in range(count):
            _skip(file, size, _unpack(file, "<Q")[0])
        return None
    if kind not in _FORMATS:  # no file has lists of lists
        raise ValueError(f"an array of type {kind}")
    if count <= _MAX_LAYERS and _FORMATS[kind] in "BbHhIiQq":
        return list(_unpack(file, f"<{count}{_FORMATS[kind]}"))
    _skip(file, size, count * struct.calcsize(f"<{_FORMATS[kind]}"))
    return None


def _read_text(file: BinaryIO, size: int) -> str:
    (length,) = _unpack(file, "<Q")
    if length > _MAX_TEXT:
        _skip(file, size, length)
        return ""
    text = file.read(length)
    if len(text) < length:
        raise ValueError("it ends within its metadata")
    return text.decode("utf-8", "replace")


def _skip(file: BinaryIO, size: int, length: int) -> None:
    if length > size:
        raise ValueError("it ends within its metadata")
    file.seek(length, os.SEEK_CUR)


def _unpack(file: BinaryIO, form: str) -> tuple[Any, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))

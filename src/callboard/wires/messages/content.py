"""Encode contents as the blocks of a message, and decode them.

Law: a block of a type that is not read here is kept whole, as a text with the block in its `extra`, and written back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from callboard import core
from callboard.errors import CallerError
from callboard.wires.common.client_input import read_shape
from callboard.wires.common.contents import content_kind, decode_base64, encode_base64, unseal
from callboard.wires.messages import schema

_CARRIED = frozenset({"cache_control", "caller", "citations", "context", "toolset_name", "transformations"})
"""Fields of blocks that have no name in the core and are written back."""
_PICTURES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
_PDF = "application/pdf"


def encode_extra(extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields of an `extra` that this wire has."""
    return {name: extra[name] for name in extra.keys() & _CARRIED} if extra else {}


def decode_extra(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """The fields of a block that go to `extra`."""
    return {name: block[name] for name in block.keys() & _CARRIED if block[name] is not None} or None


def encode_part(content: core.Content, model: str = "") -> dict[str, Any] | None:
    """The content as a block; None for what this wire cannot carry, and for reasoning that is not of `model`.

    A refusal becomes text, because this wire has no block for refusals.
    """
    block: dict[str, Any]
    match content:
        case core.TextualContent(text=text, extra=extra):
            if extra is not None and isinstance(extra.get(schema.WIRE), Mapping):
                return dict(extra[schema.WIRE])
            block = {"type": "text", "text": text}
        case core.RefusalContent(text=text):
            block = {"type": "text", "text": text}
        case core.ReasoningContent(text="", opaque=opaque, origin=origin) if opaque.startswith(schema.REDACTED):
            return {"type": "redacted_thinking", "data": opaque[len(schema.REDACTED) :]} if origin == model else None
        case core.ReasoningContent(text=text, opaque=opaque, origin=origin):
            signed = opaque and origin == model
            return {"type": "thinking", "thinking": text, "signature": opaque} if signed else None
        case core.PictureContent():
            source = _picture_source(content)
            block = {"type": "image", "source": source}
        case core.FileContent(name=name):
            source = _file_source(content)
            block = {"type": "document", "source": source} | ({"title": name} if name else {})
    if block.get("source", block) is None:
        return None
    return block | encode_extra(content.extra) if content.extra else block


def is_blank(content: core.Content) -> bool:
    """Whether the content is a text of whitespace, which the API refuses."""
    return (
        isinstance(content, core.TextualContent | core.RefusalContent)
        and (not content.text or content.text.isspace())
        and not (content.extra and schema.WIRE in content.extra)
    )


def encode_content(contents: Iterable[core.Content], dropped: list[str], model: str = "") -> list[dict[str, Any]]:
    """The blocks of contents that are not blank; `dropped` gets what the wire cannot carry."""
    blocks: list[dict[str, Any]] = []
    for content in contents:
        if type(content) is core.TextualContent and content.extra is None:
            text = content.text
            if text and not text.isspace():
                blocks.append({"type": "text", "text": text})
        elif not is_blank(content):
            block = encode_part(content, model)
            if block is None:
                dropped.append(content_kind(content))
            else:
                blocks.append(block)
    return blocks


def encode_document(canister: core.DocumentCanister, dropped: list[str]) -> dict[str, Any] | None:
    """A document as a block: plain text where it is one text, else its contents; None if it is empty."""
    source: dict[str, Any]
    match canister.content:
        case (core.TextualContent(text=text, extra=None),) if text and not text.isspace():
            source = {"type": "text", "media_type": "text/plain", "data": text}
        case contents:
            blocks = encode_content(
                [c for c in contents if isinstance(c, core.TextualContent | core.PictureContent)], dropped
            )
            dropped += [
                content_kind(c) for c in contents if not isinstance(c, core.TextualContent | core.PictureContent)
            ]
            if not blocks:
                return None
            source = {"type": "content", "content": blocks}
    title = {"title": canister.title} if canister.title else {}
    return {"type": "document", "source": source, **title, **encode_extra(canister.extra)}


def decode_content(content: str | list[dict[str, Any]] | None, path: str, model: str = "") -> tuple[core.Content, ...]:
    """Return the contents of blocks. Raises CallerError below `path` for invalid blocks."""
    if not content:
        return ()
    if isinstance(content, str):
        return (core.TextualContent(content),)
    return tuple([decode_part(block, f"{path}[{index}]", model) for index, block in enumerate(content)])


def decode_part(block: dict[str, Any], path: str, model: str) -> core.Content:
    """The content of a block; thinking that is not sealed is taken to be `model`'s own. Raises CallerError below `path`."""
    name = block.get("type")
    if not isinstance(name, str):
        raise CallerError("a block without its type", path=f"{path}.type")
    match name:
        case "text":
            text = block.get("text")
            if len(block) == 2 and type(text) is str:
                return core.TextualContent(text)
            return core.TextualContent(read_shape(block, schema.TextBlock, path).text, extra=decode_extra(block))
        case "thinking":
            shape = read_shape(block, schema.ThinkingBlock, path)
            return core.ReasoningContent(shape.thinking, *unseal(shape.signature or "", model))
        case "redacted_thinking":
            data, origin = unseal(read_shape(block, schema.RedactedBlock, path).data, model)
            return core.ReasoningContent("", schema.REDACTED + data, origin)
        case "image":
            picture = read_shape(block, schema.ImageBlock, path)
            return core.PictureContent(**_source_fields(picture.source, block, path))
        case "document":
            return _document(block, path)
        case _:
            return core.TextualContent(_readable_text(block), extra={schema.WIRE: block})


def decode_document(block: dict[str, Any], path: str) -> core.DocumentCanister | None:
    """The document of a block that holds text; None for one that is a file. Raises CallerError."""
    shape = read_shape(block, schema.DocumentBlock, path)
    match shape.source:
        case schema.TextSource(data=text) | schema.ContentSource(content=str(text)):
            content = decode_content(text, path)
        case schema.ContentSource(content=list(blocks)):
            content = decode_content(blocks, f"{path}.source.content")
        case _:
            return None
    return core.DocumentCanister(content, title=shape.title or "", extra=decode_extra(block))


def _document(block: dict[str, Any], path: str) -> core.Content:
    shape = read_shape(block, schema.DocumentBlock, path)
    fields: dict[str, Any]
    match shape.source:
        case schema.ContentSource():
            return core.TextualContent(_readable_text(block), extra={schema.WIRE: block})
        case schema.TextSource(data=text):
            fields = {"data": text.encode("utf-8", "replace"), "mime_type": "text/plain", "extra": decode_extra(block)}
        case schema.UrlSource(url=url):
            fields = {"url": url, "mime_type": _PDF, "extra": decode_extra(block)}
        case source:
            fields = _source_fields(source, block, path)
    return core.FileContent(**fields, name=shape.title or "")


def _source_fields(
    source: schema.Base64Source | schema.UrlSource | schema.FileSource, block: dict[str, Any], path: str
) -> dict[str, Any]:
    """Return the fields of a picture's or a file's content, from the source of its block."""
    extra = decode_extra(block)
    match source:
        case schema.Base64Source(media_type=mime_type, data=data):
            return {"data": decode_base64(data, f"{path}.source.data"), "mime_type": mime_type, "extra": extra}
        case schema.UrlSource(url=url):
            return {"url": url, "extra": extra}
        case schema.FileSource(file_id=file_id):
            return {"extra": {"file_id": file_id, **(extra or {})}}


def _picture_source(picture: core.PictureContent) -> dict[str, Any] | None:
    if picture.data:
        if picture.mime_type not in _PICTURES:
            return None
        return {"type": "base64", "media_type": picture.mime_type, "data": encode_base64(picture.data)}
    return _reference(picture)


def _file_source(file: core.FileContent) -> dict[str, Any] | None:
    if not file.data:
        return _reference(file)
    if file.mime_type == _PDF:
        return {"type": "base64", "media_type": _PDF, "data": encode_base64(file.data)}
    if file.mime_type.startswith("text/"):
        try:
            return {"type": "text", "media_type": "text/plain", "data": file.data.decode()}
        except UnicodeDecodeError:
            return None
    return None


def _reference(content: core.PictureContent | core.FileContent) -> dict[str, Any] | None:
    if content.url:
        return {"type": "url", "url": content.url}
    if content.extra and "file_id" in content.extra:
        return {"type": "file", "file_id": content.extra["file_id"]}
    return None


def _readable_text(block: Mapping[str, Any]) -> str:
    """The text of a block of another type, for other wires: its texts, or the tool that it refers to."""
    if block.get("type") == "tool_reference":
        return f"tool {block.get('tool_name')}"
    source = block.get("source")
    inner = source.get("content") if isinstance(source, Mapping) else block.get("content")
    if not isinstance(inner, list):
        return ""
    texts = [part.get("text") for part in inner if isinstance(part, Mapping)]
    return "\n".join([text for text in texts if isinstance(text, str)])

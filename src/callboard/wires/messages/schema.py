"""The types of a backend's frames and of a client's request.

Fields that backends fill with anything are `Any` and checked where they are used; fields without a name here are
skipped.
Source: the `anthropic` package 2.12.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

WIRE = "messages"
"""The name of this wire in `extra` and hosted tools."""
REDACTED = "redacted:"
"""Begins the `opaque` of thinking that was redacted; a signature is base64 and has no colon."""


class UsageShape(msgspec.Struct):
    """`input_tokens` are those that were neither read from the cache nor written to it."""

    input_tokens: Any = None
    cache_creation_input_tokens: Any = None
    cache_creation: Any = None
    """The tokens that were written to the cache, by how long it keeps them."""
    cache_read_input_tokens: Any = None
    output_tokens: Any = None
    output_tokens_details: Any = None


class Block(msgspec.Struct):
    """A block of a reply, as it begins or whole."""

    type: Any = None
    text: Any = None
    thinking: Any = None
    signature: Any = None
    data: Any = None
    id: Any = None
    name: Any = None
    input: Any = None


class Delta(msgspec.Struct):
    """The next piece of a block, or how the message ends."""

    type: Any = None
    text: Any = None
    partial_json: Any = None
    thinking: Any = None
    signature: Any = None
    stop_reason: Any = None
    stop_details: Any = None


class Message(msgspec.Struct):
    """A reply: its beginning in a stream, or all of it."""

    type: Any = None
    id: Any = None
    model: Any = None
    content: list[Block] | None = None
    stop_reason: Any = None
    stop_details: Any = None
    usage: UsageShape | None = None
    error: Any = None


class Frame(msgspec.Struct):
    """One event of a stream."""

    type: Any = None
    index: Any = None
    message: Message | None = None
    content_block: Block | None = None
    delta: Delta | None = None
    usage: UsageShape | None = None
    error: Any = None


class Typed(msgspec.Struct):
    """Fields of every frame."""

    type: Any = None


class _Source(msgspec.Struct, tag_field="type"):
    pass


class Base64Source(_Source, tag="base64"):
    media_type: str
    data: str


class UrlSource(_Source, tag="url"):
    url: str


class FileSource(_Source, tag="file"):
    file_id: str


class TextSource(_Source, tag="text"):
    data: str


class ContentSource(_Source, tag="content"):
    content: str | list[dict[str, Any]]


class TextBlock(msgspec.Struct):
    text: str


class ImageBlock(msgspec.Struct):
    source: Base64Source | UrlSource | FileSource


class DocumentBlock(msgspec.Struct):
    source: Base64Source | UrlSource | FileSource | TextSource | ContentSource
    title: str | None = None


class ThinkingBlock(msgspec.Struct):
    thinking: str
    signature: str | None = None


class RedactedBlock(msgspec.Struct):
    data: str


class ToolUseBlock(msgspec.Struct):
    id: str
    name: str
    input: dict[str, Any]


class ToolResultBlock(msgspec.Struct):
    tool_use_id: str
    content: str | list[dict[str, Any]] | None = None
    is_error: bool | None = None


class RequestMessage(msgspec.Struct):
    """A message of a request."""

    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, Any]]


class Tool(msgspec.Struct):
    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class _Choice(msgspec.Struct, tag_field="type"):
    disable_parallel_tool_use: bool | None = None


class AutoChoice(_Choice, tag="auto"):
    pass


class NoChoice(_Choice, tag="none"):
    pass


class AnyChoice(_Choice, tag="any"):
    pass


class ToolChoice(_Choice, tag="tool", kw_only=True):
    name: str


class OutputFormat(msgspec.Struct):
    schema: dict[str, Any]


Choice: TypeAlias = AutoChoice | NoChoice | AnyChoice | ToolChoice


class MessagesRequest(msgspec.Struct):
    model: str
    messages: list[RequestMessage]
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Choice | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None

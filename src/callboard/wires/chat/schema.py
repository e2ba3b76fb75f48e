"""The types of a backend's frames and of a client's request.

Fields that backends fill with anything are `Any` and checked where they are used; fields without a name here are
skipped.
Source: the `openai` package 3.54 and what backends were seen to send.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec


class FunctionDelta(msgspec.Struct):
    name: Any = None
    arguments: Any = None


class CallDelta(msgspec.Struct):
    index: Any = None
    id: Any = None
    function: FunctionDelta | None = None


class Delta(msgspec.Struct):
    """A piece of a message, or a whole one."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: list[CallDelta] | None = None
    function_call: FunctionDelta | None = None


class Choice(msgspec.Struct):
    index: Any = None
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: Any = None
    logprobs: Any = None


class UsageShape(msgspec.Struct):
    prompt_tokens: Any = None
    completion_tokens: Any = None
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None


class Chunk(msgspec.Struct):
    """One payload of a stream, or a whole reply: the two differ in `delta` and `message` only."""

    id: Any = None
    model: Any = None
    choices: list[Choice] | None = None
    usage: UsageShape | None = None
    error: Any = None
    system_fingerprint: Any = None
    service_tier: Any = None


class _KnownDelta(Delta, forbid_unknown_fields=True):
    role: Any = None


class _KnownChoice(Choice, forbid_unknown_fields=True):
    delta: _KnownDelta | None = None
    message: _KnownDelta | None = None


class KnownChunk(Chunk, forbid_unknown_fields=True):
    """A chunk with only the fields that we read. Chunks that do not fit are searched for other fields."""

    object: Any = None
    created: Any = None
    choices: list[_KnownChoice] | None = None  # type: ignore[assignment]  # each is a Choice
    obfuscation: Any = None


READ: Mapping[str, frozenset[str]] = {
    "chunk": frozenset(KnownChunk.__struct_fields__) - {"system_fingerprint", "service_tier"},
    "choice": frozenset(_KnownChoice.__struct_fields__),
    "message": frozenset(_KnownDelta.__struct_fields__),
}
"""The fields of a reply that are read, or say nothing: `obfuscation` makes chunks as long as each other."""


class _Part(msgspec.Struct, tag_field="type"):
    pass


class TextPart(_Part, tag="text"):
    text: str


class RefusalPart(_Part, tag="refusal"):
    refusal: str


class ImageUrl(msgspec.Struct):
    url: str
    detail: str | None = None


class ImagePart(_Part, tag="image_url"):
    image_url: ImageUrl | str


class FileShape(msgspec.Struct):
    file_data: str | None = None
    filename: str | None = None
    file_id: str | None = None


class FilePart(_Part, tag="file"):
    file: FileShape


class Audio(msgspec.Struct):
    data: str
    format: str


class AudioPart(_Part, tag="input_audio"):
    input_audio: Audio


MessageContent: TypeAlias = str | list[TextPart | RefusalPart | ImagePart | FilePart | AudioPart] | None
"""The content of a message in a request."""


class _Message(msgspec.Struct, tag_field="role", kw_only=True):
    content: MessageContent = None


class SystemMessage(_Message, tag="system"):
    pass


class DeveloperMessage(_Message, tag="developer"):
    pass


class UserMessage(_Message, tag="user"):
    pass


class FunctionCall(msgspec.Struct):
    name: str
    arguments: Any = None


class CustomCall(msgspec.Struct):
    name: str
    input: str = ""


class Call(msgspec.Struct):
    """One of `function` and `custom` is there."""

    id: str
    function: FunctionCall | None = None
    custom: CustomCall | None = None


class AssistantMessage(_Message, tag="assistant"):
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Call] | None = None
    function_call: Any = None
    prefix: bool | None = None
    partial: bool | None = None


class ToolMessage(_Message, tag="tool", kw_only=True):
    tool_call_id: str


Message: TypeAlias = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


class Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Grammar(msgspec.Struct):
    definition: str
    syntax: str = "lark"


class CustomFormat(msgspec.Struct):
    type: str = "text"
    grammar: Grammar | None = None


class Custom(msgspec.Struct):
    name: str
    description: str | None = None
    format: CustomFormat | None = None


class FunctionTool(msgspec.Struct):
    type: str = "function"
    function: Function | None = None
    custom: Custom | None = None


class FunctionName(msgspec.Struct):
    name: str


class NamedChoice(msgspec.Struct):
    """One of `function` and `custom` is there."""

    type: Literal["function", "custom"]
    function: FunctionName | None = None
    custom: FunctionName | None = None


class ChatRequest(msgspec.Struct):
    model: str
    messages: list[Message]
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: Any = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: Any = None

"""The types of a backend's frames and of a client's request.

Fields that backends fill with anything are `Any` and checked where they are used; fields without a name here are
skipped.
Source: the `openai` package 3.54, the Open Responses specification 2026-04-24, and what Codex 0.169 sends.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

ENCRYPTED = "reasoning.encrypted_content"
"""Value of `include` that requests reasoning in a form that can be sent back."""
SEARCH = "tool_search"
"""The name of the function that a tool search run by the client is for the model."""


class Item(msgspec.Struct):
    """An item of a reply; which fields it has follows from its type."""

    type: Any = None
    id: Any = None
    status: Any = None
    role: Any = None
    content: Any = None
    summary: Any = None
    encrypted_content: Any = None
    call_id: Any = None
    name: Any = None
    namespace: Any = None
    arguments: Any = None
    input: Any = None
    execution: Any = None


class ResponseShape(msgspec.Struct):
    """A reply, whole or as far as it came."""

    object: Any = None
    id: Any = None
    model: Any = None
    status: Any = None
    output: list[Item | None] | None = None
    usage: Any = None
    error: Any = None
    incomplete_details: Any = None


class Frame(msgspec.Struct):
    """One payload of a stream."""

    type: Any = None
    delta: Any = None
    output_index: Any = None
    item_id: Any = None
    content_index: Any = None
    summary_index: Any = None
    text: Any = None
    logprobs: Any = None
    refusal: Any = None
    arguments: Any = None
    input: Any = None
    name: Any = None
    item: Item | None = None
    response: ResponseShape | None = None
    error: Any = None
    code: Any = None
    message: Any = None


class TextPart(msgspec.Struct):
    text: str


class RefusalPart(msgspec.Struct):
    refusal: str


class ImageUrl(msgspec.Struct):
    url: str
    detail: str | None = None


class ImagePart(msgspec.Struct):
    image_url: str | ImageUrl | None = None
    detail: str | None = None
    file_id: str | None = None


class FilePart(msgspec.Struct):
    file_data: str | None = None
    file_url: str | None = None
    file_id: str | None = None
    filename: str | None = None


class OutputPart(msgspec.Struct):
    """A tool's output as a part, the way MCP spells it."""

    body: str = ""


MessageContent: TypeAlias = str | list[dict[str, Any]] | None
"""The content of a message in a request."""


class Message(msgspec.Struct):
    role: str
    content: MessageContent = None
    phase: str | None = None
    tool_call_id: str | None = None


class AgentMessage(msgspec.Struct):
    """A message from another agent to this one."""

    author: str | None = None
    content: MessageContent = None


class Reasoning(msgspec.Struct):
    summary: list[dict[str, Any]] | None = None
    content: list[dict[str, Any]] | None = None
    encrypted_content: str | None = None


class Call(msgspec.Struct):
    call_id: str | None = None
    id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Any = None
    input: str = ""


class Output(msgspec.Struct):
    call_id: str | None = None
    id: str | None = None
    name: str | None = None
    output: Any = None
    tools: list[dict[str, Any]] | None = None


class Tools(msgspec.Struct):
    tools: list[dict[str, Any]] | None = None


class FunctionTool(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class CustomTool(msgspec.Struct):
    name: str
    description: str | None = None
    format: dict[str, Any] | None = None


class NamespaceTool(msgspec.Struct):
    name: str
    tools: list[dict[str, Any]] | None = None
    description: str | None = None


class SearchTool(msgspec.Struct):
    execution: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Format(msgspec.Struct):
    """How the reply's text has to be."""

    name: str | None = None
    schema: dict[str, Any] = {}
    strict: bool | None = None


class ResponsesRequest(msgspec.Struct):
    model: str
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    include: list[str] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: Any = None

"""The types of a backend's frames and of a client's request, and a client's body in the one spelling that they have.

Fields that backends fill with anything are `Any` and checked where they are used; fields without a name here are
skipped.
Source: the `google-genai` package 3.4 and Google's reference of generateContent.

A body gets names in camel case, and lists where the API takes one object for a list of it: Google reads
`system_instruction` and `systemInstruction` alike, and its own examples use both.
Law: what a user or a tool named is never renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_
from typing import Any, Literal, TypeAlias

import msgspec

_FREE_NAMES = frozenset(
    {
        "args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema",
        "labels", "partMetadata", "videoMetadata", "mediaResolution", "text", "data",
    }
)  # fmt: skip
"""Fields with names that the user chose. `decode_schema` converts names in schemas."""


_NESTED = frozenset({dict, list})


def camel_case(value: Any) -> Any:
    """The value with its names in camel case, itself where they are already."""
    return _rename(value) if _has_snakes(value) else value


_LISTS: Mapping[str, str] = {"contents": "parts", "tools": "functionDeclarations"}
"""The fields that hold lists of objects, and those lists' own."""


def wrap_lists(body: Any) -> Any:
    """Return the body in camel case, with single objects as lists. Return the same body if nothing changes."""
    if not isinstance(body, Mapping):
        return body
    changed = {name: _list_of(body[name], inner) for name, inner in _LISTS.items() if name in body}
    if "systemInstruction" in body:
        changed["systemInstruction"] = _with_list(body["systemInstruction"], "parts")
    return body if all(body[name] is value for name, value in changed.items()) else {**body, **changed}


def _list_of(value: Any, inner: str) -> Any:
    items = [value] if isinstance(value, Mapping) else value
    if not isinstance(items, list):
        return value
    ours = [_with_list(item, inner) for item in items]
    return value if items is value and all(map(is_, ours, items)) else ours


def _with_list(item: Any, name: str) -> Any:
    value = item.get(name) if isinstance(item, Mapping) else None
    return {**item, name: [value]} if isinstance(value, Mapping) else item


def _has_snakes(value: Any) -> bool:
    if type(value) is list:
        return any(_has_snakes(item) for item in value if type(item) in _NESTED)
    if not isinstance(value, dict) and not isinstance(value, Mapping):
        return False
    for key, inner in value.items():
        if "_" in key or (type(inner) in _NESTED and key not in _FREE_NAMES and _has_snakes(inner)):
            return True
    return False


def _rename(value: Any) -> Any:
    if isinstance(value, list):
        return [_rename(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    named = ((_camel(key), inner) for key, inner in value.items())
    return {name: inner if name in _FREE_NAMES else _rename(inner) for name, inner in named}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join([word[:1].upper() + word[1:] for word in rest]) if head else name


DEEPEST = 48
"""Maximum depth of a schema."""
_CAMEL: Mapping[str, str] = {
    "any_of": "anyOf", "min_items": "minItems", "max_items": "maxItems", "min_length": "minLength",
    "max_length": "maxLength", "min_properties": "minProperties", "max_properties": "maxProperties",
    "property_ordering": "propertyOrdering", "additional_properties": "additionalProperties",
}  # fmt: skip
_COUNTS = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})


class CallShape(msgspec.Struct, rename="camel"):
    id: Any = None
    name: Any = None
    args: Any = None
    partial_args: Any = None
    will_continue: Any = None


class ReplyPart(msgspec.Struct, rename="camel"):
    text: Any = None
    thought: Any = None
    thought_signature: Any = None
    function_call: CallShape | None = None
    inline_data: Any = None


class ReplyContent(msgspec.Struct, rename="camel"):
    parts: list[ReplyPart] | None = None


class Candidate(msgspec.Struct, rename="camel"):
    index: Any = None
    content: ReplyContent | None = None
    finish_reason: Any = None
    finish_message: Any = None


class PromptFeedback(msgspec.Struct, rename="camel"):
    block_reason: Any = None


class UsageShape(msgspec.Struct, rename="camel"):
    prompt_token_count: Any = None
    tool_use_prompt_token_count: Any = None
    candidates_token_count: Any = None
    thoughts_token_count: Any = None
    cached_content_token_count: Any = None


class Chunk(msgspec.Struct, rename="camel"):
    """One payload of a stream, or a whole reply: the two do not differ."""

    candidates: list[Candidate] | None = None
    usage_metadata: UsageShape | None = None
    prompt_feedback: PromptFeedback | None = None
    response_id: Any = None
    model_version: Any = None
    error: Any = None


Body: TypeAlias = Chunk | list[Chunk]
"""A body; a stream without `alt=sse` is a list of chunks."""


class Blob(msgspec.Struct, rename="camel"):
    data: str | None = None
    mime_type: str | None = None
    display_name: str | None = None


class FileData(msgspec.Struct, rename="camel"):
    file_uri: str | None = None
    mime_type: str | None = None
    display_name: str | None = None


class ResultPart(msgspec.Struct, rename="camel"):
    inline_data: Blob | None = None
    file_data: FileData | None = None


class FunctionCall(msgspec.Struct, rename="camel"):
    name: str
    id: str | None = None
    args: dict[str, Any] | None = None


class FunctionResponse(msgspec.Struct, rename="camel"):
    name: str
    id: str | None = None
    response: dict[str, Any] | None = None
    parts: list[ResultPart] | None = None


class Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    inline_data: Blob | None = None
    file_data: FileData | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None
    media_resolution: Any = None
    video_metadata: Any = None


class ContentShape(msgspec.Struct):
    parts: list[Part] | None = None
    role: Literal["user", "model", "function"] | None = None


class Instruction(msgspec.Struct):
    parts: list[Part] | None = None


class Declaration(msgspec.Struct, rename="camel"):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    parameters_json_schema: dict[str, Any] | None = None


class ToolShape(msgspec.Struct, rename="camel"):
    function_declarations: list[Declaration] | None = None


class CallingConfig(msgspec.Struct, rename="camel"):
    mode: str | None = None
    allowed_function_names: list[str] | None = None


class ToolConfig(msgspec.Struct, rename="camel"):
    function_calling_config: CallingConfig | None = None


class ThinkingConfig(msgspec.Struct, rename="camel"):
    thinking_level: str | None = None
    thinking_budget: int | None = None


class GenerationConfig(msgspec.Struct, rename="camel"):
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop_sequences: list[str] | None = None
    response_mime_type: str | None = None
    response_schema: dict[str, Any] | None = None
    response_json_schema: dict[str, Any] | None = None
    thinking_config: ThinkingConfig | None = None


class GenerateRequest(msgspec.Struct, rename="camel"):
    contents: list[ContentShape]
    model: str | None = None
    system_instruction: Instruction | None = None
    tools: list[ToolShape] | None = None
    tool_config: ToolConfig | None = None
    generation_config: GenerationConfig | None = None


def decode_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Google's schema as a JSON Schema; keys may be in snake case, types in capitals, and counts strings."""
    return _decode(schema, 0)


def _decode(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    if depth > DEEPEST:
        return {}
    decoded: dict[str, Any] = {}
    nullable = schema.get("nullable") is True
    for spelled, value in schema.items():
        key = _CAMEL.get(spelled, spelled)
        match key, value:
            case ("type", str() as name):
                if name.upper() != "TYPE_UNSPECIFIED":
                    decoded["type"] = [name.lower(), "null"] if nullable else name.lower()
            case ("properties", Mapping() as properties):
                decoded["properties"] = {
                    n: _decode(p, depth + 1) for n, p in properties.items() if isinstance(p, Mapping)
                }
            case ("items", Mapping() as items):
                decoded["items"] = _decode(items, depth + 1)
            case ("anyOf", list() as options):
                decoded["anyOf"] = [_decode(option, depth + 1) for option in options if isinstance(option, Mapping)]
                if nullable:
                    decoded["anyOf"].append({"type": "null"})
            case ("enum", list() as values):
                decoded["enum"] = [*values, None] if nullable else values
            case ("example", example):
                decoded["examples"] = [example]
            case ("format", "enum") | ("propertyOrdering" | "nullable", _) | (_, None):
                pass
            case (_, str() as count) if key in _COUNTS and count.isascii() and count.isdigit() and len(count) < 20:
                decoded[key] = int(count)
            case _:
                decoded[key] = value
    return decoded

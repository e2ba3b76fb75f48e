"""Conversations, calls and results as JSON of the conventions, masked and cut, for spans with content.

Laws: an attribute has at most about `limit` characters. Its cost depends on the limit, not on the length of the
conversation. The newest messages are included. Content without a part in the conventions is a `generic` part. Bytes of
pictures and files are never included, only their number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from callboard.core import (
    AssistantCanister,
    Canister,
    Content,
    DocumentCanister,
    FileContent,
    InvocationCanister,
    PictureContent,
    ReasoningContent,
    RefusalContent,
    ResultCanister,
    SupervisorCanister,
    TextualContent,
    ToolDeclaration,
)
from callboard.telemetry.masking import MASK, mask_secrets

_T = TypeVar("_T")
_CUT: Final = "…"
_LEAST: Final = 16
"""Minimum characters of a value with its quotes, commas and names."""
_DEPTH: Final = 16
_MAX_KEY: Final = 200
_LARGEST: Final = 2**63
"""Limit of integers, because the encoder and readers of spans do not support larger numbers."""
_SECRET_KEY: Final = re.compile(r"(?:api[_-]?key|token|secret|passw(?:or)?d|authorization|cookie)s?$", re.IGNORECASE)


class Clipper:
    """Masks values, and cuts them to a total number of characters."""

    def __init__(self, limit: int) -> None:
        self.room = limit

    def text(self, text: str) -> str:
        """Return the masked text, as far as there is room."""
        # Mask before cutting, because half of a secret is not recognized.
        masked = mask_secrets(_encodable(text[: 2 * max(self.room, 0)]))
        is_cut = len(masked) > self.room or len(text) > 2 * self.room
        clipped = masked[: max(self.room, 0)] + _CUT if is_cut else masked
        self.room -= len(clipped) + _LEAST
        return clipped

    def name(self, name: str) -> str:
        """Return a masked name or identifier. It is short, and never left out."""
        masked = mask_secrets(_encodable(name[:_MAX_KEY]))
        self.room -= len(masked) + _LEAST
        return masked

    def value(self, value: Any, depth: int = 0) -> Any:
        """Return any JSON value, without parts that are too deep or do not fit."""
        if isinstance(value, str):
            return self.text(value)
        self.room -= _LEAST
        if isinstance(value, Mapping):
            entries = self.while_room(value.items(), depth)
            return dict([self._entry(str(key), each, depth) for key, each in entries])
        if isinstance(value, list | tuple):
            return [self.value(each, depth + 1) for each in self.while_room(value, depth)]
        if value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, int):
            return value if abs(value) < _LARGEST else _CUT
        return self.text(str(value))

    def _entry(self, key: str, value: Any, depth: int) -> tuple[str, Any]:
        name = _encodable(key[:_MAX_KEY])
        self.room -= len(name)
        is_secret = isinstance(value, str) and _SECRET_KEY.search(key)
        return name, MASK if is_secret else self.value(value, depth + 1)

    def while_room(self, items: Iterable[_T], depth: int = 0) -> Iterator[_T]:
        """Yield the items while there is room."""
        for each in items:
            if self.room <= 0 or depth > _DEPTH:
                return
            yield each


def encode_messages(canisters: Sequence[Canister], limit: int) -> list[dict[str, Any]]:
    """Return `gen_ai.input.messages`: the newest messages of the conversation, in their order."""
    clip = Clipper(limit)
    messages: list[dict[str, Any]] = []
    for canister in clip.while_room(reversed(canisters)):
        role, parts = _encode(canister, clip)
        if messages and role == "assistant" == messages[-1]["role"]:
            messages[-1]["parts"] = [*parts, *messages[-1]["parts"]]
        else:
            messages.append({"role": role, "parts": parts})
    return messages[::-1]


def encode_reply(canisters: Sequence[Canister], finish_reason: str, limit: int) -> list[dict[str, Any]]:
    """Return `gen_ai.output.messages`: one message, because a reply is one choice."""
    clip = Clipper(limit)
    parts = [part for canister in clip.while_room(canisters) for part in _encode(canister, clip)[1]]
    return [{"role": "assistant", "parts": parts, "finish_reason": finish_reason}]


def encode_definitions(tools: Iterable[ToolDeclaration], limit: int) -> list[dict[str, Any]]:
    """Return `gen_ai.tool.definitions`."""
    clip = Clipper(limit)
    definitions = []
    for tool in clip.while_room(tools):
        definition = {"type": "function", "name": clip.name(tool.name), "description": clip.text(tool.description)}
        definitions.append({**definition, "parameters": clip.value(tool.schema)})
    return definitions


def encode_object(value: Any, limit: int) -> dict[str, Any]:
    """Return `gen_ai.tool.call.arguments` or `.result`. A value that is not an object is put into `content`."""
    clipped = Clipper(limit).value(value if isinstance(value, Mapping) else {"content": value})
    return dict(clipped)


def encode_result(result: ResultCanister, limit: int) -> dict[str, Any]:
    """Return `gen_ai.tool.call.result`: the object from the tool, or its text as `content`."""
    text = result.text
    if text.startswith("{") and len(text) <= limit:
        try:
            return encode_object(msgspec.json.decode(text, type=dict[str, Any]), limit)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            pass
    return encode_object(text, limit)


def to_json(value: Any) -> str:
    """Return a value as JSON for an attribute of a span."""
    return msgspec.json.encode(value).decode()


def _encodable(text: str) -> str:
    """Replace lone surrogates, which a model may write as escapes and which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def _encode(canister: Canister, clip: Clipper) -> tuple[str, list[dict[str, Any]]]:
    match canister:
        case InvocationCanister(identifier=identifier, name=name, arguments=arguments, raw=raw):
            value = clip.text(raw) if arguments is None else clip.value(arguments)
            return "assistant", [
                {"type": "tool_call", "id": clip.name(identifier), "name": clip.name(name), "arguments": value}
            ]
        case ResultCanister(invocation_id=identifier):
            return "tool", [
                {"type": "tool_call_response", "id": clip.name(identifier), "response": clip.text(canister.text)}
            ]
        case SupervisorCanister():
            role = "system"
        case AssistantCanister():
            role = "assistant"
        case DocumentCanister(title=title):
            parts = _encode_contents(canister.content, clip)
            return "user", [{"type": "text", "content": clip.text(title)}, *parts] if title else parts
        case _:
            role = "user"
    return role, _encode_contents(canister.content, clip)


def _encode_contents(content: Iterable[Content], clip: Clipper) -> list[dict[str, Any]]:
    return [_encode_content(part, clip) for part in clip.while_room(content)]


def _encode_content(part: Content, clip: Clipper) -> dict[str, Any]:
    match part:
        case TextualContent(text=text):
            return {"type": "text", "content": clip.text(text)}
        case ReasoningContent(text=text):
            return {"type": "reasoning", "content": clip.text(text)}
        case RefusalContent(text=text):
            return {"type": "generic", "generic_type": "refusal", "content": clip.text(text)}
        case PictureContent(url=url, mime_type=mime_type) | FileContent(url=url, mime_type=mime_type):
            modality = "image" if isinstance(part, PictureContent) else "document"
            form = clip.name(mime_type)
            if url and not url.startswith("data:"):
                return {"type": "uri", "modality": modality, "mime_type": form, "uri": clip.text(url)}
            size = len(part.data) or len(url)
            return {"type": "generic", "generic_type": modality, "mime_type": form, "bytes": size}

"""The events of AG-UI 1.0 as JSON objects, their content parts, and custom events for everything else.

The specification is https://docs.ag-ui.com/spec/1.0 (MIT). We do not send chunks (a shorter form of other events),
activities, or changes of the shared state. The names of custom events begin with `callboard.`.

Laws: every event conforms to the schema, without null and without undeclared fields. Custom events never contain a
provider's response to a failed request.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import to_builtins

from callboard.coding.job import FileEdited, ModelChanged, Notice, PhaseEnded, Resumed, TreeSnapshot
from callboard.core import (
    ApprovalAnswered,
    ApprovalAsked,
    Content,
    FileContent,
    HandedOver,
    InvocationCanister,
    Note,
    PictureContent,
    ReplyFailed,
    RolledBack,
    RunEnded,
    TextualContent,
    ToolProgress,
)
from callboard.servers.agui.conversation import AguiThread
from callboard.text.surrogates import encode_json

PROTOCOL_VERSION: Final = "1.0"

AguiEvent: TypeAlias = dict[str, Any]


def make_event(kind: str, author: str = "", /, **fields: Any) -> AguiEvent:
    """Make an event without the fields that are None. `author` is the nested run that the event belongs to."""
    event = {"type": kind, **{name: value for name, value in fields.items() if value is not None}}
    return {**event, "subagentRunId": author} if author else event


def encode_event(event: AguiEvent) -> bytes:
    """Return the `event` as JSON."""
    return encode_json(event)


# Content parts


def encode_part(content: Content) -> dict[str, Any] | None:
    """Return the part, or None if the protocol has no part for the content."""
    match content:
        case TextualContent(text=text):
            return {"type": "text", "text": text}
        case PictureContent():
            return {"type": "image", "source": _encode_source(content)}
        case FileContent(name=name):
            part: dict[str, Any] = {"type": "document", "source": _encode_source(content)}
            return part | ({"metadata": {"filename": name}} if name else {})
        case _:
            return None


def decode_part(part: Mapping[str, Any]) -> Content | None:
    """Return the content of a valid part, or None for sounds, videos and file handles of other providers."""
    if part["type"] == "text":
        return TextualContent(part["text"])
    make = _MAKE.get(part["type"])
    source = part["source"]
    if make is None or source["type"] == "file":
        return None
    if source["type"] == "url":
        return make(url=source["value"])
    try:
        data = base64.b64decode(source["value"], validate=True)
    except (binascii.Error, ValueError):
        return None
    return make(data=data, mime_type=source["mimeType"])


_MAKE: Mapping[str, type[PictureContent | FileContent]] = {"image": PictureContent, "document": FileContent}


def _encode_source(content: PictureContent | FileContent) -> dict[str, Any]:
    if content.url:
        return {"type": "url", "value": content.url}
    return {"type": "data", "value": base64.b64encode(content.data).decode(), "mimeType": content.mime_type}


# Custom events


def custom_event(item: Any, thread: AguiThread, author: str = "") -> AguiEvent | None:
    """Return the custom event of an item, or None if a front end does not need it."""
    row = _ROWS.get(type(item))
    if row is None:
        return None
    name, make = row
    return make_event("CUSTOM", author, name=f"callboard.{name}", value=make(item, thread, author))


_Value: TypeAlias = dict[str, Any]


def _encode_call(invocation: InvocationCanister, thread: AguiThread, author: str) -> _Value:
    """Encode the call with the client's identifier and the arguments that would run."""
    identifier = thread.client_call_id(invocation.identifier, author)
    return {"toolCallId": identifier, "name": invocation.name, "arguments": to_builtins(invocation.arguments)}


def _encode_answer(event: ApprovalAnswered, thread: AguiThread, author: str) -> _Value:
    value = {
        **_encode_call(event.invocation, thread, author),
        "verdict": event.verdict,
        "why": event.why,
        "failed": event.failed,
        "by": event.by,
        "via": event.via,
        "at": to_builtins(event.timestamp),
        "text": event.describe(),
    }
    return value if event.arguments is None else {**value, "edited": to_builtins(event.arguments)}


def _encode_progress(event: ToolProgress, thread: AguiThread, author: str) -> _Value:
    identifier = thread.client_call_id(event.identifier, author)
    return {"toolCallId": identifier, "progress": event.progress, "total": event.total, "message": event.message}


def _encode_fields(*names: str) -> Callable[[Any, AguiThread, str], _Value]:
    return lambda item, *_: {name: to_builtins(getattr(item, name)) for name in names}


_ROWS: Final[Mapping[type, tuple[str, Callable[[Any, AguiThread, str], _Value]]]] = {
    Note: ("note", _encode_fields("kind", "code", "text")),
    Notice: ("notice", _encode_fields("text")),
    ToolProgress: ("tool_progress", _encode_progress),
    ApprovalAsked: ("approval_asked", lambda event, *more: {**_encode_call(event.invocation, *more), "why": event.why}),
    ApprovalAnswered: ("approval_answered", _encode_answer),
    HandedOver: ("handed_over", _encode_fields("agent")),
    RolledBack: ("rolled_back", _encode_fields("to")),
    ReplyFailed: ("reply_failed", _encode_fields("party", "code", "message", "hint")),
    RunEnded: ("run_ended", _encode_fields("state", "usage", "cost")),
    PhaseEnded: ("phase_ended", _encode_fields("name", "missing")),
    ModelChanged: ("model_changed", _encode_fields("model", "why")),
    FileEdited: ("file_edited", _encode_fields("path", "added", "removed", "diff")),
    TreeSnapshot: ("tree_snapshot", _encode_fields("tree")),
    Resumed: ("resumed", _encode_fields()),
}

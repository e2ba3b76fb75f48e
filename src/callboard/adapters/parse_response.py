"""Read a response, in any form that a client returns, into the payloads that adapters validate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from callboard import core
from callboard.adapters.extract_json import json_values
from callboard.adapters.protocol import Payload
from callboard.core import identify_in_turn
from callboard.dialects.grammars.json_objects import Role
from callboard.dialects.table import ACTION_KEYS
from callboard.errors import CallerError
from callboard.wires.chat import decode_response
from callboard.wires.common.encoded_request import NO_NAMES
from callboard.wires.common.reply_stream import DecodeContext

_NESTED = 3
"""Maximum depth of nested wrappers, as in `{"action": {"function": {…}}}`."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class ParsedResponse(msgspec.Struct, frozen=True):
    """A response. `calls` come from the wire's own field."""

    text: str
    refusal: str
    thought: str
    calls: tuple[core.InvocationCanister, ...]


def events_of(response: Any, names: Mapping[str, str] = NO_NAMES) -> list[core.Event]:
    """Return the events of a chat completion from the `openai` client, its dict, one of its messages, or plain text.

    The last event is a ReplyEnded, also if the reply failed after some events. Raises CallerError.
    """
    if isinstance(response, str):
        return [core.TextPiece(response), core.ReplyEnded("stop")]
    body = response.model_dump() if hasattr(response, "model_dump") else response
    if not isinstance(body, Mapping):
        hint = "pass the chat completion, its dict or its text"
        raise CallerError(f"{type(response).__name__} is not a response", hint=hint)
    if "choices" not in body and "role" in body:
        body = {"choices": [{"message": body}]}
    events = decode_response(body, DecodeContext(names=names, identify=identify_in_turn(0)))
    if isinstance(events[-1], core.ReplyFailed):
        events[-1] = core.ReplyEnded("stop")
    return events


def read(response: Any, names: Mapping[str, str] = NO_NAMES) -> ParsedResponse:
    events = events_of(response, names)
    text = "".join([each.text for each in events if isinstance(each, core.TextPiece)])
    refusal = "".join([each.text for each in events if isinstance(each, core.RefusalPiece)])
    thought = "".join([each.text for each in events if isinstance(each, core.ReasoningPiece)])
    calls: list[core.InvocationCanister] = []
    for event in events:
        match event:
            case core.InvocationEnded(identifier=identifier, name=name, arguments=arguments, raw=raw):
                calls.append(core.InvocationCanister(identifier, name, arguments, raw))
            case core.InvocationIncomplete(identifier=identifier, name=name, raw=raw):
                calls.append(core.InvocationCanister(identifier, name, None, raw))
            case _:
                pass
    return ParsedResponse(text, refusal, thought, tuple(calls))


def payloads_of_wire(response: ParsedResponse) -> list[Payload]:
    """Return the calls of the wire's own field, the first with the text beside them; without calls, the text."""
    calls = [_call(call.name, call.arguments, call.raw) for call in response.calls]
    if calls:
        return [_thoughtful(calls[0], response.thought or response.text), *calls[1:]]
    if answer := response.text or response.refusal:
        return [_thoughtful({"answer": answer}, response.thought)]
    return [{"scratchpad": response.thought}] if response.thought else []


def payloads_of_text(text: str) -> list[Payload]:
    """Return the calls in a text, otherwise the first answer, otherwise the first thought."""
    values = [each for value in json_values(text) for each in (value if isinstance(value, list) else [value])]
    payloads = [payload for value in values if isinstance(value, dict) and (payload := _payload(value))]
    for kind in ("tool", "answer", "scratchpad"):
        if of_kind := [payload for payload in payloads if kind in payload]:
            return of_kind if kind == "tool" else of_kind[:1]
    return []


def _payload(value: Mapping[str, Any]) -> Payload | None:
    """Return the payload of an object in any spelling of the dialect, or None if it is not a payload."""
    roles = _roles_of(value)
    key, name = roles.get(Role.NAME, ("", None))
    answer = _text(roles, Role.TEXT)
    thought = _text(roles, Role.REASONING)
    if isinstance(name, str) and (Role.ARGUMENTS in roles or key != "name"):  # {"name": "Ada"} is a person
        _, arguments = roles.get(Role.ARGUMENTS, ("", {}))
        return _thoughtful(_call(name, *_object(arguments)), thought or answer)
    if answer is not None:
        return _thoughtful({"answer": answer}, thought)
    return None if thought is None else {"scratchpad": thought}


def _roles_of(value: Mapping[str, Any]) -> dict[Role, tuple[str, Any]]:
    """Return the member for each role, with its key; the first that is not null counts."""
    roles: dict[Role, tuple[str, Any]] = {}
    level = [value]
    for _ in range(_NESTED):
        wrapped: list[Mapping[str, Any]] = []
        for key, held in [member for each in level for member in each.items()]:
            role = ACTION_KEYS.get(key)
            if role is Role.WRAPPER and isinstance(held, Mapping):
                wrapped.append(held)
            elif role is not None and held is not None:
                roles.setdefault(Role.NAME if role is Role.WRAPPER else role, (key, held))
        level = wrapped
    return roles


def _object(arguments: Any) -> tuple[dict[str, Any] | None, str]:
    """Return the arguments as an object (None if they are not one) and as the model wrote them."""
    if isinstance(arguments, dict):
        return arguments, ""
    raw = _json(arguments)
    try:
        return _decode(raw), raw
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None, raw


def _call(name: str, arguments: Mapping[str, Any] | None, raw: str) -> Payload:
    if arguments is None:
        return {"tool": name, "arguments": None, "raw": raw}
    return {"tool": name, "arguments": dict(arguments)}


def _thoughtful(payload: Payload, thought: str | None) -> Payload:
    return {**payload, "scratchpad": thought} if thought else payload


def _text(roles: Mapping[Role, tuple[str, Any]], role: Role) -> str | None:
    return _json(roles[role][1]) if role in roles else None


def _json(value: Any) -> str:
    """Return a string as it is, and anything else as JSON. Python's json can write everything that it has read."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

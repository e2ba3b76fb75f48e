"""A request to a model, as the body of POST /responses.

Owns the body's fields in both directions; items are in `items` and `transcript`. Knows no backend and keeps no
state: `previous_response_id` and `conversation` are for the server to resolve.
Law: decode_request(encode_request(r).body) is r, as far as the wire carries it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.core import Canister, Constraint, Controls, Request, SupervisorCanister, UserCanister, contents
from callboard.errors import CallerError
from callboard.wires.common.client_input import read_shape
from callboard.wires.common.request_encoder import (
    MAX_CACHED,
    ConversationEncoder,
    EncodedMessages,
    EncodedRequest,
    dedupe,
)
from callboard.wires.responses.decode_messages import MessageDecoder
from callboard.wires.responses.encode_messages import encode_messages, instructions
from callboard.wires.responses.schema import ENCRYPTED, Format, ResponsesRequest
from callboard.wires.responses.tool_declarations import WIRE, ToolDecoder, ToolEncoder

_FIELDS = frozenset(ResponsesRequest.__struct_fields__)
_CONTROLS = (("temperature", "temperature"), ("top_p", "top_p"), ("max_output_tokens", "max_tokens"))


class DecodedRequest(msgspec.Struct, frozen=True):
    """What a client asked for, and what of it could not be read into a request, once for each."""

    request: Request
    dropped: tuple[str, ...] = ()


def encode_request(request: Request) -> EncodedRequest:
    """The request as a Responses body that leaves nothing at the provider and asks for reasoning to send back.

    Reasoning, `store` and `include` are overridden by `extra`; its `reasoning` and `text` are added to ours.
    """
    spelling = ToolEncoder(request)
    return _encode_body(encode_messages(request.canisters, request, spelling), request, spelling)


class RequestEncoder(ConversationEncoder[ToolEncoder]):
    """`encode_request` for conversations that grow; see `ConversationEncoder`."""

    def __init__(self, max_cached: int = MAX_CACHED) -> None:
        super().__init__(ToolEncoder, encode_messages, _encode_body, max_cached)


def _encode_body(messages: EncodedMessages, request: Request, spelling: ToolEncoder) -> EncodedRequest:
    body: dict[str, Any] = {"model": request.model}
    if head := instructions(request.canisters):
        body["instructions"] = head
    body["input"] = messages.messages
    dropped = [*spelling.dropped, *messages.dropped]
    hosted = [{"type": tool.kind, **tool.definition} for tool in request.hosted if tool.wire == WIRE]
    dropped += [f"tool {tool.kind}" for tool in request.hosted if tool.wire != WIRE]
    if tools := spelling.tools() + hosted:
        body["tools"] = tools
        if request.tool_choice != "auto":
            body["tool_choice"] = spelling.choice(request.tool_choice)
        if request.parallel is not None:
            body["parallel_tool_calls"] = request.parallel
    elif request.tool_choice not in {"auto", "none"}:
        dropped.append("tool_choice")
    for field, name in _CONTROLS:
        if (value := getattr(request.controls, name)) is not None:
            body[field] = value
    dropped += [name for name in ("seed", "stop") if getattr(request.controls, name) not in (None, ())]
    extra = dict(request.extra)
    if reasoning := _joined({"effort": request.controls.effort}, extra.pop("reasoning", None)):
        body["reasoning"] = reasoning
    if text := _joined({"format": _format(request.constraint)}, extra.pop("text", None)):
        body["text"] = text
    if request.stream:
        body["stream"] = True
    body["store"] = False
    body["include"] = [ENCRYPTED]
    body.update(extra)
    return EncodedRequest(body, spelling.names, tuple(dropped), spelling.nullable, spelling.respelled)


def decode_request(body: Mapping[str, Any]) -> Request:
    """The request that a Responses body asks for. Raises CallerError with the path of what is none.

    Items and tools of any type are taken (`read_request` says what became of them). What is about the answer to
    the client, such as `stream_options` and a `store` that is false, is left out; other fields that have no name
    here go to `extra` as they are, as does what is left of `reasoning` and `text`.
    """
    return read_request(body).request


def read_request(body: Mapping[str, Any]) -> DecodedRequest:
    """As `decode_request`, with what was dropped."""
    asked = read_shape(body, ResponsesRequest, "", "a Responses request")
    declared = ToolDecoder()
    declared.take(asked.tools, "tools")
    canisters: list[Canister] = [SupervisorCanister(contents(asked.instructions))] if asked.instructions else []
    dropped: list[str] = []
    if isinstance(asked.input, str):
        if asked.input:
            canisters.append(UserCanister(contents(asked.input)))
    else:
        transcript = MessageDecoder(asked.input or (), model=asked.model, declared=declared)
        canisters += transcript.canisters
        dropped += transcript.dropped
    choice = declared.choose(asked.tool_choice)
    extra = {name: value for name, value in body.items() if name not in _FIELDS and value is not None}
    if asked.include is not None and asked.include != [ENCRYPTED]:
        extra["include"] = asked.include
    if asked.store:
        extra["store"] = True
    reasoning, text = dict(asked.reasoning or {}), dict(asked.text or {})
    effort = reasoning.pop("effort", None)
    if not (effort is None or isinstance(effort, str)):
        raise CallerError("not an effort", path="reasoning.effort")
    constraint = _constraint(text)
    extra |= {name: rest for name, rest in (("reasoning", reasoning), ("text", text)) if rest}
    request = Request(
        model=asked.model,
        canisters=tuple(canisters),
        tools=declared.tools,
        tool_choice=choice,
        parallel=asked.parallel_tool_calls,
        constraint=constraint,
        controls=Controls(asked.temperature, asked.top_p, asked.max_output_tokens, effort=effort),
        stream=bool(asked.stream),
        extra=extra,
        hosted=declared.hosted,
        namespaces=declared.namespaces,
    )
    return DecodedRequest(request, dedupe([*declared.dropped, *dropped]))


def _joined(ours: Mapping[str, Any], extra: Any) -> dict[str, Any]:
    given = {name: value for name, value in ours.items() if value is not None}
    return given | dict(extra) if isinstance(extra, Mapping) else given


def _format(constraint: Constraint | None) -> dict[str, Any] | None:
    if constraint is None:
        return None
    return {
        "type": "json_schema",
        "name": constraint.name,
        "schema": constraint.schema,
        "strict": constraint.strict,
    }


def _constraint(text: dict[str, Any]) -> Constraint | None:
    """The constraint in `text`, taken out of it; a format of another kind is left there."""
    form = text.get("format")
    kind = form.get("type") if isinstance(form, Mapping) else None
    if kind == "json_schema":
        del text["format"]
        asked = read_shape(form, Format, "text.format", "a json_schema")
        return Constraint(asked.name or "reply", asked.schema, bool(asked.strict))
    if form is None or kind == "text":
        text.pop("format", None)
    return None

"""The body of POST /responses, encoded and decoded.

It keeps no state: `previous_response_id` and `conversation` are for the server to resolve.
Law: decode_request(encode_request(r).body) is r, as far as the wire carries it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.core import Canister, Constraint, Controls, Request, SupervisorCanister, UserCanister, contents
from callboard.errors import CallerError
from callboard.wires.common.client_input import read_shape
from callboard.wires.common.encoded_request import EncodedRequest, dedupe
from callboard.wires.responses.decode_messages import MessageDecoder
from callboard.wires.responses.encode_messages import MessageEncoder, instructions
from callboard.wires.responses.schema import ENCRYPTED, Format, ResponsesRequest
from callboard.wires.responses.tool_declarations import WIRE, ToolDecoder, ToolEncoder

_FIELDS = frozenset(ResponsesRequest.__struct_fields__)
_CONTROLS = (("temperature", "temperature"), ("top_p", "top_p"), ("max_output_tokens", "max_tokens"))


class DecodedRequest(msgspec.Struct, frozen=True):
    """A client's request, and the names of what it could not hold."""

    request: Request
    dropped: tuple[str, ...] = ()


def encode_request(request: Request) -> EncodedRequest:
    """The request as a Responses body that leaves nothing at the provider and asks for reasoning to send back.

    Reasoning, `store` and `include` are overridden by `extra`; its `reasoning` and `text` are added to ours.
    """
    tool_encoder = ToolEncoder(request)
    body: dict[str, Any] = {"model": request.model}
    canisters = request.canisters
    if head := instructions(canisters):
        body["instructions"] = head
        canisters = canisters[1:]
    messages = MessageEncoder(canisters, model=request.model, tools=tool_encoder)
    body["input"] = messages.body
    dropped = [*tool_encoder.dropped, *messages.dropped]
    hosted = [{"type": tool.kind, **tool.definition} for tool in request.hosted if tool.wire == WIRE]
    dropped += [f"tool {tool.kind}" for tool in request.hosted if tool.wire != WIRE]
    if tools := tool_encoder.encode_tools() + hosted:
        body["tools"] = tools
        if request.tool_choice != "auto":
            body["tool_choice"] = tool_encoder.encode_choice(request.tool_choice)
        if request.parallel is not None:
            body["parallel_tool_calls"] = request.parallel
    elif request.tool_choice not in {"auto", "none"}:
        dropped.append("tool_choice")
    for field, name in _CONTROLS:
        if (value := getattr(request.controls, name)) is not None:
            body[field] = value
    dropped += [name for name in ("seed", "stop") if getattr(request.controls, name) not in (None, ())]
    extra = dict(request.extra)
    if reasoning := _merge_fields({"effort": request.controls.effort}, extra.pop("reasoning", None)):
        body["reasoning"] = reasoning
    if text := _merge_fields({"format": _encode_format(request.constraint)}, extra.pop("text", None)):
        body["text"] = text
    if request.stream:
        body["stream"] = True
    body["store"] = False
    body["include"] = [ENCRYPTED]
    body.update(extra)
    return EncodedRequest(body, tool_encoder.names, tuple(dropped), tool_encoder.nullable, tool_encoder.respelled)


def decode_request(body: Mapping[str, Any]) -> Request:
    """The request that a Responses body asks for. Raises CallerError with the path of what is none.

    Items and tools of any type are taken (`read_request` says what became of them). What is about the answer to
    the client, such as `stream_options` and a `store` that is false, is left out; other fields that have no name
    here go to `extra` as they are, as does what is left of `reasoning` and `text`.
    """
    return read_request(body).request


def read_request(body: Mapping[str, Any]) -> DecodedRequest:
    """As `decode_request`, with what was dropped."""
    parsed = read_shape(body, ResponsesRequest, "", "a Responses request")
    tool_decoder = ToolDecoder()
    tool_decoder.decode(parsed.tools, "tools")
    canisters: list[Canister] = [SupervisorCanister(contents(parsed.instructions))] if parsed.instructions else []
    dropped: list[str] = []
    if isinstance(parsed.input, str):
        if parsed.input:
            canisters.append(UserCanister(contents(parsed.input)))
    else:
        messages = MessageDecoder(parsed.input or (), model=parsed.model, tools=tool_decoder)
        canisters += messages.canisters
        dropped += messages.dropped
    choice = tool_decoder.decode_choice(parsed.tool_choice)
    extra = {name: value for name, value in body.items() if name not in _FIELDS and value is not None}
    if parsed.include is not None and parsed.include != [ENCRYPTED]:
        extra["include"] = parsed.include
    if parsed.store:
        extra["store"] = True
    reasoning, text = dict(parsed.reasoning or {}), dict(parsed.text or {})
    effort = reasoning.pop("effort", None)
    if not (effort is None or isinstance(effort, str)):
        raise CallerError("not an effort", path="reasoning.effort")
    constraint = _pop_constraint(text)
    extra |= {name: rest for name, rest in (("reasoning", reasoning), ("text", text)) if rest}
    request = Request(
        model=parsed.model,
        canisters=tuple(canisters),
        tools=tool_decoder.tools,
        tool_choice=choice,
        parallel=parsed.parallel_tool_calls,
        constraint=constraint,
        controls=Controls(parsed.temperature, parsed.top_p, parsed.max_output_tokens, effort=effort),
        stream=bool(parsed.stream),
        extra=extra,
        hosted=tool_decoder.hosted,
        namespaces=tool_decoder.namespaces,
    )
    return DecodedRequest(request, dedupe([*tool_decoder.dropped, *dropped]))


def _merge_fields(ours: Mapping[str, Any], extra: Any) -> dict[str, Any]:
    fields = {name: value for name, value in ours.items() if value is not None}
    return fields | dict(extra) if isinstance(extra, Mapping) else fields


def _encode_format(constraint: Constraint | None) -> dict[str, Any] | None:
    if constraint is None:
        return None
    return {
        "type": "json_schema",
        "name": constraint.name,
        "schema": constraint.schema,
        "strict": constraint.strict,
    }


def _pop_constraint(text: dict[str, Any]) -> Constraint | None:
    """The constraint in `text`, taken out of it; a format of another kind is left there."""
    form = text.get("format")
    kind = form.get("type") if isinstance(form, Mapping) else None
    if kind == "json_schema":
        del text["format"]
        parsed = read_shape(form, Format, "text.format", "a json_schema")
        return Constraint(parsed.name or "reply", parsed.schema, bool(parsed.strict))
    if form is None or kind == "text":
        text.pop("format", None)
    return None

"""A request to a model, as the body of POST /messages.

Owns the body's fields in both directions; messages are in `messages` and `decode_messages`. Knows no backend.
Law: decode_request(encode_request(r).body) is r, as far as the wire carries it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from callboard.core import (
    CUSTOM_SCHEMA,
    Constraint,
    Controls,
    HostedTool,
    NamedTool,
    Request,
    ToolChoice,
    ToolDeclaration,
)
from callboard.errors import CallerError
from callboard.wires.common.client_input import extra_for, read_shape, unnamed
from callboard.wires.common.request_encoder import MAX_CACHED, ConversationEncoder, EncodedMessages, EncodedRequest
from callboard.wires.common.tool_declarations import StrictTools, ToolNames, dropped_descriptions
from callboard.wires.messages import schema
from callboard.wires.messages.decode_messages import decode_messages
from callboard.wires.messages.encode_messages import (
    NO_PREFIX,
    EncodedPrefix,
    MessageEncoder,
    encode_messages,
    is_marked,
)
from callboard.wires.messages.schema import NAME, MessagesRequest, OutputFormat

MAX_TOKENS = 4096
"""The bound of a reply whose request has none, for the API requires one."""
BREAKPOINT: Mapping[str, Any] = {"type": "ephemeral"}
_BREAKPOINT = msgspec.json.encode({"cache_control": BREAKPOINT})[1:-1]

_NO_SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {}}
_FIELDS = frozenset(MessagesRequest.__struct_fields__)
_TOOL = frozenset({"type", *schema.Tool.__struct_fields__})
_EFFORTS: Mapping[str, str] = {"minimal": "low"}
"""Efforts that the API does not know, and the nearest that it does."""
_CHOICES: Mapping[str, str] = {"auto": "auto", "none": "none", "required": "any"}


def encode_request(request: Request) -> EncodedRequest:
    """The request as a body of this wire."""
    naming = ToolNames(request)
    encoder = MessageEncoder(request.canisters, model=request.model, on_wire=naming.on_wire)
    return _encode_body(EncodedMessages(encoder.body, encoder.dropped, system=encoder.system), request, naming)


class RequestEncoder(ConversationEncoder[ToolNames]):
    """`encode_request` for conversations that grow; see `ConversationEncoder`.

    With `breakpoints` the prompt is cached up to its last tool, its last system block and its last message,
    unless the request brings breakpoints of its own, of which the API takes four.
    """

    def __init__(self, max_cached: int = MAX_CACHED, *, breakpoints: bool = False) -> None:
        super().__init__(ToolNames, encode_messages, partial(_encode_body, breakpoints=breakpoints), max_cached)


def _encode_body(
    messages: EncodedMessages, request: Request, naming: ToolNames, *, breakpoints: bool = False
) -> EncodedRequest:
    dropped = list(messages.dropped)
    controls = request.controls
    body: dict[str, Any] = {"model": request.model}
    body["max_tokens"] = MAX_TOKENS if controls.max_tokens is None else controls.max_tokens
    if messages.system:
        body["system"] = messages.system
    body["messages"] = messages.messages
    strictness = StrictTools(NAME)
    tools = [_tool(strictness.held(tool), naming) for tool in request.tools]
    dropped += strictness.dropped
    for hosted in request.hosted:
        if hosted.wire == NAME:
            tools.append({"type": hosted.kind, **hosted.definition})
        else:
            dropped.append(f"tool {hosted.kind}")
    if tools:
        body["tools"] = tools
        if request.tool_choice != "auto" or request.parallel is not None:
            body["tool_choice"] = _choice(request, naming)
    elif request.tool_choice not in {"auto", "none"}:
        dropped.append("tool_choice")
    dropped += dropped_descriptions(request.namespaces)
    _control(body, controls, dropped)
    if request.constraint is not None:
        form = {"type": "json_schema", "schema": request.constraint.schema}
        body["output_config"] = body.get("output_config", {}) | {"format": form}
    if request.stream:
        body["stream"] = True
    past: EncodedPrefix = messages.state or NO_PREFIX
    if breakpoints and not (past.marked or "cache_control" in request.extra or any(map(is_marked, tools))):
        _break(body, past)
    given = request.extra
    if "output_config" in body and isinstance(given.get("output_config"), Mapping):
        given = {**given, "output_config": {**body["output_config"], **given["output_config"]}}
    body.update(given)
    return EncodedRequest(body, naming.reverse, tuple(dropped), strictness.nullable, strictness.respelled)


def decode_request(body: Mapping[str, Any]) -> Request:
    """The request that a body of this wire asks for. Raises CallerError with the path of what is none.

    Tools that have a type of Anthropic's own are hosted ones. Fields that have no name here, such as a thinking
    budget, go to `extra` as they are.
    """
    if not isinstance(body, Mapping):
        raise CallerError("a request is an object")
    asked = read_shape(body, MessagesRequest, "")
    extra = {name: value for name, value in body.items() if name not in _FIELDS and value is not None}
    output = dict(asked.output_config or {})
    effort = output.pop("effort", None)
    if effort is not None and not isinstance(effort, str):
        raise CallerError("an effort is a string", path="output_config.effort")
    if asked.thinking == {"type": "disabled"} and effort is None:
        effort = "none"
    elif asked.thinking is not None:
        extra["thinking"] = asked.thinking
    constraint = _constraint(output)
    if output:
        extra["output_config"] = output
    declared, hosted = _declarations(asked.tools or [])
    choice, parallel = _chosen(asked.tool_choice)
    return Request(
        model=asked.model,
        canisters=decode_messages(asked.system, asked.messages, model=asked.model),
        tools=declared,
        tool_choice=choice,
        parallel=parallel,
        constraint=constraint,
        controls=Controls(
            asked.temperature, asked.top_p, asked.max_tokens, stop=tuple(asked.stop_sequences or ()), effort=effort
        ),
        stream=bool(asked.stream),
        extra=extra,
        hosted=hosted,
        prefill="last" if asked.messages and asked.messages[-1].role == "assistant" else "",
    )


def _control(body: dict[str, Any], controls: Controls, dropped: list[str]) -> None:
    if controls.temperature is not None:
        body["temperature"] = min(controls.temperature, 1)
        if controls.temperature > 1:
            dropped.append("temperature above 1")
    if controls.top_p is not None:
        body["top_p"] = controls.top_p
    if controls.seed is not None:
        dropped.append("seed")
    if controls.stop:
        stops = [stop for stop in controls.stop if stop and not stop.isspace()]
        dropped += ["stop sequence of whitespace"] * (len(controls.stop) - len(stops))
        if stops:
            body["stop_sequences"] = stops
    if controls.effort == "none":
        body["thinking"] = {"type": "disabled"}
    elif controls.effort is not None:
        body["output_config"] = {"effort": _EFFORTS.get(controls.effort, controls.effort)}
        if controls.effort in _EFFORTS:
            dropped.append(f"effort {controls.effort}")


def _tool(tool: ToolDeclaration, naming: ToolNames) -> dict[str, Any]:
    description = tool.full_description
    schema = dict(CUSTOM_SCHEMA) if tool.kind == "custom" else tool.schema or _NO_SCHEMA
    lowered: dict[str, Any] = {"name": naming.on_wire(tool.name)}
    if description:
        lowered["description"] = description
    lowered["input_schema"] = schema
    if tool.strict is not None:
        lowered["strict"] = tool.strict
    return {**lowered, **tool.extra.get(NAME, {})}


def _choice(request: Request, naming: ToolNames) -> dict[str, Any]:
    choice: dict[str, Any]
    if isinstance(request.tool_choice, NamedTool):
        choice = {"type": "tool", "name": naming.on_wire(request.tool_choice.name)}
    else:
        choice = {"type": _CHOICES[request.tool_choice]}
    if request.parallel is not None and request.tool_choice != "none":
        choice["disable_parallel_tool_use"] = not request.parallel
    return choice


def _break(body: dict[str, Any], past: EncodedPrefix) -> None:
    """Breakpoints in a body whose messages and system are JSON already."""
    if loaded := [tool for tool in body.get("tools", ()) if not tool.get("defer_loading")]:
        loaded[-1]["cache_control"] = dict(BREAKPOINT)  # the others are not in the prompt
    if "system" in body:
        body["system"] = _broken(body["system"], len("]"))
    if past.behind is not None:
        body["messages"] = _broken(body["messages"], past.behind + len("]}]"))


def _broken(blocks: msgspec.Raw, behind: int) -> msgspec.Raw:
    """With a breakpoint as the last field of the block that ends so many bytes before the end."""
    json = memoryview(blocks)
    end = len(json) - behind - len("}")
    comma = b"" if json[end - 1] == ord("{") else b","
    return msgspec.Raw(b"".join([json[:end], comma, _BREAKPOINT, json[end:]]))


def _declarations(tools: list[dict[str, Any]]) -> tuple[tuple[ToolDeclaration, ...], tuple[HostedTool, ...]]:
    declared: list[ToolDeclaration] = []
    hosted: list[HostedTool] = []
    for place, tool in enumerate(tools):
        match tool.get("type"):
            case None | "custom":
                shape = read_shape(tool, schema.Tool, f"tools[{place}]")
                description = shape.description or ""
                extra = extra_for(NAME, unnamed(tool, _TOOL))
                declared.append(
                    ToolDeclaration(shape.name, description, shape.input_schema, strict=shape.strict, extra=extra)
                )
            case str(kind):
                hosted.append(HostedTool(NAME, kind, tool))
            case _:
                raise CallerError("a type is a string", path=f"tools[{place}].type")
    return tuple(declared), tuple(hosted)


def _chosen(choice: schema.Choice | None) -> tuple[ToolChoice, bool | None]:
    if choice is None:
        return "auto", None
    alone = choice.disable_parallel_tool_use
    parallel = None if alone is None else not alone
    match choice:
        case schema.ToolChoice(name=name):
            return NamedTool(name), parallel
        case schema.AnyChoice():
            return "required", parallel
        case schema.NoChoice():
            return "none", parallel
        case schema.AutoChoice():
            return "auto", parallel


def _constraint(output: dict[str, Any]) -> Constraint | None:
    """The schema that the output has to follow, no longer in `output`; another format stays there."""
    form = output.get("format")
    if form is None:
        output.pop("format", None)
        return None
    if not isinstance(form, Mapping) or form.get("type") != "json_schema":
        return None
    schema = read_shape(form, OutputFormat, "output_config.format").schema
    del output["format"]
    return Constraint("reply", schema)

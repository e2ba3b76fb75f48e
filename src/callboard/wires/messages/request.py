"""The body of POST /messages, encoded and decoded.

Law: decode_request(encode_request(r).body) is r, as far as the wire carries it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from callboard import core
from callboard.core import join_texts
from callboard.errors import CallerError
from callboard.wires.common.client_input import client_json, extra_for, read_shape, unnamed_fields
from callboard.wires.common.encoded_request import EncodedRequest
from callboard.wires.common.tool_declarations import (
    LongToolNames,
    StrictTools,
    ToolNames,
    dropped_descriptions,
)
from callboard.wires.messages import schema
from callboard.wires.messages.content import decode_content, decode_document, decode_extra, decode_part
from callboard.wires.messages.encode_messages import AS_SYSTEM, MessageEncoder, has_breakpoint
from callboard.wires.messages.schema import (
    WIRE,
    MessagesRequest,
    OutputFormat,
    RequestMessage,
    ToolResultBlock,
    ToolUseBlock,
)

_CANISTERS = (core.DocumentCanister, core.InvocationCanister, core.ResultCanister)


def decode_messages(
    system: str | list[dict[str, Any]] | None, messages: Iterable[RequestMessage], *, model: str
) -> tuple[core.Canister, ...]:
    """The conversation; thinking that is not sealed is taken to be the model's own. Raises CallerError with the path.

    Each block of `system` is a canister. A document that is text is one too; other documents are files.
    """
    canisters: list[core.Canister] = [core.SupervisorCanister((part,)) for part in decode_content(system, "system")]
    for index, message in enumerate(messages):
        path = f"messages[{index}].content"
        content = message.content
        if message.role == "system":
            canisters.append(core.SupervisorCanister(decode_content(content, path), extra=AS_SYSTEM))
            continue
        speaker = core.UserCanister if message.role == "user" else core.AssistantCanister
        if isinstance(content, str):
            canisters.append(speaker(decode_content(content, path)))
            continue
        parts = [_decode_block(block, f"{path}[{at}]", message.role, model) for at, block in enumerate(content)]
        for is_canister, run in groupby(parts, lambda part: isinstance(part, _CANISTERS)):
            items = [*run]
            canisters += items if is_canister else [speaker(tuple(items))]
    return tuple(canisters)


def _decode_block(block: dict[str, Any], path: str, role: str, model: str) -> Any:
    """Return the canister of a block. If the block is only content, return the content."""
    match role, block.get("type"):
        case "user", "tool_result":
            return _result(block, path)
        case "user", "document" if (document := decode_document(block, path)) is not None:
            return document
        case "assistant", "tool_use":
            return _invocation(block, path)
        case _:
            return decode_part(block, path, model if role == "assistant" else "")


def _invocation(block: dict[str, Any], path: str) -> core.InvocationCanister:
    shape = read_shape(block, ToolUseBlock, path)
    raw = client_json(shape.input, f"{path}.input")
    return core.InvocationCanister(shape.id, shape.name, shape.input, raw, extra=decode_extra(block))


def _result(block: dict[str, Any], path: str) -> core.ResultCanister:
    shape = read_shape(block, ToolResultBlock, path)
    content = decode_content(shape.content, f"{path}.content")
    error = None
    if shape.is_error:
        error = core.ToolError("execution", join_texts(content))
    return core.ResultCanister(content, invocation_id=shape.tool_use_id, error=error, extra=decode_extra(block))


MAX_TOKENS = 4096
"""The `max_tokens` of a request without one: the API requires it."""
BREAKPOINT: Mapping[str, Any] = {"cache_control": {"type": "ephemeral"}}
_UNCACHED = frozenset({"thinking", "redacted_thinking"})
_FIELDS = frozenset(MessagesRequest.__struct_fields__)
_TOOL = frozenset({"type", *schema.Tool.__struct_fields__})
_EFFORTS: Mapping[str, str] = {"minimal": "low"}
"""Efforts that the API does not know, and the nearest that it does."""
_CHOICES: Mapping[str, str] = {"auto": "auto", "none": "none", "required": "any"}


def encode_request(request: core.Request, *, breakpoints: bool = False) -> EncodedRequest:
    """The request as a body of this wire.

    With `breakpoints` the prompt is cached up to its last tool, its last system block and its last message,
    unless the request brings breakpoints of its own, of which the API takes four.
    """
    names = LongToolNames(request)
    messages = MessageEncoder(request, names)
    dropped = messages.dropped
    controls = request.controls
    body: dict[str, Any] = {"model": request.model}
    body["max_tokens"] = MAX_TOKENS if controls.max_tokens is None else controls.max_tokens
    if messages.system:
        body["system"] = messages.system
    body["messages"] = messages.body
    strict_tools = StrictTools(WIRE)
    tools = [_encode_tool(strict_tools.fit(tool), names) for tool in request.tools]
    dropped += strict_tools.dropped
    tools += [{"type": tool.kind, **tool.definition} for tool in request.hosted if tool.wire == WIRE]
    dropped += [f"tool {tool.kind}" for tool in request.hosted if tool.wire != WIRE]
    if tools:
        body["tools"] = tools
        if request.tool_choice != "auto" or request.parallel is not None:
            body["tool_choice"] = _encode_choice(request, names)
    elif request.tool_choice not in {"auto", "none"}:
        dropped.append("tool_choice")
    dropped += dropped_descriptions(request.namespaces)
    _encode_controls(body, controls, dropped)
    if request.constraint is not None:
        form = {"type": "json_schema", "schema": request.constraint.schema}
        body["output_config"] = body.get("output_config", {}) | {"format": form}
    if request.stream:
        body["stream"] = True
    if breakpoints and "cache_control" not in request.extra:
        _add_breakpoints(tools, messages)
    extra = request.extra
    if "output_config" in body and isinstance(extra.get("output_config"), Mapping):
        extra = {**extra, "output_config": {**body["output_config"], **extra["output_config"]}}
    body.update(extra)
    return EncodedRequest(body, names.reverse, tuple(dropped), strict_tools.nullable, strict_tools.respelled)


def decode_request(body: Mapping[str, Any]) -> core.Request:
    """The request that a body of this wire asks for. Raises CallerError with the path of an invalid part.

    Tools that have a type of Anthropic's own are hosted ones. Fields that have no name here, such as a thinking
    budget, go to `extra` as they are.
    """
    if not isinstance(body, Mapping):
        raise CallerError("a request is an object")
    parsed = read_shape(body, MessagesRequest, "")
    extra = {name: value for name, value in body.items() if name not in _FIELDS and value is not None}
    output = dict(parsed.output_config or {})
    effort = output.pop("effort", None)
    if effort is not None and not isinstance(effort, str):
        raise CallerError("an effort is a string", path="output_config.effort")
    if parsed.thinking == {"type": "disabled"} and effort is None:
        effort = "none"
    elif parsed.thinking is not None:
        extra["thinking"] = parsed.thinking
    constraint = _pop_constraint(output)
    if output:
        extra["output_config"] = output
    declared, hosted = _decode_tools(parsed.tools or [])
    choice, parallel = _decode_choice(parsed.tool_choice)
    return core.Request(
        model=parsed.model,
        canisters=decode_messages(parsed.system, parsed.messages, model=parsed.model),
        tools=declared,
        tool_choice=choice,
        parallel=parallel,
        constraint=constraint,
        controls=core.Controls(
            parsed.temperature, parsed.top_p, parsed.max_tokens, stop=tuple(parsed.stop_sequences or ()), effort=effort
        ),
        stream=bool(parsed.stream),
        extra=extra,
        hosted=hosted,
        prefill="last" if parsed.messages and parsed.messages[-1].role == "assistant" else "",
    )


def _encode_controls(body: dict[str, Any], controls: core.Controls, dropped: list[str]) -> None:
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


def _encode_tool(tool: core.ToolDeclaration, names: ToolNames) -> dict[str, Any]:
    encoded: dict[str, Any] = {"name": names.on_wire(tool.name)}
    if description := tool.full_description:
        encoded["description"] = description
    encoded["input_schema"] = tool.schema
    if tool.strict is not None:
        encoded["strict"] = tool.strict
    return {**encoded, **tool.extra.get(WIRE, {})}


def _encode_choice(request: core.Request, names: ToolNames) -> dict[str, Any]:
    choice: dict[str, Any]
    if isinstance(request.tool_choice, core.NamedTool):
        choice = {"type": "tool", "name": names.on_wire(request.tool_choice.name)}
    else:
        choice = {"type": _CHOICES[request.tool_choice]}
    if request.parallel is not None and request.tool_choice != "none":
        choice["disable_parallel_tool_use"] = not request.parallel
    return choice


def _add_breakpoints(tools: list[dict[str, Any]], messages: MessageEncoder) -> None:
    blocks = [*messages.system, *[block for message in messages.body for block in message["content"]], *tools]
    if any(map(has_breakpoint, blocks)):
        return
    loaded = [tool for tool in tools if not tool.get("defer_loading")]  # the others are not in the prompt
    content = messages.body[-1]["content"] if messages.body else []
    for blocks in (loaded, messages.system, [block for block in content if block.get("type") not in _UNCACHED]):
        if blocks:
            blocks[-1].update(BREAKPOINT)


def _decode_tools(tools: list[dict[str, Any]]) -> tuple[tuple[core.ToolDeclaration, ...], tuple[core.HostedTool, ...]]:
    declared: list[core.ToolDeclaration] = []
    hosted: list[core.HostedTool] = []
    for index, tool in enumerate(tools):
        match tool.get("type"):
            case None | "custom":
                shape = read_shape(tool, schema.Tool, f"tools[{index}]")
                description = shape.description or ""
                extra = extra_for(WIRE, unnamed_fields(tool, _TOOL))
                declared.append(
                    core.ToolDeclaration(shape.name, description, shape.input_schema, strict=shape.strict, extra=extra)
                )
            case str(kind):
                hosted.append(core.HostedTool(WIRE, kind, tool))
            case _:
                raise CallerError("a type is a string", path=f"tools[{index}].type")
    return tuple(declared), tuple(hosted)


def _decode_choice(choice: schema.Choice | None) -> tuple[core.ToolChoice, bool | None]:
    if choice is None:
        return "auto", None
    alone = choice.disable_parallel_tool_use
    parallel = None if alone is None else not alone
    match choice:
        case schema.ToolChoice(name=name):
            return core.NamedTool(name), parallel
        case schema.AnyChoice():
            return "required", parallel
        case schema.NoChoice():
            return "none", parallel
        case schema.AutoChoice():
            return "auto", parallel


def _pop_constraint(output: dict[str, Any]) -> core.Constraint | None:
    """The schema that the output has to follow, taken out of `output`; another format stays there."""
    form = output.get("format")
    if form is None:
        output.pop("format", None)
        return None
    if not isinstance(form, Mapping) or form.get("type") != "json_schema":
        return None
    schema = read_shape(form, OutputFormat, "output_config.format").schema
    del output["format"]
    return core.Constraint("reply", schema)

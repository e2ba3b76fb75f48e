"""A request to a model, as the body of POST /chat/completions.

Owns the body's fields in both directions; messages are in `messages` and `decode_messages`. Knows no backend:
what one of them calls otherwise is its profile's affair.
Law: decode_request(encode_request(r).body) is r, as far as the wire carries it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

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
from callboard.wires.chat.decode_messages import decode_messages
from callboard.wires.chat.encode_messages import CHAT_PREFILLS, OPENAI_CHAT, ChatCapabilities, encode_messages
from callboard.wires.chat.schema import AssistantMessage, ChatRequest, Custom, Function, FunctionTool, NamedChoice
from callboard.wires.common.client_input import extra_for, read_shape, unnamed
from callboard.wires.common.request_encoder import MAX_CACHED, ConversationEncoder, EncodedMessages, EncodedRequest
from callboard.wires.common.tool_declarations import StrictTools, ToolNames, dropped_descriptions

WIRE = "chat"
_NO_SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {}}
_FIELDS = frozenset(ChatRequest.__struct_fields__)
_OWN_TYPES = (None, "function", "custom")
_CONTROLS = ("temperature", "top_p", "max_tokens", "seed")


def encode_request(request: Request) -> EncodedRequest:
    """The request as a chat body. A value that is None or the wire's default is left out."""
    naming = ToolNames(request)
    return _encode_body(encode_messages(request.canisters, request, naming), request, naming)


class RequestEncoder(ConversationEncoder[ToolNames]):
    """`encode_request` for conversations that grow; see `ConversationEncoder`. `capabilities` are its backend's."""

    def __init__(self, max_cached: int = MAX_CACHED, *, capabilities: ChatCapabilities = OPENAI_CHAT) -> None:
        super().__init__(ToolNames, partial(encode_messages, capabilities=capabilities), _encode_body, max_cached)


def _encode_body(messages: EncodedMessages, request: Request, naming: ToolNames) -> EncodedRequest:
    body: dict[str, Any] = {"model": request.model, "messages": messages.messages}
    dropped = list(messages.dropped)
    strictness = StrictTools(WIRE)
    hosted = [{"type": tool.kind, **tool.definition} for tool in request.hosted if tool.wire == WIRE]
    if tools := [_tool(strictness.held(tool), naming) for tool in request.tools] + hosted:
        body["tools"] = tools
        dropped += strictness.dropped
        if request.tool_choice != "auto":
            body["tool_choice"] = _choice(request.tool_choice, naming)
        if request.parallel is not None:
            body["parallel_tool_calls"] = request.parallel
    elif request.tool_choice not in {"auto", "none"}:
        dropped.append("tool_choice")
    dropped += [f"tool {tool.kind}" for tool in request.hosted if tool.wire != WIRE]
    dropped += dropped_descriptions(request.namespaces)
    if request.controls.effort is not None:
        body["reasoning_effort"] = request.controls.effort
    if (constraint := request.constraint) is not None:
        schema = {"name": constraint.name, "schema": constraint.schema, "strict": constraint.strict}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    for name in _CONTROLS:
        if (value := getattr(request.controls, name)) is not None:
            body[name] = value
    if request.controls.stop:
        body["stop"] = list(request.controls.stop)
    if request.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    if request.prefill:
        body.update(CHAT_PREFILLS[request.prefill][1])
    body.update(request.extra)
    return EncodedRequest(body, naming.reverse, tuple(dropped), strictness.nullable, strictness.respelled)


def decode_request(body: Mapping[str, Any]) -> Request:
    """The request that a chat body asks for. Raises CallerError with the path of what is none.

    Tools of another type than `function` and `custom` are hosted ones. `stream_options` are about
    the client's own stream and left out too. Fields that have no name here go to `extra` as they are.
    """
    asked = read_shape(body, ChatRequest, "", "a chat request")
    extra = {name: value for name, value in body.items() if name not in _FIELDS and value is not None}
    prefill = _prefill(asked, extra)
    constraint = _constraint(asked.response_format)
    if constraint is None and asked.response_format not in (None, {"type": "text"}):
        extra["response_format"] = asked.response_format
    max_tokens = asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens
    stop = (asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop or ())
    return Request(
        model=asked.model,
        canisters=decode_messages(asked.messages, body["messages"], model=asked.model),
        tools=_declarations(asked.tools or [], body),
        tool_choice=_chosen(asked.tool_choice or "auto"),
        parallel=asked.parallel_tool_calls,
        constraint=constraint,
        controls=Controls(asked.temperature, asked.top_p, max_tokens, asked.seed, stop, asked.reasoning_effort),
        stream=bool(asked.stream),
        extra=extra,
        hosted=tuple([_hosted(tool) for tool in body.get("tools") or () if tool.get("type") not in _OWN_TYPES]),
        prefill=prefill,
    )


def _prefill(asked: ChatRequest, extra: dict[str, Any]) -> str:
    """How a reply is asked for that goes on from the last message; the fields of the body are no longer in `extra`."""
    last = asked.messages[-1] if asked.messages else None
    if not isinstance(last, AssistantMessage):
        return ""
    if extra.get("continue_final_message") is True:
        for field in CHAT_PREFILLS["continue"][1]:
            extra.pop(field, None)
        return "continue"
    return "prefix" if last.prefix else "partial" if last.partial else ""


def _hosted(tool: Mapping[str, Any]) -> HostedTool:
    return HostedTool(WIRE, tool["type"], {name: value for name, value in tool.items() if name != "type"})


def _tool(tool: ToolDeclaration, naming: ToolNames) -> dict[str, Any]:
    function: dict[str, Any] = {"name": naming.on_wire(tool.name)}
    if description := tool.full_description:
        function["description"] = description
    function["parameters"] = dict(CUSTOM_SCHEMA) if tool.kind == "custom" else tool.schema or _NO_SCHEMA
    if tool.strict is not None:
        function["strict"] = tool.strict
    if not (extra := tool.extra.get(WIRE)):
        return {"type": "function", "function": function}
    return {"type": "function", **extra, "function": function | extra.get("function", {})}


def _choice(choice: ToolChoice, naming: ToolNames) -> Any:
    if isinstance(choice, NamedTool):
        return {"type": "function", "function": {"name": naming.on_wire(choice.name)}}
    return choice


def _declarations(tools: list[FunctionTool], body: Mapping[str, Any]) -> tuple[ToolDeclaration, ...]:
    declared: list[ToolDeclaration] = []
    for place, tool in enumerate(tools):
        if tool.type == "custom":
            if tool.custom is None:
                raise CallerError("a custom tool without its definition", path=f"tools[{place}].custom")
            declared.append(_custom(tool.custom))
        if tool.type != "function":
            continue
        if tool.function is None:
            raise CallerError("a function tool without its function", path=f"tools[{place}].function")
        function = tool.function
        declared.append(
            ToolDeclaration(
                function.name,
                function.description or "",
                function.parameters or _NO_SCHEMA,
                strict=function.strict,
                extra=extra_for(WIRE, _unnamed(body["tools"][place])),
            )
        )
    return tuple(declared)


def _custom(tool: Custom) -> ToolDeclaration:
    grammar = tool.format.grammar if tool.format else None
    form = None if grammar is None else {"type": "grammar", "syntax": grammar.syntax, "definition": grammar.definition}
    return ToolDeclaration(tool.name, tool.description or "", CUSTOM_SCHEMA, kind="custom", grammar=form)


def _chosen(choice: Literal["auto", "none", "required"] | NamedChoice) -> ToolChoice:
    if not isinstance(choice, NamedChoice):
        return choice
    named = choice.custom or choice.function
    if named is None:
        raise CallerError("the chosen tool has no name", path=f"tool_choice.{choice.type}.name")
    return NamedTool(named.name)


def _unnamed(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a tool that have no name here, those of its function under `function`."""
    fields = unnamed(tool, FunctionTool.__struct_fields__)
    if function := unnamed(tool["function"], Function.__struct_fields__):
        fields["function"] = function
    return fields


def _constraint(form: Any) -> Constraint | None:
    if not isinstance(form, Mapping) or form.get("type") != "json_schema":
        return None
    asked = form.get("json_schema")
    if not isinstance(asked, Mapping) or not isinstance(asked.get("schema", {}), Mapping):
        raise CallerError("a json_schema without its schema", path="response_format.json_schema")
    return Constraint(str(asked.get("name") or "reply"), asked.get("schema", {}), bool(asked.get("strict")))

"""The body of POST /chat/completions, encoded and decoded.

Names that differ from OpenAI's are in the endpoint's profile, not here.
Law: decode_request(encode_request(r).body) is r, as far as the wire carries it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from callboard import core
from callboard.errors import CallerError
from callboard.wires.chat.content import decode_content
from callboard.wires.chat.encode_messages import CHAT_PREFILLS, OPENAI_CHAT, ChatCapabilities, MessageEncoder
from callboard.wires.chat.schema import (
    AssistantMessage,
    Call,
    ChatRequest,
    Custom,
    DeveloperMessage,
    Function,
    FunctionTool,
    Message,
    NamedChoice,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from callboard.wires.common.client_input import client_arguments, extra_for, read_shape, unnamed_fields, unnamed_in
from callboard.wires.common.encoded_request import EncodedRequest
from callboard.wires.common.tool_calls import parse_arguments
from callboard.wires.common.tool_declarations import NO_SCHEMA, StrictTools, ToolNames, dropped_descriptions

_MESSAGE_FIELDS = {
    shape: frozenset({"role", *shape.__struct_fields__})
    for shape in (SystemMessage, DeveloperMessage, UserMessage, AssistantMessage, ToolMessage)
}


def decode_messages(
    messages: Iterable[Message], raw: Iterable[Mapping[str, Any]], *, model: str
) -> tuple[core.Canister, ...]:
    """The conversation; reasoning is taken to be the model's own. Raises CallerError with the path.

    `raw` are the same messages with all fields: those without a name here go to `extra`.
    """
    canisters: list[core.Canister] = []
    for index, (message, fields) in enumerate(zip(messages, raw, strict=True)):
        path = f"messages[{index}]"
        content = decode_content(message.content, f"{path}.content", fields.get("content"))
        extra = extra_for("chat", unnamed_in(fields, _MESSAGE_FIELDS[type(message)])) or None
        match message:
            case SystemMessage() | DeveloperMessage():
                canisters.append(core.SupervisorCanister(content, extra=extra))
            case UserMessage():
                canisters.append(core.UserCanister(content, extra=extra))
            case ToolMessage(tool_call_id=identifier):
                canisters.append(core.ResultCanister(content, invocation_id=identifier, extra=extra))
            case AssistantMessage():
                canisters += _turn(message, content, model, path, extra)
    return tuple(canisters)


def _turn(
    message: AssistantMessage, content: tuple[core.Content, ...], model: str, path: str, extra: Mapping[str, Any] | None
) -> list[core.Canister]:
    if message.function_call is not None:
        raise CallerError("function_call is no longer served", path=f"{path}.function_call", hint="use tool_calls")
    if reasoning := message.reasoning_content or message.reasoning:
        content = (core.ReasoningContent(reasoning, origin=model), *content)
    if message.refusal:
        content = (*content, core.RefusalContent(message.refusal))
    calls = message.tool_calls or []
    canisters: list[core.Canister] = (
        [core.AssistantCanister(content, extra=extra)] if content or extra or not calls else []
    )
    return canisters + [_invocation(call, f"{path}.tool_calls[{index}]") for index, call in enumerate(calls)]


def _invocation(call: Call, path: str) -> core.InvocationCanister:
    if call.custom is not None:
        text = {core.CUSTOM_KEY: call.custom.input}
        return core.InvocationCanister(call.id, call.custom.name, text, msgspec.json.encode(text).decode())
    if call.function is None:
        raise CallerError("a call without its function", path=path)
    arguments = call.function.arguments
    raw = client_arguments("" if arguments == "" else arguments or {}, f"{path}.function.arguments")
    return core.InvocationCanister(call.id, call.function.name, parse_arguments(raw), raw)


WIRE = "chat"
_FIELDS = frozenset(ChatRequest.__struct_fields__)
_OWN_TYPES = (None, "function", "custom")
_CONTROLS = ("temperature", "top_p", "max_tokens", "seed")


def encode_request(request: core.Request, *, capabilities: ChatCapabilities = OPENAI_CHAT) -> EncodedRequest:
    """The request as a chat body. Omit values that are None or the wire's default."""
    names = ToolNames(request)
    messages = MessageEncoder(request, names, capabilities)
    body: dict[str, Any] = {"model": request.model, "messages": messages.body}
    dropped = list(messages.dropped)
    strict_tools = StrictTools(WIRE)
    hosted = [{"type": tool.kind, **tool.definition} for tool in request.hosted if tool.wire == WIRE]
    if tools := [_encode_tool(strict_tools.fit(tool), names) for tool in request.tools] + hosted:
        body["tools"] = tools
        dropped += strict_tools.dropped
        if request.tool_choice != "auto":
            body["tool_choice"] = _encode_choice(request.tool_choice, names)
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
    return EncodedRequest(body, names.reverse, tuple(dropped), strict_tools.nullable, strict_tools.respelled)


def decode_request(body: Mapping[str, Any]) -> core.Request:
    """The request that a chat body asks for. Raises CallerError with the path of an invalid part.

    Tools of another type than `function` and `custom` are hosted ones. `stream_options` are about
    the client's own stream and left out too. Fields that have no name here go to `extra` as they are.
    """
    parsed = read_shape(body, ChatRequest, "", "a chat request")
    extra = {name: value for name, value in body.items() if name not in _FIELDS and value is not None}
    prefill = _decode_prefill(parsed, extra)
    constraint = _decode_constraint(parsed.response_format)
    if constraint is None and parsed.response_format not in (None, {"type": "text"}):
        extra["response_format"] = parsed.response_format
    max_tokens = parsed.max_tokens if parsed.max_completion_tokens is None else parsed.max_completion_tokens
    stop = (parsed.stop,) if isinstance(parsed.stop, str) else tuple(parsed.stop or ())
    return core.Request(
        model=parsed.model,
        canisters=decode_messages(parsed.messages, body["messages"], model=parsed.model),
        tools=_decode_tools(parsed.tools or [], body),
        tool_choice=_decode_choice(parsed.tool_choice or "auto"),
        parallel=parsed.parallel_tool_calls,
        constraint=constraint,
        controls=core.Controls(
            parsed.temperature, parsed.top_p, max_tokens, parsed.seed, stop, parsed.reasoning_effort
        ),
        stream=bool(parsed.stream),
        extra=extra,
        hosted=tuple(
            [_decode_hosted_tool(tool) for tool in body.get("tools") or () if tool.get("type") not in _OWN_TYPES]
        ),
        prefill=prefill,
    )


def _decode_prefill(parsed: ChatRequest, extra: dict[str, Any]) -> str:
    """How the request asks for a reply that continues the last message; its fields are taken out of `extra`."""
    last = parsed.messages[-1] if parsed.messages else None
    if not isinstance(last, AssistantMessage):
        return ""
    if extra.get("continue_final_message") is True:
        for field in CHAT_PREFILLS["continue"][1]:
            extra.pop(field, None)
        return "continue"
    return "prefix" if last.prefix else "partial" if last.partial else ""


def _decode_hosted_tool(tool: Mapping[str, Any]) -> core.HostedTool:
    return core.HostedTool(WIRE, tool["type"], {name: value for name, value in tool.items() if name != "type"})


def _encode_tool(tool: core.ToolDeclaration, names: ToolNames) -> dict[str, Any]:
    function: dict[str, Any] = {"name": names.on_wire(tool.name)}
    if description := tool.full_description:
        function["description"] = description
    function["parameters"] = tool.schema
    if tool.strict is not None:
        function["strict"] = tool.strict
    if not (extra := tool.extra.get(WIRE)):
        return {"type": "function", "function": function}
    return {"type": "function", **extra, "function": function | extra.get("function", {})}


def _encode_choice(choice: core.ToolChoice, names: ToolNames) -> Any:
    if isinstance(choice, core.NamedTool):
        return {"type": "function", "function": {"name": names.on_wire(choice.name)}}
    return choice


def _decode_tools(tools: list[FunctionTool], body: Mapping[str, Any]) -> tuple[core.ToolDeclaration, ...]:
    declared: list[core.ToolDeclaration] = []
    for index, tool in enumerate(tools):
        if tool.type == "custom":
            if tool.custom is None:
                raise CallerError("a custom tool without its definition", path=f"tools[{index}].custom")
            declared.append(_decode_custom_tool(tool.custom))
        if tool.type != "function":
            continue
        if tool.function is None:
            raise CallerError("a function tool without its function", path=f"tools[{index}].function")
        function = tool.function
        declared.append(
            core.ToolDeclaration(
                function.name,
                function.description or "",
                function.parameters or NO_SCHEMA,
                strict=function.strict,
                extra=extra_for(WIRE, _unnamed_fields(body["tools"][index])),
            )
        )
    return tuple(declared)


def _decode_custom_tool(tool: Custom) -> core.ToolDeclaration:
    grammar = tool.format.grammar if tool.format else None
    form = None if grammar is None else {"type": "grammar", "syntax": grammar.syntax, "definition": grammar.definition}
    return core.ToolDeclaration(
        tool.name, tool.description or "", dict(core.CUSTOM_SCHEMA), kind="custom", grammar=form
    )


def _decode_choice(choice: Literal["auto", "none", "required"] | NamedChoice) -> core.ToolChoice:
    if not isinstance(choice, NamedChoice):
        return choice
    named = choice.custom or choice.function
    if named is None:
        raise CallerError("the chosen tool has no name", path=f"tool_choice.{choice.type}.name")
    return core.NamedTool(named.name)


def _unnamed_fields(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the unnamed fields of a tool. Unnamed fields of its function are under `function`."""
    fields = unnamed_fields(tool, FunctionTool.__struct_fields__)
    if function := unnamed_fields(tool["function"], Function.__struct_fields__):
        fields["function"] = function
    return fields


def _decode_constraint(form: Any) -> core.Constraint | None:
    if not isinstance(form, Mapping) or form.get("type") != "json_schema":
        return None
    parsed = form.get("json_schema")
    if not isinstance(parsed, Mapping) or not isinstance(parsed.get("schema", {}), Mapping):
        raise CallerError("a json_schema without its schema", path="response_format.json_schema")
    return core.Constraint(str(parsed.get("name") or "reply"), parsed.get("schema", {}), bool(parsed.get("strict")))

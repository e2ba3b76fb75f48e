"""Decode a client's messages into canisters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from callboard.core import (
    CUSTOM_KEY,
    AssistantCanister,
    Canister,
    Content,
    InvocationCanister,
    ReasoningContent,
    RefusalContent,
    ResultCanister,
    SupervisorCanister,
    UserCanister,
)
from callboard.errors import CallerError
from callboard.wires.chat.content import decode_content
from callboard.wires.chat.schema import (
    AssistantMessage,
    Call,
    DeveloperMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from callboard.wires.common.client_input import extra_for, unnamed_in
from callboard.wires.common.tool_calls import parse_arguments

_FIELDS = {
    shape: frozenset({"role", *shape.__struct_fields__})
    for shape in (SystemMessage, DeveloperMessage, UserMessage, AssistantMessage, ToolMessage)
}


def decode_messages(
    messages: Iterable[Message], raw: Iterable[Mapping[str, Any]], *, model: str
) -> tuple[Canister, ...]:
    """The conversation; reasoning is taken to be the model's own. Raises CallerError with the path.

    `raw` are the same messages with all fields: those without a name here go to `extra`.
    """
    canisters: list[Canister] = []
    for index, (message, fields) in enumerate(zip(messages, raw, strict=True)):
        path = f"messages[{index}]"
        content = decode_content(message.content, f"{path}.content", fields.get("content"))
        extra = extra_for("chat", unnamed_in(fields, _FIELDS[type(message)])) or None
        match message:
            case SystemMessage() | DeveloperMessage():
                canisters.append(SupervisorCanister(content, extra=extra))
            case UserMessage():
                canisters.append(UserCanister(content, extra=extra))
            case ToolMessage(tool_call_id=identifier):
                canisters.append(ResultCanister(content, invocation_id=identifier, extra=extra))
            case AssistantMessage():
                canisters += _turn(message, content, model, path, extra)
    return tuple(canisters)


def _turn(
    message: AssistantMessage, content: tuple[Content, ...], model: str, path: str, extra: Mapping[str, Any] | None
) -> list[Canister]:
    if message.function_call is not None:
        raise CallerError("function_call is no longer served", path=f"{path}.function_call", hint="use tool_calls")
    if reasoning := message.reasoning_content or message.reasoning:
        content = (ReasoningContent(reasoning, origin=model), *content)
    if message.refusal:
        content = (*content, RefusalContent(message.refusal))
    calls = message.tool_calls or []
    canisters: list[Canister] = [AssistantCanister(content, extra=extra)] if content or extra or not calls else []
    return canisters + [_invocation(call, f"{path}.tool_calls[{index}]") for index, call in enumerate(calls)]


def _invocation(call: Call, path: str) -> InvocationCanister:
    if call.custom is not None:
        text = {CUSTOM_KEY: call.custom.input}
        return InvocationCanister(call.id, call.custom.name, text, msgspec.json.encode(text).decode())
    if call.function is None:
        raise CallerError("a call without its function", path=path)
    arguments = call.function.arguments
    raw = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
    return InvocationCanister(call.id, call.function.name, parse_arguments(raw), raw)

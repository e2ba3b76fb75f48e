"""Decode a client's messages into canisters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from callboard.core import (
    AssistantCanister,
    Canister,
    Content,
    InvocationCanister,
    ResultCanister,
    SupervisorCanister,
    ToolError,
    UserCanister,
    join_texts,
)
from callboard.wires.common.client_input import client_json, read_shape
from callboard.wires.messages.content import decode_content, decode_document, decode_extra, decode_part
from callboard.wires.messages.encode_messages import AS_SYSTEM
from callboard.wires.messages.schema import RequestMessage, ToolResultBlock, ToolUseBlock


def decode_messages(
    system: str | list[dict[str, Any]] | None, messages: Iterable[RequestMessage], *, model: str
) -> tuple[Canister, ...]:
    """The conversation; thinking that is not sealed is taken to be the model's own. Raises CallerError with the path.

    Each block of `system` is a canister. A document that is text is one too; other documents are files.
    """
    canisters: list[Canister] = [SupervisorCanister((part,)) for part in decode_content(system, "system")]
    for index, message in enumerate(messages):
        path = f"messages[{index}].content"
        content = message.content
        if message.role == "system":
            canisters.append(SupervisorCanister(decode_content(content, path), extra=AS_SYSTEM))
        elif isinstance(content, str):
            speaker = UserCanister if message.role == "user" else AssistantCanister
            canisters.append(speaker(decode_content(content, path)))
        elif message.role == "user":
            _user(content, path, canisters)
        else:
            _assistant(content, model, path, canisters)
    return tuple(canisters)


def _user(blocks: list[dict[str, Any]], path: str, canisters: list[Canister]) -> None:
    contents: list[Content] = []

    def close() -> None:
        if contents:
            canisters.append(UserCanister(tuple(contents)))
            contents.clear()

    for index, block in enumerate(blocks):
        where = f"{path}[{index}]"
        match block.get("type"):
            case "tool_result":
                close()
                canisters.append(_result(block, where))
            case "document" if (document := decode_document(block, where)) is not None:
                close()
                canisters.append(document)
            case _:
                contents.append(decode_part(block, where, ""))
    close()


def _assistant(blocks: list[dict[str, Any]], model: str, path: str, canisters: list[Canister]) -> None:
    contents: list[Content] = []
    for index, block in enumerate(blocks):
        where = f"{path}[{index}]"
        if block.get("type") != "tool_use":
            contents.append(decode_part(block, where, model))
            continue
        if contents:
            canisters.append(AssistantCanister(tuple(contents)))
            contents = []
        canisters.append(_invocation(block, where))
    if contents:
        canisters.append(AssistantCanister(tuple(contents)))


def _invocation(block: dict[str, Any], path: str) -> InvocationCanister:
    shape = read_shape(block, ToolUseBlock, path)
    raw = client_json(shape.input, f"{path}.input")
    return InvocationCanister(shape.id, shape.name, shape.input, raw, extra=decode_extra(block))


def _result(block: dict[str, Any], path: str) -> ResultCanister:
    shape = read_shape(block, ToolResultBlock, path)
    content = decode_content(shape.content, f"{path}.content")
    error = None
    if shape.is_error:
        error = ToolError("execution", join_texts(content))
    return ResultCanister(content, invocation_id=shape.tool_use_id, error=error, extra=decode_extra(block))

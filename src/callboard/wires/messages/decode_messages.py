"""Messages become canisters.

Owns what a client's messages mean. Knows nothing of the rest of its request.
"""

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
    joined,
)
from callboard.wires.common.client_input import client_json, read_shape
from callboard.wires.messages.content import decode_block, decode_contents, decode_document, kept
from callboard.wires.messages.encode_messages import AS_SYSTEM
from callboard.wires.messages.schema import Said, ToolResultBlock, ToolUseBlock


def decode_messages(
    system: str | list[dict[str, Any]] | None, messages: Iterable[Said], *, model: str
) -> tuple[Canister, ...]:
    """The conversation; thinking that is not sealed is taken to be the model's own. Raises CallerError with the place.

    Each block of `system` is a canister. A document that is text is one too; other documents are files.
    """
    canisters: list[Canister] = [SupervisorCanister((part,)) for part in decode_contents(system, "system")]
    for place, message in enumerate(messages):
        path = f"messages[{place}].content"
        content = message.content
        if message.role == "system":
            canisters.append(SupervisorCanister(decode_contents(content, path), extra=AS_SYSTEM))
        elif isinstance(content, str):
            speaker = UserCanister if message.role == "user" else AssistantCanister
            canisters.append(speaker(decode_contents(content, path)))
        elif message.role == "user":
            _user(content, path, canisters)
        else:
            _assistant(content, model, path, canisters)
    return tuple(canisters)


def _user(blocks: list[dict[str, Any]], path: str, canisters: list[Canister]) -> None:
    said: list[Content] = []

    def close() -> None:
        if said:
            canisters.append(UserCanister(tuple(said)))
            said.clear()

    for place, block in enumerate(blocks):
        where = f"{path}[{place}]"
        match block.get("type"):
            case "tool_result":
                close()
                canisters.append(_result(block, where))
            case "document" if (document := decode_document(block, where)) is not None:
                close()
                canisters.append(document)
            case _:
                said.append(decode_block(block, where, ""))
    close()


def _assistant(blocks: list[dict[str, Any]], model: str, path: str, canisters: list[Canister]) -> None:
    said: list[Content] = []
    for place, block in enumerate(blocks):
        where = f"{path}[{place}]"
        if block.get("type") != "tool_use":
            said.append(decode_block(block, where, model))
            continue
        if said:
            canisters.append(AssistantCanister(tuple(said)))
            said = []
        canisters.append(_invocation(block, where))
    if said:
        canisters.append(AssistantCanister(tuple(said)))


def _invocation(block: dict[str, Any], path: str) -> InvocationCanister:
    shape = read_shape(block, ToolUseBlock, path)
    raw = client_json(shape.input, f"{path}.input")
    return InvocationCanister(shape.id, shape.name, shape.input, raw, extra=kept(block))


def _result(block: dict[str, Any], path: str) -> ResultCanister:
    shape = read_shape(block, ToolResultBlock, path)
    content = decode_contents(shape.content, f"{path}.content")
    error = None
    if shape.is_error:
        error = ToolError("execution", joined(content))
    return ResultCanister(content, invocation_id=shape.tool_use_id, error=error, extra=kept(block))

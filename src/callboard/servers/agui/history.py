"""The messages of a client of AG-UI as canisters, and what it offers besides them.

Parts that nothing here can send on, such as sounds, are left out: the specification forbids to fail for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from callboard.core import (
    AssistantCanister,
    Canister,
    Content,
    DocumentCanister,
    InvocationCanister,
    ReasoningContent,
    ResultCanister,
    SupervisorCanister,
    TextualContent,
    ToolError,
    UserCanister,
)
from callboard.errors import CallerError
from callboard.servers.agui.parts import decode_part
from callboard.servers.agui.run_input import (
    AguiActivityMessage,
    AguiAssistantMessage,
    AguiContext,
    AguiReasoningMessage,
    AguiTool,
    AguiToolMessage,
    AguiUserMessage,
    AnyMessage,
)
from callboard.tools import Ensemble, Invoker
from callboard.wires.common.sealed_reasoning import unseal

CLIENT_ENSEMBLE = "client"
"""The ensemble of the tools that the client runs itself."""


def read_messages(messages: Sequence[AnyMessage]) -> list[Canister]:
    """The conversation, without that of runs within the run, of which the agent knows what came of them.

    Raises:
        CallerError: A result is of no call before it.
    """
    canisters: list[Canister] = []
    calls: set[str] = set()
    for place, message in enumerate(messages):
        if message.subagent_run_id is not None:
            continue
        match message:
            case AguiUserMessage(content=content):
                canisters.append(UserCanister(_read_content(content)))
            case AguiAssistantMessage(content=text, tool_calls=tool_calls):
                if text:
                    canisters.append(AssistantCanister((TextualContent(text),)))
                for call in tool_calls or ():
                    calls.add(call.id)
                    raw = call.function.arguments
                    canisters.append(InvocationCanister(call.id, call.function.name, _read_object(raw), raw))
            case AguiToolMessage(tool_call_id=identifier):
                if identifier not in calls:
                    raise CallerError("no call before it is called so", path=f"messages[{place}].toolCallId")
                canisters.append(_read_result(message))
            case AguiReasoningMessage(content=text, encrypted_value=value):
                canisters.append(AssistantCanister((ReasoningContent(text, *unseal(value or "", "")),)))
            case AguiActivityMessage():
                pass
            case _:
                canisters.append(SupervisorCanister((TextualContent(message.content),)))
    return canisters


def read_context(context: Iterable[AguiContext]) -> list[Canister]:
    """What the model should know, as material to read."""
    return [DocumentCanister((TextualContent(each.value),), title=each.description) for each in context]


def message_text(message: AguiToolMessage) -> str:
    """The text of a result; a client's picture does not reach the model."""
    return _read_result(message).text


def client_ensemble(tools: Iterable[AguiTool]) -> Ensemble:
    """The tools that the client runs itself: a run waits where one of them is called.

    Raises:
        CallerError: A schema cannot be one of arguments, or two tools have one name.
    """
    invokers: dict[str, Invoker] = {}
    for place, tool in enumerate(tools):
        schema = tool.parameters or {"type": "object", "properties": {}}
        if tool.name in invokers:
            raise CallerError("another tool is called so", path=f"tools[{place}].name")
        try:
            invokers[tool.name] = Invoker(tool.name, _never_called, schema, description=tool.description, deferred=True)
        except CallerError as error:
            raise CallerError(error.message, path=f"tools[{place}].parameters", hint=error.hint) from None
    return Ensemble(CLIENT_ENSEMBLE, invokers)


async def _never_called(_context: Any, _arguments: Any) -> None:
    """What the client's tools do, it does itself."""


def _read_result(message: AguiToolMessage) -> ResultCanister:
    error = None if message.error is None else ToolError("execution", message.error)
    return ResultCanister(_read_content(message.content), invocation_id=message.tool_call_id, error=error)


def _read_content(content: Any) -> tuple[Content, ...]:
    if isinstance(content, str):
        return (TextualContent(content),) if content else ()
    parts = [decode_part(msgspec.to_builtins(each)) for each in content]
    return tuple([each for each in parts if each is not None])


def _read_object(text: str) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None

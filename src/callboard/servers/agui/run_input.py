"""The request of an AG-UI 1.0 client (conversation, client tools, answers to interrupts) and its messages as canisters.

Unknown fields are ignored, as the specification requires. Malformed input is refused with its path. Parts that we
cannot forward, such as sounds, are omitted: the specification forbids an error for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, field

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
from callboard.servers.agui.events import decode_part
from callboard.tools import Ensemble, Invoker
from callboard.wires.common.contents import unseal

CLIENT_ENSEMBLE: Final = "client"
"""Ensemble of the tools that the client runs itself."""

MAX_TOOLS: Final = 128
"""Maximum tools of a client."""
MAX_CONTEXT: Final = 128
"""Maximum pieces of context."""
MAX_ANSWERS: Final = 1000
"""Maximum interrupts that one request answers."""

_Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]
_Metadata: TypeAlias = dict[str, Any] | None


class _Shape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    pass


class _Source(_Shape, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    value: str


class _DataSource(_Source, frozen=True, kw_only=True, omit_defaults=True, tag="data"):
    mime_type: str


class _UrlSource(_Source, frozen=True, kw_only=True, omit_defaults=True, tag="url"):
    mime_type: str | None = None


class _FileSource(_Source, frozen=True, kw_only=True, omit_defaults=True, tag="file"):
    provider: str | None = None
    mime_type: str | None = None


class _Part(_Shape, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    id: str | None = None
    metadata: _Metadata = None


class _TextPart(_Part, frozen=True, kw_only=True, omit_defaults=True, tag="text"):
    text: str


class _MediaPart(_Part, frozen=True, kw_only=True, omit_defaults=True):
    source: _DataSource | _UrlSource | _FileSource


class _ImagePart(_MediaPart, frozen=True, kw_only=True, omit_defaults=True, tag="image"):
    pass


class _AudioPart(_MediaPart, frozen=True, kw_only=True, omit_defaults=True, tag="audio"):
    pass


class _VideoPart(_MediaPart, frozen=True, kw_only=True, omit_defaults=True, tag="video"):
    pass


class _DocumentPart(_MediaPart, frozen=True, kw_only=True, omit_defaults=True, tag="document"):
    pass


_Content: TypeAlias = str | list[_TextPart | _ImagePart | _AudioPart | _VideoPart | _DocumentPart]


class AguiMessage(_Shape, frozen=True, kw_only=True, omit_defaults=True, tag_field="role"):
    id: str
    subagent_run_id: str | None = None
    encrypted_value: str | None = None
    metadata: _Metadata = None


class AguiDeveloperMessage(AguiMessage, frozen=True, kw_only=True, omit_defaults=True, tag="developer"):
    content: str
    name: str | None = None


class AguiSystemMessage(AguiMessage, frozen=True, kw_only=True, omit_defaults=True, tag="system"):
    content: str
    name: str | None = None


class AguiUserMessage(AguiMessage, frozen=True, kw_only=True, omit_defaults=True, tag="user"):
    content: _Content
    name: str | None = None


class AguiFunction(_Shape, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    arguments: str


class AguiToolCall(_Shape, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    function: AguiFunction
    type: Literal["function"] = field(default="function")
    encrypted_value: str | None = None
    metadata: _Metadata = None


class AguiAssistantMessage(AguiMessage, frozen=True, kw_only=True, omit_defaults=True, tag="assistant"):
    content: str | None = None
    tool_calls: list[AguiToolCall] | None = None
    name: str | None = None


class AguiToolMessage(AguiMessage, frozen=True, kw_only=True, omit_defaults=True, tag="tool"):
    tool_call_id: str
    content: _Content
    error: str | None = None


class AguiReasoningMessage(AguiMessage, frozen=True, kw_only=True, omit_defaults=True, tag="reasoning"):
    content: str


class AguiActivityMessage(AguiMessage, frozen=True, kw_only=True, omit_defaults=True, tag="activity"):
    """An activity that a client shows beside the conversation. We ignore it."""

    activity_type: str = ""
    content: dict[str, Any] = {}


AnyMessage: TypeAlias = (
    AguiDeveloperMessage
    | AguiSystemMessage
    | AguiUserMessage
    | AguiAssistantMessage
    | AguiToolMessage
    | AguiReasoningMessage
    | AguiActivityMessage
)


class AguiTool(_Shape, frozen=True, kw_only=True):
    """A tool that the client runs itself."""

    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}\Z")]
    description: str = ""
    parameters: dict[str, Any] | None = None


class AguiContext(_Shape, frozen=True, kw_only=True):
    description: str
    value: str


class AguiResume(_Shape, frozen=True, kw_only=True):
    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class RunInput(_Shape, frozen=True, kw_only=True):
    thread_id: _Name
    run_id: _Name
    messages: list[AnyMessage]
    parent_run_id: str | None = None
    state: Any = None
    tools: Annotated[list[AguiTool], Meta(max_length=MAX_TOOLS)] | None = None
    context: Annotated[list[AguiContext], Meta(max_length=MAX_CONTEXT)] | None = None
    forwarded_props: Any = None
    resume: Annotated[list[AguiResume], Meta(max_length=MAX_ANSWERS)] | None = None


def read_run_input(body: dict[str, Any], max_messages: int) -> RunInput:
    """Convert a JSON object into the input.

    Raises:
        CallerError: The object is not valid; the path says where.
    """
    try:
        run_input = msgspec.convert(body, RunInput)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        raise CallerError(message[:1].lower() + message[1:], path=place.strip("`").lstrip(".")) from None
    if len(run_input.messages) > max_messages:
        raise CallerError(f"{len(run_input.messages)} messages; at most {max_messages} are accepted", path="messages")
    return run_input


def read_messages(messages: Sequence[AnyMessage]) -> list[Canister]:
    """Return the conversation without nested runs: the agent knows their results.

    Raises:
        CallerError: A result does not follow its call.
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
                    raise CallerError("no earlier call has this identifier", path=f"messages[{place}].toolCallId")
                canisters.append(_read_result(message))
            case AguiReasoningMessage(content=text, encrypted_value=value):
                canisters.append(AssistantCanister((ReasoningContent(text, *unseal(value or "", "")),)))
            case AguiActivityMessage():
                pass
            case _:
                canisters.append(SupervisorCanister((TextualContent(message.content),)))
    return canisters


def read_context(context: Iterable[AguiContext]) -> list[Canister]:
    return [DocumentCanister((TextualContent(each.value),), title=each.description) for each in context]


def message_text(message: AguiToolMessage) -> str:
    """Return the text of a result. A client's picture does not reach the model."""
    return _read_result(message).text


def client_ensemble(tools: Iterable[AguiTool]) -> Ensemble:
    """Return the tools that the client runs itself. A call of such a tool makes the run wait.

    Raises:
        CallerError: A schema is not valid for arguments, or two tools have the same name.
    """
    invokers: dict[str, Invoker] = {}
    for place, tool in enumerate(tools):
        schema = tool.parameters or {"type": "object", "properties": {}}
        if tool.name in invokers:
            raise CallerError("another tool has this name", path=f"tools[{place}].name")
        try:
            invokers[tool.name] = Invoker(tool.name, _never_called, schema, description=tool.description, deferred=True)
        except CallerError as error:
            raise CallerError(error.message, path=f"tools[{place}].parameters", hint=error.hint) from None
    return Ensemble(CLIENT_ENSEMBLE, invokers)


async def _never_called(_context: Any, _arguments: Any) -> None:
    """Never called: the client runs its own tools."""


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

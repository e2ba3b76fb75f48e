"""A server's questions to the user (elicitation) and to the run's model (sampling), as callbacks of the SDK.

Law: a server always gets an answer to its question. If nobody can answer, the SDK gets no callback, so that the server
learns it in the handshake.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from callboard.core import (
    AssistantCanister,
    Canister,
    Content,
    Controls,
    FileContent,
    Model,
    PictureContent,
    ReplyEnded,
    ReplyFailed,
    Request,
    SupervisorCanister,
    TextPiece,
    TextualContent,
    UserCanister,
    contents,
    reply_events,
)
from callboard.errors import ProviderError

if TYPE_CHECKING:
    from mcp_types import CreateMessageRequestParams, CreateMessageResult

ElicitAction: TypeAlias = Literal["accept", "decline", "cancel"]
Elicit: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[tuple[ElicitAction, Mapping[str, Any] | None]]]
"""Asks the user. Called with the server's text and the JSON Schema of the form.

An empty schema means that there is no form: the user opens the URL at the end of the text. Omitted fields get their
defaults.
"""
Sample: TypeAlias = "Callable[[CreateMessageRequestParams], Awaitable[CreateMessageResult]]"
"""Asks the run's model."""
PauseDeadlines: TypeAlias = Callable[[], AbstractContextManager[None]]

_INTERNAL_ERROR: Final = -32603


def elicitation_callback(elicit: Elicit, pause_deadlines: PauseDeadlines) -> Any:
    """Return the SDK's callback. Calls to the server do not time out while it runs."""

    async def ask(params: Any) -> Any:
        from mcp_types import ElicitResult  # noqa: PLC0415  # the SDK's, imported with it

        schema: Mapping[str, Any] = getattr(params, "requested_schema", None) or {}
        text = params.message if schema else f"{params.message}\n{params.url}"
        action, content = await elicit(text, schema)
        filled = {**_defaults(schema), **(content or {})} if action == "accept" and schema else None
        return ElicitResult(action=action, content=filled)

    return _callback(ask, pause_deadlines, "the user")


def sampling_callback(sample: Sample, pause_deadlines: PauseDeadlines) -> Any:
    """Return the SDK's callback. Calls to the server do not time out while it runs."""
    return _callback(sample, pause_deadlines, "the model")


def _callback(ask: Callable[[Any], Awaitable[Any]], pause_deadlines: PauseDeadlines, who: str) -> Any:
    async def callback(_: Any, params: Any) -> Any:
        from mcp_types import ErrorData  # noqa: PLC0415  # the SDK's, imported with it

        try:
            with pause_deadlines():
                return await ask(params)
        except Exception as error:  # noqa: BLE001  # the callback may fail in any way
            return ErrorData(code=_INTERNAL_ERROR, message=f"{who} could not be asked: {error}")

    return callback


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    fields = schema.get("properties")
    items = fields.items() if isinstance(fields, Mapping) else ()
    return {name: field["default"] for name, field in items if isinstance(field, Mapping) and "default" in field}


_STOPS: Final = {"stop": "endTurn", "length": "maxTokens"}


def make_sampler(model: Model) -> Sample:
    """Make a function that answers a server with this model's text. The model gets no tools: those are the run's own.

    The function raises ProviderError if the provider fails, and ValueError for an unsupported kind of message.
    """

    async def sample(request: CreateMessageRequestParams) -> CreateMessageResult:
        from mcp_types import CreateMessageResult, TextContent  # noqa: PLC0415  # the SDK's

        canisters: list[Canister] = (
            [SupervisorCanister(contents(request.system_prompt))] if request.system_prompt else []
        )
        canisters += [_canister(message) for message in request.messages]
        controls = Controls(
            temperature=request.temperature, max_tokens=request.max_tokens, stop=tuple(request.stop_sequences or ())
        )
        text, reason = "", "stop"
        async for event in reply_events(model, Request(model.name, canisters, controls=controls)):
            match event:
                case TextPiece(text=piece):
                    text += piece
                case ReplyEnded(reason="retry"):
                    text = ""
                case ReplyEnded(reason=ended):
                    reason = ended
                case ReplyFailed(message=message, code=code):
                    raise ProviderError(message, code=code)
                case _:
                    pass
        return CreateMessageResult(
            role="assistant",
            content=TextContent(text=text),
            model=model.name,
            stop_reason=_STOPS.get(reason, reason),
        )

    return sample


def _canister(message: Any) -> Canister:
    blocks = message.content if isinstance(message.content, list) else [message.content]
    kind = AssistantCanister if message.role == "assistant" else UserCanister
    return kind(tuple(_contents(blocks)))


def _contents(blocks: Iterable[Any]) -> Iterable[Content]:
    for block in blocks:
        match block.type:
            case "text":
                yield TextualContent(block.text)
            case "image":
                yield PictureContent(base64.b64decode(block.data), block.mime_type)
            case "audio":
                yield FileContent(base64.b64decode(block.data), block.mime_type)
            case other:
                raise ValueError(f"a message of the kind {other!r} is not passed on")

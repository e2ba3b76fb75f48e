"""Answer a server's sampling request with the run's model."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

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

    from callboard.mcp.elicitation import Sample

_STOPS: Final = {"stop": "endTurn", "length": "maxTokens"}


def make_sampler(model: Model) -> Sample:
    """Make a function that answers a server with this model's text. The model gets no tools: those are the run's own.

    The function raises ProviderError if the provider fails, and ValueError for a message that is no text, picture or sound.
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

"""Let a local model write what is missing in a text. Models of code are trained on this form, besides conversations.

Source: llama.cpp, tools/server/README.md, `POST /infill`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

import msgspec

from callboard import core
from callboard.errors import CallboardError
from callboard.providers.inference_span import InferenceSpan
from callboard.telemetry import switch

if TYPE_CHECKING:
    from callboard.providers.http_model import HttpModel

HOLE: Final = "\N{OBJECT REPLACEMENT CHARACTER}missing\N{OBJECT REPLACEMENT CHARACTER}"
"""The mark for what is missing. Users' texts may have the character alone."""
MAX_TOKENS: Final = 64
"""Tokens of a reply without a limit of its own: a long line."""
_MAX_ANSWER: Final = 1024 * 1024


class _Refusal(msgspec.Struct, frozen=True):
    message: str


class _Answer(msgspec.Struct):
    content: str | None = None
    error: _Refusal = _Refusal("the answer has no text")
    tokens_evaluated: int = 0
    tokens_predicted: int = 0


class FillModel:
    """A Model whose reply is the text that HOLE marks, in the last message with a HOLE.

    Instructions and earlier messages are not sent. A model without the tokens for this form fails.

    Args:
        model: A local model, which is closed by its owner.
    """

    def __init__(self, model: HttpModel) -> None:
        self._model = model
        self.plan = model.plan

    @property
    def name(self) -> str:
        return self._model.name

    async def batches(self, request: core.Request, /) -> AsyncGenerator[list[core.Event]]:
        """Yield the reply as one batch; an empty one is the end of a line."""
        span = InferenceSpan(self._model, request) if switch.recorder is not None else None
        try:
            events = await self._reply(request)
            if span is not None:
                span.feed(events)
            yield events
        finally:
            if span is not None:
                span.end()

    async def aclose(self) -> None:
        """Do nothing: the connections are the other model's."""

    async def _reply(self, request: core.Request) -> list[core.Event]:
        messages = [each.text for each in request.canisters if isinstance(each, core.UserCanister)]
        before, _, after = next((each for each in reversed(messages) if HOLE in each), "").partition(HOLE)
        controls = request.controls
        body = {
            "input_prefix": before,
            "input_suffix": after,
            "n_predict": controls.max_tokens or MAX_TOKENS,
            "stop": controls.stop,
            **{name: value for name in ("temperature", "seed") if (value := getattr(controls, name)) is not None},
        }
        model = self._model
        try:
            await model.start_server()
            url = f"{model.base_url.removesuffix('/v1')}/infill"
            async with model.transport.post(url, headers=model.headers, body=msgspec.json.encode(body)) as response:
                answer = msgspec.json.decode(await response.read(_MAX_ANSWER), type=_Answer)
        except (CallboardError, msgspec.MsgspecError) as error:
            answer = _Answer(error=_Refusal(str(error)))
        if answer.content is None:
            why = f"the model cannot write what is missing: {answer.error.message}"
            return [core.ReplyFailed("provider", "infill", why)]
        return [
            core.ReplyStarted(model=self.name),
            core.TextPiece(answer.content or "\n"),
            core.Usage(input=answer.tokens_evaluated, output=answer.tokens_predicted),
            core.ReplyEnded("stop"),
        ]

"""Encode the stored events of a background response: the same events give the same frames, whenever they are encoded.

So a client that lost its stream names the last `sequence_number` that it has, and gets what follows from any process.

Laws: the n-th frame has the number n, whatever is left out before it. What an interrupted attempt had said is closed as
incomplete and is not in the response, for the next attempt says it anew; nothing that was sent is taken back.
"""

from __future__ import annotations

from typing import Any

import msgspec

from callboard.core import Event, RoundStarted, Why
from callboard.text.sse import Payload
from callboard.wires.responses.encode_stream import StreamEncoder


class BackgroundEncoder(StreamEncoder):
    """A Stage: stored events in, payloads out.

    RoundStarted(0) says that the response is queued. Any other says that a reply of the model is asked for; where its
    number was there before, all that was said since then is void.
    """

    def __init__(self, *, starting_after: int = -1, **options: Any) -> None:
        """Takes the number of the last frame that is left out, and the parameters of StreamEncoder."""
        super().__init__(**options)
        self._to_skip = starting_after + 1
        self._is_queued = False
        self._round_starts: dict[int, int] = {}
        """The index of the first item of each round."""

    def feed(self, event: Event, /) -> list[Payload]:
        if not isinstance(event, RoundStarted):
            return self._skip(super().feed(event))
        if event.number:
            self._start_round(event.number)
        else:
            self._emit_queued()
        return self._skip(self._take())

    def finish(self, why: Why = "stop", /) -> list[Payload]:
        return self._skip(super().finish(why))

    def unfinished_body(self, status: str) -> dict[str, Any]:
        """The response object while nothing of it is shown."""
        return self._object.body(status, [])

    def _emit_started(self) -> None:
        self._emit_queued()
        self._emit(("response.in_progress", {"response": self._body("in_progress")}))

    def _emit_queued(self) -> None:
        if not self._is_queued:
            self._is_queued = True
            for kind in ("response.created", "response.queued"):
                self._emit((kind, {"response": self._body("queued")}))

    def _body(self, status: str) -> msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(self.unfinished_body(status)))

    def _start_round(self, number: int) -> None:
        begin = self._round_starts.get(number)
        self._close_items("completed" if begin is None else "incomplete", at_end=True)
        if begin is None:
            self._round_starts[number] = len(self._output)
            return
        self._output[begin:] = [None] * (len(self._output) - begin)
        self._early_logprobs, self._refused = [], False
        self._round_starts = {each: at for each, at in self._round_starts.items() if each <= number}

    def _skip(self, payloads: list[Payload]) -> list[Payload]:
        """What is left of payloads; `[DONE]` has no number, and is always sent."""
        if not self._to_skip:
            return payloads
        rest = [each for at, each in enumerate(payloads) if at >= self._to_skip or not each[0]]
        self._to_skip = max(0, self._to_skip - len(payloads))
        return rest

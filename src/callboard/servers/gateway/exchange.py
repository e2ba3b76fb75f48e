"""One request of a client and the reply to it.

Owns what a front's encoder has to know, and what is told of the reply besides its events. Knows nothing of sockets.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from callboard.core import Event, ReplyFailed, Request, Stage
from callboard.servers.gateway.dispatch import ReplyRecord
from callboard.servers.gateway.frontends import Frontend
from callboard.servers.gateway.http_errors import STATUSES
from callboard.text.display import replace_invisible

_PASSED = ("x-request-id", "request-id")
"""Headers of a backend that its client gets."""
_MOST_DROPPED = 2000
_LONGEST_PAUSE = 86_400.0
_BACKENDS = {"timeout": 504, "too_large": 502}
"""Statuses of what a backend did; of a client it means another."""

Batches = AsyncGenerator[list[Event]]


class Exchange:
    """`batches` gives the reply's events once; `around`, if it is set, is the way they take to who asked.

    `finished`, if it is set, is told a whole Responses body before the client has all of it.
    """

    def __init__(
        self,
        front: Frontend,
        request: Request,
        body: Mapping[str, Any],
        batches: Callable[[ReplyRecord], Batches],
        *,
        owner: str = "",
        token: str = "",
        dropped: tuple[str, ...] = (),
        seed: bool = False,
        strict: bool = False,
        echo: Mapping[str, Any] | None = None,
    ) -> None:
        self.front = front
        self.request = request
        self.body = body
        self.identifier = front.prefix + secrets.token_hex(16)
        self.created = int(time.time())
        self.record = ReplyRecord(front.name, token, dropped, owner=owner)
        self.strict = strict
        self.around: Callable[[Batches], Batches] | None = None
        self.finished: Callable[[dict[str, Any]], Awaitable[None]] | None = None
        self._batches = batches
        self._seed = seed
        self._echo = body if echo is None else echo

    def batches(self) -> Batches:
        batches = self._batches(self.record)
        # What is around may know this exchange: let go of it, or what a client sent stays until a garbage collection.
        around, self.around = self.around, None
        return batches if around is None else around(batches)

    def encoder(self) -> Stage[Event, bytes]:
        return self.front.encoder(body=self._echo, seed=self._seed, **self._said())

    @property
    def content_type(self) -> str:
        """Of the stream."""
        return self.front.content_type(self.body)

    def whole(self, events: list[Event]) -> dict[str, Any]:
        """The reply as one body."""
        options = {"echo": self._echo, "clock": time.time} if self.front.name == "responses" else {}
        return self.front.wire.encode_response(events, **self._said(), **options)

    def refusal(self, failed: ReplyFailed) -> tuple[int, dict[str, Any]]:
        """The status and body of a reply that did not begin."""
        status, _ = self.front.wire.encode_error(failed)
        # Some servers say with a 500 that a request cannot be: clients would ask again for ever.
        if self.record.status >= 400 and (failed.party != "caller" or self.record.status < 500):
            status = self.record.status
        elif failed.party == "provider" and failed.code in _BACKENDS:
            status = _BACKENDS[failed.code]
        else:
            # Anthropic's api_error is a 500, but it was not us that failed.
            status = STATUSES.get(failed.code, 502 if status == 500 else status)
        return status, self.front.error(failed, status)

    def headers(self) -> dict[str, str]:
        """What the answer's headers say besides its type."""
        record = self.record
        told = {name: record.redactor.text(value) for name in _PASSED if (value := record.headers.get(name))}
        told.setdefault("x-request-id", self.identifier)
        if record.retry_after is not None:
            told["retry-after"] = str(round(min(max(1.0, record.retry_after), _LONGEST_PAUSE)))
        if lost := [*record.dropped, *record.lost_fields]:
            told["x-callboard-dropped"] = dropped_header(lost)
        if record.quotations:
            told["x-callboard-quoted"] = dropped_header(record.quotations)
        if record.incomplete:
            told["x-callboard-incomplete"] = dropped_header(record.incomplete)
        return told

    def _said(self) -> dict[str, Any]:
        return {
            "identifier": self.identifier,
            "model": self.request.model,
            "created": self.created,
            "request": self.request,
        }


def dropped_header(dropped: list[str]) -> str:
    """What was lost, as a header's value."""
    text = ", ".join([thing.replace(",", ";") for thing in dropped])
    safe = text.encode("ascii", "replace").decode()
    return replace_invisible(safe)[:_MOST_DROPPED]

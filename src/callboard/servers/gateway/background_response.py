"""A background response as its job says it: from the row and the events to the object and the frames that clients read.

The same job gives the same response and the same frames each time, in whichever process it is encoded.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from callboard.core import Event, ReplyEnded, ReplyFailed
from callboard.servers.gateway.conversation_state import StoredResponse
from callboard.servers.gateway.frontends import frontends
from callboard.wires.responses.background_stream import BackgroundEncoder
from callboard.wires.responses.stored_items import complete_items, input_items

if TYPE_CHECKING:
    from callboard.jobs.job import DurableJob

_STATUSES: Final[Mapping[str, str]] = {
    "pending": "queued",
    "waiting": "queued",
    "running": "in_progress",
    "cancelled": "cancelled",
}
"""Of responses without an output."""
_encode = msgspec.json.encode


class BackgroundInput(msgspec.Struct, frozen=True, kw_only=True):
    """What the job of a response was asked with."""

    owner: str
    token: str
    """The part of the response's identifier that cannot be guessed."""
    body: dict[str, Any]
    """The client's, without the fields of the transport."""
    is_streamed: bool = False
    """Whether pieces of a reply are written while it comes; else the whole reply is, in one piece."""


def identifier_of(job: DurableJob, job_input: BackgroundInput) -> str:
    """The identifier of the response that a job makes."""
    return f"resp_{job.id}-{job_input.token}"


def read_input(job: DurableJob) -> BackgroundInput:
    """What the job was asked with."""
    return msgspec.convert(job.input, BackgroundInput)


class ResponseEncoding:
    """Encodes what the events of a job say, as frames or as a response object."""

    def __init__(self, job: DurableJob, *, starting_after: int = -1) -> None:
        """Takes the job and the number of the last frame that is left out."""
        self.input = read_input(job)
        self.identifier = identifier_of(job, self.input)
        self.created = int(job.created_at.timestamp())
        self.request = frontends()["responses"].decode_request(self.input.body)[0]
        self.echo = {**self.input.body, "background": True, "store": True}
        self.completed_at = time.time()
        """Is set before the last event is encoded, so that it is the same each time."""
        self._starting_after = starting_after

    def encoder(self) -> BackgroundEncoder:
        return BackgroundEncoder(
            starting_after=self._starting_after,
            identifier=self.identifier,
            model=self.input.body["model"],
            created=self.created,
            request=self.request,
            echo=self.echo,
            clock=lambda: self.completed_at,
        )

    def body(self, job: DurableJob, events: Sequence[Event]) -> dict[str, Any]:
        """The response as it is."""
        encoder = self.encoder()
        if job.state in _STATUSES:
            return encoder.unfinished_body(_STATUSES[job.state])
        self.completed_at = completion_time(job)
        for event in [*events, *missing_end(job, events)]:
            encoder.feed(event)
        encoder.finish()
        if encoder.response is None:
            raise AssertionError
        return encoder.response


def completion_time(job: DurableJob) -> float:
    """Seconds since 1970, as they were written with the end of the reply."""
    return float(job.memory.get("completed_at") or job.updated_at.timestamp())


def missing_end(job: DurableJob, events: Sequence[Event]) -> list[Event]:
    """The last event of a job that has ended without one."""
    if events and isinstance(events[-1], (ReplyEnded, ReplyFailed)):
        return []
    if job.state == "cancelled":
        return [ReplyFailed("caller", "cancelled", "the response was cancelled")]
    return [ReplyFailed("provider", "server_error", "the response could not be made; the gateway's log says why")]


def to_stored(job: DurableJob, body: Mapping[str, Any]) -> StoredResponse:
    """The response of a job as the store of replies keeps it."""
    job_input = read_input(job)
    identifier = identifier_of(job, job_input)
    items = complete_items(input_items(job_input.body.get("input")), identifier.removeprefix("resp_"))
    previous = job_input.body.get("previous_response_id") or ""
    return StoredResponse(identifier, job_input.owner, previous, _encode(body), _encode(items))

"""Responses in the background: `background: true` makes a durable job of a request to the Responses front.

A POST answers at once. The job has the client's body and whose it is; `background_kind.py` runs it, in this process or in
any other gateway on the same store. What a reply says is written as events (`background_events.py`), once, and whoever
wants to see it, as a whole or as a stream, encodes it from them: the same events always give the same frames with the same
numbers.

Laws: only what is committed is shown, so that no stream has to take anything back after a crash; a key sees, streams and
cancels its own responses only; no key and no header of a client is in a job.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from callboard.core import Event, ReplyEnded, ReplyFailed, ReplyStarted, RoundStarted, Stage
from callboard.errors import CallerError
from callboard.servers.gateway import compaction
from callboard.servers.gateway.background_jobs import KIND, QUEUE, BackgroundJobs, events_of
from callboard.servers.gateway.background_response import (
    BackgroundInput,
    ResponseEncoding,
    completion_time,
    missing_end,
    read_input,
    to_stored,
)
from callboard.servers.gateway.conversation_state import ConversationState, StoredResponse, own_items
from callboard.servers.gateway.exchange import Batches, Exchange, ReplyRecord, ReplyRequest
from callboard.servers.gateway.frontends import Frontend, frontends
from callboard.servers.gateway.gateway import Gateway
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.redaction import is_placeholder
from callboard.text.sse import Payload

if TYPE_CHECKING:
    from callboard.jobs.job import DurableJob

LOOK_SECONDS: Final = 0.25
"""Between two looks at a job that another process runs."""
CANCEL_LOOKS: Final = 20
"""How often the end of a job is looked for that was told to end."""

_IDENTIFIER: Final = re.compile(r"resp_(\d{8}-\d{6}-\d{3}-[0-9a-f]{6})-([0-9a-f]{24})")
"""The job, and what nobody can guess."""
_NOT_KEPT: Final = frozenset({"stream", "stream_options", "background", "client_metadata"})
"""Fields of a body that are about the transport, or about the client."""
_SECRET_FIELDS: Final = ("authorization", "headers")
"""Of tools that the provider calls."""
_KEY_HINT: Final = (
    "the gateway keeps no key of a client, and this backend gets the client's: give the backend a key of its own "
    "(`key_variable`), or the gateway keys (`--key`), or say that the backend needs none (`--no-forward-client-key`)"
)


class BackgroundResponses:
    """The background responses of a gateway; it opens its jobs when somebody asks for one, or one is left to run."""

    def __init__(self, gateway: Gateway, conversations: ConversationState, jobs: BackgroundJobs) -> None:
        self._gateway = gateway
        self._conversations = conversations
        self._jobs = jobs

    @property
    def jobs(self) -> BackgroundJobs:
        """Where they are, and what runs them."""
        return self._jobs

    async def exchange(self, request: ReplyRequest) -> Exchange:
        """The exchange of a body: that of a conversation, or the answer that a job was made.

        Raises:
            HttpError: The body cannot be answered, or not in the background.
        """
        try:
            return await self._exchange(request)
        except HttpError as error:
            previous = str(request.body.get("previous_response_id"))
            if error.failure.code == "previous_response_not_found" and await self.find(previous, request.owner):
                message = "the previous response has not completed"
                raise HttpError(error.failure.code, message, path=error.path) from None
            raise

    async def _exchange(self, request: ReplyRequest) -> Exchange:
        if not request.body.get("background"):
            return await self._conversations.exchange(request)
        self._jobs.check()
        body = {name: value for name, value in request.body.items() if name not in _NOT_KEPT}
        _check_body(request.body)
        # What is wrong with a request is said at once, not by a job that fails.
        exchange = await self._conversations.exchange(replace(request, body=body, compat_events=False))
        self._check_keys(exchange, request)
        is_streamed = bool(request.body.get("stream"))
        job_input = BackgroundInput(
            owner=request.owner, token=secrets.token_hex(12), body=body, is_streamed=is_streamed
        )
        store = await self._jobs.open()
        job = await self._jobs.ask(
            store.create(
                KIND,
                description="a response in the background",
                model=body["model"],
                input=msgspec.to_builtins(job_input),
                queue=QUEUE,
            )
        )
        if is_streamed:
            return self._stream(request.front, job)
        encoding = ResponseEncoding(job)
        return _answer(request, exchange, encoding, encoding.body(job, ()))

    async def find(self, identifier: str, owner: str) -> StoredResponse | None:
        """The response of a job as it is now, if it is this owner's."""
        job = await self._find_job(identifier, owner)
        if job is None:
            return None
        events = await self._jobs.read_events(job.id) if job.has_ended else []
        return to_stored(job, ResponseEncoding(job).body(job, events))

    async def stream(self, identifier: str, owner: str, starting_after: int) -> Exchange | None:
        """The exchange whose reply is the response's frames behind a number; None where this owner has no such job."""
        job = await self._find_job(identifier, owner)
        return None if job is None else self._stream(frontends()["responses"], job, starting_after)

    async def cancel(self, identifier: str, owner: str) -> StoredResponse | None:
        """End a response, wherever it is made; one that has ended stays as it is. None where this owner has none."""
        job = await self._find_job(identifier, owner)
        if job is None:
            return None
        store = await self._jobs.open()
        job = await self._jobs.ask(store.request_cancel(job.id))
        with self._jobs.streams.subscribe(job.id, pieces=False) as news:
            for _ in range(CANCEL_LOOKS):
                if job.has_ended:
                    break
                await news.next(LOOK_SECONDS)
                job = await self._jobs.ask(store.get(job.id))
        response = await self.find(identifier, owner)
        if response is not None and job.state == "cancelled" and (stored := self._conversations.store) is not None:
            await stored.save_once(response)
        return response

    async def delete(self, identifier: str, owner: str) -> bool:
        """Whether there was such a job. Raises an HttpError for one that has not ended."""
        job = await self._find_job(identifier, owner)
        if job is None:
            return False
        if not job.has_ended:
            raise HttpError("invalid_request", "The response has not ended; cancel it first.")
        await self._jobs.ask((await self._jobs.open()).remove(job.id))
        return True

    def _stream(self, front: Frontend, job: DurableJob, starting_after: int = -1) -> Exchange:
        encoding = ResponseEncoding(job, starting_after=starting_after)

        def make_encoder(*_: Any, **__: Any) -> Stage[Event, Payload]:
            return encoding.encoder()

        # A heartbeat has no number, since it may not be there the next time.
        shown = replace(front, make_encoder=make_encoder, heartbeat=lambda _: b": keep-alive\n\n")
        return Exchange(
            front=shown,
            request=replace(encoding.request, stream=True),
            body=encoding.input.body,
            echo=encoding.echo,
            identifier=encoding.identifier,
            record=ReplyRecord(front=front.name, owner=encoding.input.owner),
            source=partial(self._follow, job.id, encoding),
            created=encoding.created,
        )

    async def _follow(self, identifier: str, encoding: ResponseEncoding, record: ReplyRecord) -> Batches:
        """The events of a job as they are committed, until it has ended."""
        yield [RoundStarted(0)]
        store = await self._jobs.open()
        has_begun, after = False, 0
        last: list[Event] = []
        with self._jobs.streams.subscribe(identifier, pieces=False) as news:
            while True:
                job = await self._jobs.ask(store.get(identifier))
                entries = await self._jobs.ask(store.read_entries(identifier, after))
                events = [*last, *events_of(entries)]
                after = entries[-1].number if entries else after
                # The job's row was read before its last entries may have come, so its end is looked for once more.
                last = [events.pop()] if events and isinstance(events[-1], (ReplyEnded, ReplyFailed)) else []
                if not has_begun and (events or last or job.state != "pending"):
                    has_begun = True
                    events.insert(0, ReplyStarted())
                if job.has_ended:
                    encoding.completed_at = completion_time(job)
                    events += [*last, *missing_end(job, last)]
                    record.set_end(events)
                    yield events
                    return
                if events:
                    yield events
                await news.next(LOOK_SECONDS)

    async def _find_job(self, identifier: str, owner: str) -> DurableJob | None:
        match = _IDENTIFIER.fullmatch(identifier)
        if match is None or not self._jobs.is_possible:
            return None
        store = await self._jobs.open()
        try:
            job = await self._jobs.ask(store.get(match[1]))
        except CallerError:
            return None
        if job.id != match[1] or job.kind != KIND:
            return None
        job_input = read_input(job)
        is_theirs = job_input.owner == owner and secrets.compare_digest(job_input.token, match[2])
        return job if is_theirs else None

    def _check_keys(self, exchange: Exchange, request: ReplyRequest) -> None:
        if not request.token or is_placeholder(request.token):
            return
        candidates = self._gateway.candidates(exchange.request, request.owner)
        if any(backend.forwards_client_key for backend, _ in candidates):
            raise HttpError("background_not_supported", _KEY_HINT, path="background")


def _check_body(body: Mapping[str, Any]) -> None:
    """Raises an HttpError for what cannot be done in the background, or must not be written into a job."""
    if body.get("store") is False:
        raise HttpError("invalid_request", "a background response is stored", path="store")
    if compaction.is_requested(own_items(body)):
        raise HttpError("background_not_supported", "a compaction is not made in the background", path="input")
    tools = body.get("tools")
    for place, tool in enumerate(tools if isinstance(tools, list) else ()):
        for name in _SECRET_FIELDS:
            if isinstance(tool, Mapping) and tool.get(name):
                message = "a background response keeps no secrets of a client; send the request without background"
                raise HttpError("background_not_supported", message, path=f"tools[{place}].{name}")


def _answer(request: ReplyRequest, exchange: Exchange, encoding: ResponseEncoding, body: dict[str, Any]) -> Exchange:
    """An exchange that is answered by this body, without asking a model."""

    def encode_response(*_: Any, **__: Any) -> dict[str, Any]:
        return body

    async def end_at_once(record: ReplyRecord) -> AsyncGenerator[list[Event]]:
        events: list[Event] = [ReplyEnded("stop")]
        record.set_end(events)
        yield events

    return replace(
        exchange,
        front=replace(request.front, codec=replace(request.front.wire, encode_response=encode_response)),
        request=replace(exchange.request, stream=False),
        identifier=encoding.identifier,
        source=end_at_once,
        filters=(),
        on_finished=None,
    )

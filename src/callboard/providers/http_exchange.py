"""One HTTP request to a model's endpoint, and the events of its answer.

`HttpModel.batches` calls `HttpExchange.next_batch` directly, because a generator in between would slow down every event.
If an endpoint refuses the content of a request, the request is sent once more as the refusal suggests (`lessons`). The
events of the second answer replace the refusal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

from msgspec.structs import replace

from callboard import core
from callboard.core import unsent_note
from callboard.errors import ProviderError
from callboard.modes import Plan
from callboard.providers.inference_span import InferenceSpan
from callboard.providers.lessons import suspect_tools, with_hint
from callboard.providers.transport import HttpResponse
from callboard.telemetry import switch

if TYPE_CHECKING:
    from callboard.providers.http_model import HttpModel, PreparedRequest
    from callboard.providers.inference_span import InferenceSpan
    from callboard.wires import DecodeContext, Wire

MAX_BODY = 64 * 1024 * 1024
"""Bytes of a reply that comes whole."""
MAX_TEXT = 16 * 1024 * 1024
"""Characters of a streamed reply. Clients of some wires get all of them several times at its end."""
_MAX_ERROR = 64 * 1024
_EXCERPT = 500
_TEXT_FIELDS: Mapping[type[core.Event], str] = {
    core.ReasoningPiece: "text",
    core.RefusalPiece: "text",
    core.ArgumentsPiece: "json",
}
_REFUSALS = (400, 413, 422)
BEFORE_TOKENS = frozenset({core.ReplyStarted, core.Note})
"""Events that may come while the model still reads the prompt."""


class PassedReply(core.ReplyExtra, frozen=True):
    """A part of a reply, or all of it, as bytes that are ready for the client.

    It is the first event of its batch. The next events say the same to those who count and record.
    """

    data: bytes = b""
    rest: int = 0
    """Number of events at the end of the batch that are not in the bytes. They are encoded."""


class Passage(core.Stage[bytes, core.Event], Protocol):
    """A Stage that passes a stream. It also passes a whole reply."""

    def whole(self, data: bytes) -> list[core.Event]:
        """Return the events of a whole reply, or none if it must be decoded."""
        ...


class ExchangeObserver:
    """Sees what passes between a model and its endpoint. Every method does nothing unless it is overridden."""

    passes_refusals = False
    """True if the observer's owner reads refusals himself, as a gateway does: they get no hint, and teach nothing."""

    def on_answer(self, model: HttpModel, prepared: PreparedRequest, plan: Plan, response: HttpResponse) -> None:
        """An answer begins; its status and headers are known."""

    def open_passage(self, wire: Wire, context: DecodeContext, request: core.Request) -> Passage | None:
        """Return what passes a reply that nothing else changes; None to decode it."""
        return None

    def on_bytes(self, data: bytes) -> None:
        """The next bytes of the answer's body."""

    def on_frame(self, data: str) -> None:
        """The data of a frame of a stream."""


class HttpExchange:
    """The events of one answer, batch by batch. Leaving its `with` closes the connection.

    Args:
        model: Encodes the request, opens the connection, makes the stages.
        request: The request.
        plan: How the model is asked for calls.
        headers: Added to the model's own.
        observer: Sees each answer.
        learns: Whether a refusal may be learned from.
    """

    def __init__(
        self,
        model: HttpModel,
        request: core.Request,
        plan: Plan,
        *,
        headers: Mapping[str, str],
        observer: ExchangeObserver | None,
        learns: bool,
    ) -> None:
        self._model = self._current = model
        """The second is the first as a refusal suggests to ask it."""
        self._request = request
        self._plan = plan
        self._headers = headers
        self._observer = observer
        self._passes_refusals = observer is not None and observer.passes_refusals
        self._learns = learns
        self._step: Callable[[], Awaitable[list[core.Event]]] | None = self._prepare
        self._prepared: PreparedRequest
        self._response: HttpResponse | None = None
        self._stages: core.Pipe | Passage | None = None
        self._length = 0
        self._span: InferenceSpan | None = None
        if switch.recorder is not None:
            self._span = InferenceSpan(model, request)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._span is not None:
                self._span.end()
        finally:
            self._close()

    def _close(self) -> None:
        if self._response is not None:
            self._response.close()

    async def next_batch(self) -> list[core.Event]:
        """The next events that arrived together; an empty list when there are no more."""
        try:
            while self._step is not None:
                if events := await self._step():
                    break
            else:
                return []
        except ProviderError as error:
            self._step = None
            self._close()
            failed = core.ReplyFailed(error.party, error.code, str(error), error.excerpt)
            ends = [failed] if self._stages is None else self._stages.finish("cut")
            events = [failed if isinstance(event, core.ReplyFailed) else event for event in ends]
        if self._span is not None:
            self._span.feed(events)
        if self._current is self._model or self._passes_refusals or not events:
            return events
        if isinstance(events[-1], core.ReplyEnded):
            return [*self._model.learn_from(self._current), *events]
        return events

    async def _prepare(self) -> list[core.Event]:
        self._prepared = self._current.prepare(self._request, self._plan)
        self._step = self._send
        return [unsent_note(part) for part in self._prepared.dropped]

    async def _send(self) -> list[core.Event]:
        headers = self._headers if self._span is None else {**self._headers, **self._span.headers}
        self._response = response = await self._current.post(self._prepared, headers)
        if self._observer is not None:
            self._observer.on_answer(self._current, self._prepared, self._plan, response)
        self._step = None
        if response.status != 200:
            return await self._read_refusal(response)
        is_stream = response.content_type == "text/event-stream"
        passage = self._open_passage() if self._request.stream == is_stream else None
        if not is_stream:
            return await self._read_whole(response, passage)
        self._stages = passage or self._current.stages(self._prepared, self._plan, self._observer)
        self._step = self._receive
        return []

    def _open_passage(self) -> Passage | None:
        if (
            self._observer is None
            or (self._span is not None and self._span.reads_text)
            or self._current.changes_reply(self._request, self._prepared, self._plan)
        ):
            return None
        context = self._current.decode_context(self._prepared)
        return self._observer.open_passage(self._current.wire, context, self._request)

    async def _receive(self) -> list[core.Event]:
        if self._stages is None or self._response is None:
            raise AssertionError
        chunk = await self._response.next_chunk()
        if self._observer is not None:
            self._observer.on_bytes(chunk)
        if self._span is not None:
            self._span.receive()
        if not chunk:
            self._step = None
            return self._stages.finish()
        events: list[core.Event] = self._stages.feed(chunk)
        for event in events:
            if type(event) is core.TextPiece:
                self._length += len(event.text)
            elif field := _TEXT_FIELDS.get(type(event)):
                self._length += len(getattr(event, field))
        limit = self._response.idle_limit
        limit.is_patient = limit.is_patient and all(type(event) in BEFORE_TOKENS for event in events)
        if self._length > MAX_TEXT:
            raise ProviderError(f"the reply has more than {MAX_TEXT} characters", code="too_large")
        return events

    async def _read_refusal(self, response: HttpResponse) -> list[core.Event]:
        failed = self._current.wire.decode_error(response.status, await self._read(response, _MAX_ERROR))
        other = self._current.taught_by(failed, response.status, self._request, self._plan) if self._learns else None
        if other is not None:
            self._close()
            self._current, self._step = other, self._prepare
            return []
        tools = self._prepared.adapted.tools
        notes: list[core.Event] = []
        if response.status in _REFUSALS and tools:
            notes = [*suspect_tools(tools)]
        return [*notes, await self._explain(_with_headers(failed, response), response)]

    async def _read_whole(self, response: HttpResponse, passage: Passage | None) -> list[core.Event]:
        """The events of a reply that did not come as a stream."""
        data = await self._read(response, MAX_BODY)
        if data.lstrip().startswith(b"{"):
            if passage is not None and (passed := passage.whole(data)):
                return passed
            events = self._current.decode(data, self._prepared, self._plan)
        else:
            kind = response.content_type or "something without a type"
            what = f"the answer is no reply but {kind}" if data.strip() else "the answer is empty"
            events = [core.ReplyFailed("provider", "malformed", what, data[:_EXCERPT].decode(errors="replace"))]
        last = events[-1]
        if isinstance(last, core.ReplyFailed) and last.code == "malformed":
            return [*events[:-1], await self._explain(last, response)]
        return events

    async def _read(self, response: HttpResponse, limit: int) -> bytes:
        data = await response.read(limit)
        if self._observer is not None:
            self._observer.on_bytes(data)
        return data

    async def _explain(self, failed: core.ReplyFailed, response: HttpResponse) -> core.ReplyFailed:
        """The failure with a hint, unless the provider's own words are passed on."""
        if self._passes_refusals:
            return replace(failed, path=f"{response.where} answered {response.status}")
        model = self._current
        endpoint: Any = {"base_url": model.base_url, "headers": model.headers, "transport": model.transport}
        return await with_hint(failed, response, model.resolution, **endpoint)


class SSEPayloads:
    """A Stage from the frames of server-sent events to their data."""

    def __init__(self, observer: ExchangeObserver | None) -> None:
        self._observer = observer

    def feed(self, frame: Any, /) -> list[str]:
        if not frame.data:
            return []
        if self._observer is not None:
            self._observer.on_frame(frame.data)
        return [frame.data]

    def finish(self, why: core.Why = "stop", /) -> list[str]:
        return []


def _with_headers(failed: core.ReplyFailed, response: HttpResponse) -> core.ReplyFailed:
    """The failure with when to ask again, or the address of a redirect, without a query, which may hold a secret."""
    if response.retry_after is not None:
        return replace(failed, retry_after=response.retry_after)
    location = response.headers.get("Location", "").partition("?")[0][:_EXCERPT]
    if not 300 <= response.status < 400 or not location:
        return failed
    message = f"the provider answered {response.status} and points to {location}; redirects are not followed"
    return replace(failed, message=message)

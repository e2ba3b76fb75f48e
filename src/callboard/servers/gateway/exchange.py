"""One request of a client and the reply to it.

A `ReplyRequest` is one request to an endpoint. The gateway turns it into an `Exchange`: the decoded request, and the
path of the reply from a backend to the client. The `ReplyRecord` records what happens on this path.

An Exchange is frozen. Steps between backend and client, such as the check of a summary, are filters that get the
exchange together with the events. A filter that stored its exchange would create a reference cycle, and the client's
data would stay in memory until a garbage collection.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from starlette.datastructures import Headers

from callboard.core import (
    Event,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Note,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyFailed,
    Request,
    Stage,
    TextPiece,
    Usage,
)
from callboard.providers.http_exchange import ExchangeObserver
from callboard.providers.http_model import NO_HEADERS
from callboard.providers.retries import read_retry_after
from callboard.servers.gateway.frontends import Frontend
from callboard.servers.gateway.http_errors import STATUSES
from callboard.servers.gateway.pass_through import ClientView, PassThrough
from callboard.servers.gateway.redaction import Redactor
from callboard.servers.gateway.spending import ReplyCosts
from callboard.text.display import display
from callboard.text.sse import Framer, Payload
from callboard.wires.field_mapping import untranslated_fields

if TYPE_CHECKING:
    from callboard.modes import Plan
    from callboard.providers.http_model import HttpModel, PreparedRequest
    from callboard.providers.transport import HttpResponse
    from callboard.servers.gateway.backend import Backend
    from callboard.servers.gateway.conversation_state import ConnectionMemory
    from callboard.servers.gateway.request_body import BudgetShare
    from callboard.servers.gateway.request_log import LoggedRequest
    from callboard.wires import DecodeContext, Wire

log = logging.getLogger("callboard.gateway")

_TOLD: Final = {
    "quotation": "x-callboard-quoted",
    "incomplete": "x-callboard-incomplete",
    "missed_call": "x-callboard-missed",
    "no_thoughts": "x-callboard-thinking",
    "cut_thought": "x-callboard-thinking",
}
"""Headers of notes: a call that repeats a source, a gap in the reply, a marker without a call, thinking that was turned
off, a reply that ended within a thought."""
_CUT_THOUGHT: Final = Note(
    "alert",
    "the reply reached its limit before an answer; raise the maximum of tokens, or turn thinking off",
    code="cut_thought",
)
_PASSED_HEADERS: Final = re.compile(r"(?:x-)?request-id|(?:x|anthropic)-ratelimit-[a-z0-9-]{1,60}", re.IGNORECASE)
"""Headers of a backend that are passed to the client."""
_MAX_PASSED: Final = 40
_MAX_VALUE: Final = 200
"""Maximum characters of the value of a header that is passed."""
BETA: Final = "anthropic-beta"
_MAX_DROPPED = 2000
_MAX_RETRY_AFTER = 86_400.0
_BACKEND_STATUSES = {"timeout": 504, "too_large": 502}
"""Statuses of failures that have another status if the client caused them."""
_OVERLOADED = 529
"""Anthropic's own status. Clients of other providers do not retry on it."""
_MAX_NAME = 100
"""Maximum characters of a field's name in the log."""

_TOKENS: Final = frozenset([TextPiece, ReasoningPiece, RefusalPiece, InvocationStarted])
"""Events with which the output of a model begins."""
_ANSWERS: Final = _TOKENS - {ReasoningPiece}
"""Events of a reply that a client can use; thoughts are not among them."""
_NO_SECRETS = Redactor()

Batches: TypeAlias = AsyncGenerator[list[Event]]


def _log_malformed_arguments(backend_name: str, call: InvocationEnded | InvocationIncomplete) -> None:
    """Log that arguments are not a JSON object. The line has the place of the fault, never the arguments."""
    try:
        msgspec.json.decode(call.raw)
        fault = "they are another JSON value"
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        fault = str(error) if isinstance(error, msgspec.DecodeError) else "they cannot be read"
    what = "%s: the arguments of a call of %s are not a JSON object, and are passed on unchanged: %s"
    log.warning(what, backend_name, display(call.name, _MAX_NAME), fault)


class ReplyRecord(msgspec.Struct, kw_only=True, eq=False):
    """A record of what happens while a reply is made."""

    front: str
    owner: str = ""
    token: str = ""
    """The key that the client sent."""
    beta: str = ""
    """The client's `anthropic-beta` header. Without it Anthropic refuses some fields of a request."""
    size: int = 0
    """Approximate bytes of the request."""
    redactor: Redactor = _NO_SECRETS
    backend_name: str = ""
    """The backend that was asked last."""
    status: int = 0
    headers: Mapping[str, str] = NO_HEADERS
    dropped: list[str] = []
    """Parts of the request that are not sent to the backend."""
    lost_fields: list[str] = []
    """Parts of the reply that the client's wire cannot express."""
    alerts: dict[str, list[str]] = {}
    """Texts of the notes that a response header reports, by code."""
    has_answer: bool = False
    """True if the reply has more than thoughts so far."""
    retry_after: float | None = None
    usage: Usage = Usage()
    costs: ReplyCosts = msgspec.field(default_factory=ReplyCosts)
    """Costs of the backends' replies."""
    end: ReplyEnded | ReplyFailed | None = None
    view: ClientView | None = None
    """What the client sees of a reply that is passed. None if it must not be passed."""
    log_entry: LoggedRequest | None = None
    """The entry in the log of requests. None if there is no such log."""

    def begin(self, backend: Backend, plan: Plan | None = None) -> None:
        """Start over for a backend that is asked now, perhaps again. `plan` is set once it is known."""
        if plan is not None:
            self.costs.begin_reply(plan.prices)
        self.backend_name, self.redactor = backend.name, backend.redactor
        self.status, self.headers, self.retry_after, self.has_answer = 0, NO_HEADERS, None, False

    def add_dropped(self, names: Sequence[str]) -> None:
        self.dropped += [name for name in names if name not in self.dropped]

    def add_lost_fields(self, fields: Sequence[str]) -> None:
        """Add and log lost fields: a stream's headers may be sent before its last event shows a loss."""
        for field in fields:
            if field not in self.lost_fields:
                self.lost_fields.append(field)
                log.info(
                    "%s: the client's wire has no field for %s of the reply",
                    self.backend_name,
                    display(field, _MAX_NAME),
                )

    def add_notes(self, events: Sequence[Event]) -> None:
        """Keep and log the alerts for the answer's headers, and the fields that the client's wire lacks."""
        self.costs.feed(events)
        self.has_answer = self.has_answer or any(type(event) in _ANSWERS for event in events)
        self.add_lost_fields(untranslated_fields(events, self.front))
        entry = self.log_entry
        if entry is not None and entry.token_seconds is None and any(type(each) in _TOKENS for each in events):
            entry.token_seconds = time.monotonic() - entry.began
        for event in events:
            if type(event) is Note:
                self._add_note(event)
            elif type(event) is InvocationStarted:
                if entry is not None:
                    entry.add_call(event)
            elif (type(event) is InvocationEnded and event.arguments is None) or type(event) is InvocationIncomplete:
                _log_malformed_arguments(self.backend_name, event)

    def _add_note(self, note: Note) -> None:
        if self.log_entry is not None:
            self.log_entry.add_note(note)
        if note.code in _TOLD:
            self.alerts.setdefault(note.code, []).append(note.text)
            log.log(logging.WARNING if note.kind == "alert" else logging.INFO, "%s: %s", self.backend_name, note.text)

    def set_end(self, events: Sequence[Event]) -> None:
        """Record the end of the reply if the batch contains it."""
        last = events[-1]
        if isinstance(last, (ReplyEnded, ReplyFailed)):
            self.end = last
            if isinstance(last, ReplyEnded) and last.reason == "length" and not self.has_answer:
                self._add_note(_CUT_THOUGHT)
            self.usage = next((event for event in reversed(events) if isinstance(event, Usage)), self.usage)


class ReplyObserver(ExchangeObserver):
    """Writes a backend's answer into the record, and its bytes into the log of requests."""

    passes_refusals = True

    def __init__(self, record: ReplyRecord, on_frame: Callable[[str], None] | None = None) -> None:
        self._record = record
        self._add: Callable[[bytes], None] | None = None
        self._on_frame = on_frame

    def on_answer(self, model: HttpModel, prepared: PreparedRequest, plan: Plan, response: HttpResponse) -> None:
        record = self._record
        record.status, record.headers = response.status, response.headers
        if response.status >= 400:
            record.retry_after = read_retry_after(response.headers, datetime.now(UTC))
        if record.log_entry is not None:
            self._add = record.log_entry.open_reply(model, prepared, plan, response, record=record)

    def open_passage(self, wire: Wire, context: DecodeContext, request: Request) -> PassThrough | None:
        if self._record.view is None or self._on_frame is not None:
            return None
        return PassThrough(wire, context, self._record.view, has_tools=bool(request.tools))

    def on_bytes(self, data: bytes) -> None:
        if self._add is not None:
            self._add(data)

    def on_frame(self, data: str) -> None:
        if self._on_frame is not None:
            self._on_frame(data)


class ReplyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to an endpoint: one body of one client."""

    front: Frontend
    body: Mapping[str, Any]
    owner: str = ""
    size: int = 0
    """Approximate bytes of the body."""
    token: str = ""
    """The client's key, if it may be forwarded to a backend."""
    beta: str = ""
    """The client's `anthropic-beta` header."""
    compat_events: bool = False
    budget: BudgetShare | None = None
    """The budget that is charged for more than the body, such as a stored conversation."""
    memory: ConnectionMemory | None = None
    """The WebSocket's memory of its last reply."""
    echo: Mapping[str, Any] | None = None
    """Fields that a Responses reply repeats, if they differ from the body's."""
    filters: tuple[Filter, ...] = ()
    on_finished: OnFinished | None = None


def read_betas(front: str, headers: Headers) -> str:
    """Return a client's `anthropic-beta` headers as one value. Only Anthropic's own wire has them."""
    return ",".join(headers.getlist(BETA)) if front == "messages" else ""


class Exchange(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A decoded request, and the path of its reply."""

    front: Frontend
    request: Request
    body: Mapping[str, Any]
    echo: Mapping[str, Any]
    identifier: str
    record: ReplyRecord
    source: Callable[[ReplyRecord], Batches]
    """Returns the reply's events. It is called once."""
    filters: tuple[Filter, ...] = ()
    """Filters of the events. The first is nearest to the backend."""
    on_finished: OnFinished | None = None
    """Called with a whole Responses body before the client has all of it. It may change the body's `store`."""
    compat_events: bool = False
    strict: bool = False
    """True if the request is refused when any part of it would be lost."""
    created: int = msgspec.field(default_factory=lambda: int(time.time()))

    def batches(self) -> Batches:
        batches = self.source(self.record)
        for filter_batches in self.filters:
            batches = filter_batches(self, batches)
        return batches

    def encoder(self) -> Stage[Event, Payload]:
        return self.front.encoder(body=self.echo, compat_events=self.compat_events, **self._reply_fields())

    def framer(self) -> Framer:
        return self.front.framer(self.body)

    @property
    def content_type(self) -> str:
        return self.front.content_type(self.body)

    def encode_whole(self, events: list[Event]) -> dict[str, Any]:
        options = self.front.encoder_options(self.echo) if self.front.name == "responses" else {}
        return self.front.wire.encode_response(events, **self._reply_fields(), **options)

    def encode_failure(self, failed: ReplyFailed) -> tuple[int, dict[str, Any]]:
        """Return the status and body for a reply that did not begin."""
        status, _ = self.front.wire.encode_error(failed)
        # Some servers answer an invalid request with 500, and clients would retry forever.
        if self.record.status == _OVERLOADED and self.front.name != "messages":
            status = 429 if failed.code == "rate_limit_exceeded" else 503
        elif self.record.status >= 400 and (failed.party != "caller" or self.record.status < 500):
            status = self.record.status
        elif failed.party == "provider" and failed.code in _BACKEND_STATUSES:
            status = _BACKEND_STATUSES[failed.code]
        else:
            # Anthropic's api_error is a 500, but it was not the gateway that failed.
            status = STATUSES.get(failed.code, 502 if status == 500 else status)
        return status, self.front.error(failed, status)

    def headers(self) -> dict[str, str]:
        """Return the answer's headers, except its content type."""
        record = self.record
        passed = [(name.lower(), value) for name, value in record.headers.items() if _PASSED_HEADERS.fullmatch(name)]
        headers = {name: record.redactor.text(value)[:_MAX_VALUE] for name, value in passed[:_MAX_PASSED] if value}
        headers.setdefault("x-request-id", self.identifier)
        if record.retry_after is not None:
            headers["retry-after"] = str(round(min(max(1.0, record.retry_after), _MAX_RETRY_AFTER)))
        if names := [*record.dropped, *record.lost_fields]:
            headers["x-callboard-dropped"] = dropped_header(names)
        headers |= {_TOLD[code]: dropped_header(texts) for code, texts in record.alerts.items()}
        return headers

    def _reply_fields(self) -> dict[str, Any]:
        return {
            "identifier": self.identifier,
            "model": self.request.model,
            "created": self.created,
            "request": self.request,
        }


Filter: TypeAlias = Callable[[Exchange, Batches], Batches]
OnFinished: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
MakeExchange: TypeAlias = Callable[[ReplyRequest], Awaitable[Exchange]]


def dropped_header(dropped: list[str]) -> str:
    """Return the list as a header value: printable ASCII, at most 2,000 characters."""
    text = ", ".join([name.replace(",", ";") for name in dropped])
    safe = text.encode("ascii", "replace").decode()
    return "".join([each if each.isprintable() else "?" for each in safe])[:_MAX_DROPPED]

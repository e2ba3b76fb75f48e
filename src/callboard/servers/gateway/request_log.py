"""The last requests of this process, in memory, so that a person can look at them.

While a request is answered, the log keeps only references: to the bytes received and sent, and to the reader of a
backend's bytes. Nothing is decoded, counted or formatted until somebody looks (`request_view`). The events are then
read again from the bytes. To keep the events would cost a long stream a tenth of its time: thousands of live objects
take memory that the next reply cannot use.

Laws: the log holds at most `max_requests` and about `max_bytes`, and drops the oldest first. A dropped request takes no
more memory while it is answered. No header is kept except the client's User-Agent and the name of its session, and of a key
only its name. A key that a client sent is masked if a backend repeats it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from callboard.core import InvocationStarted, Note, ReplyFailed, Request
from callboard.modes import Plan
from callboard.providers.http_model import NO_HEADERS, HttpModel, PreparedRequest
from callboard.providers.transport import HttpResponse
from callboard.servers.gateway.auth import short_owner
from callboard.servers.gateway.exchange import Exchange, ReplyRecord
from callboard.servers.gateway.redaction import Redactor, is_placeholder, select_declarations
from callboard.servers.gateway.sessions import RequestSession, SessionLog, read_body

MAX_REQUESTS: Final = 500
MAX_BYTES: Final = 64 * 1024 * 1024
"""Approximate maximum bytes of all requests of the log."""
MAX_BODY: Final = 4 * 1024 * 1024
"""Maximum bytes to keep of one request's body, and of one reply in each direction."""
_MAX_NAME: Final = 200
"""Maximum characters of a name that a client chose."""
_BODY_FACTOR: Final = 4
"""Memory per byte of a body: for the body, its canisters, and the body made from the canisters."""
_MAX_NOTES: Final = 100
_ENTRY_BYTES: Final = 2048


class CutBytes(msgspec.Struct, eq=False):
    """Bytes as they arrived, up to a limit."""

    limit: int = MAX_BODY
    chunks: list[bytes] = []
    size: int = 0
    """Number of bytes that arrived, including those beyond the limit."""

    def add(self, chunk: bytes) -> int:
        """Add bytes, and return how many of them are kept."""
        count = min(len(chunk), max(0, self.limit - self.size))
        self.size += len(chunk)
        if count:
            self.chunks.append(chunk[:count])
        return count

    @property
    def is_cut(self) -> bool:
        return self.size > self.limit

    def join(self) -> bytes:
        return b"".join(self.chunks)


class RecordedReply(msgspec.Struct, kw_only=True, eq=False):
    """One answer of a backend as it arrived, with everything needed to read it again."""

    backend: str
    redactor: Redactor
    """Masks the secrets of the settings in what is shown."""
    model: HttpModel
    prepared: PreparedRequest
    plan: Plan
    status: int
    content_type: str
    body: CutBytes

    @property
    def is_stream(self) -> bool:
        return self.status == 200 and self.content_type == "text/event-stream"


class LoggedRequest(msgspec.Struct, kw_only=True, eq=False):
    """One request, perhaps not yet answered. Unknown fields are empty."""

    identifier: str
    number: int
    """Sequence number in the log."""
    front: str
    client: str = ""
    """The client's User-Agent."""
    at: float
    """Time of arrival, in seconds since 1970."""
    began: float = msgspec.field(default_factory=time.monotonic)
    again_of: str = ""
    """Identifier of the request that the board repeated with this one."""
    variant: str = ""
    """The difference from the repeated request, such as `mode validated`."""
    owner: str = ""
    """Owner of the request: the name of a key, or `client-` and a digest."""
    model: str = ""
    """The client's name for the model."""
    body: bytes = b""
    """The client's body as it arrived, up to `MAX_BODY` bytes."""
    body_size: int = 0
    """Bytes of the whole body."""
    declarations: Mapping[str, Any] = {}
    """Fields of the body that may hold the client's credentials."""
    request: Request | None = None
    """The whole conversation, even if the body has only its end."""
    replies: list[RecordedReply] = []
    notes: list[Note] = []
    """Notes on changes to the reply. All other events are read again from the bytes of the replies."""
    tools: list[str] = []
    """Names of the tools that the reply calls."""
    failed_calls: int = 0
    """Number of these calls that failed, by the results in later requests."""
    recovered: int = 0
    """Number of calls found in text."""
    session: RequestSession | None = None
    """The session of the request. None if it is not known yet, or if the board sent the request."""
    answer: CutBytes = msgspec.field(default_factory=CutBytes)
    """The body of the answer that the client got."""
    status: int = 0
    first_at: float | None = None
    """Seconds from arrival to the first byte for the client."""
    token_seconds: float | None = None
    """Seconds from arrival to the first text, reasoning or call of the reply."""
    seconds: float | None = None
    """Seconds from arrival to the end. None until the request is answered."""
    record: ReplyRecord = msgspec.field(default_factory=lambda: ReplyRecord(front=""))
    """The record of the reply. At the end the client's key and the backend's headers are removed from it."""
    failure: str = ""
    """Code of an error of the gateway itself."""
    is_gone: bool = False
    """True if the log has dropped the request."""
    cost: int = _ENTRY_BYTES
    """Approximate bytes that the request holds."""
    on_cost: Callable[[LoggedRequest, int], None] = lambda entry, cost: None
    view: object = None
    """The rendered row of a finished request, cached by `request_view`."""

    @property
    def is_live(self) -> bool:
        return self.seconds is None

    @property
    def key(self) -> str:
        """The name of the gateway's key. For a client without a key, the beginning of a digest."""
        return short_owner(self.owner)

    def set_body(self, data: bytes) -> None:
        if self.is_gone:
            return
        self.body, self.body_size = data[:MAX_BODY], len(data)
        self.on_cost(self, _BODY_FACTOR * len(self.body))

    def set_exchange(self, exchange: Exchange) -> None:
        if self.is_gone:
            return
        self.request, self.record = exchange.request, exchange.record
        self.declarations = select_declarations(exchange.body)
        self.model = exchange.request.model[:_MAX_NAME]
        exchange.record.log_entry = self

    def open_reply(
        self, model: HttpModel, prepared: PreparedRequest, plan: Plan, response: HttpResponse, *, record: ReplyRecord
    ) -> Callable[[bytes], None]:
        """Add a backend's answer, and return a function that adds bytes to its body."""
        body = CutBytes(MAX_BODY)
        if not self.is_gone:
            reply = RecordedReply(
                backend=record.backend_name,
                redactor=record.redactor,
                model=model,
                prepared=prepared,
                plan=plan,
                status=response.status,
                content_type=response.content_type,
                body=body,
            )
            self.replies.append(reply)

        def add(chunk: bytes) -> None:
            if not self.is_gone:
                self.on_cost(self, body.add(chunk))

        return add

    def add_note(self, note: Note) -> None:
        if len(self.notes) < _MAX_NOTES:
            self.notes.append(note)

    def add_call(self, call: InvocationStarted) -> None:
        name = call.name[:_MAX_NAME]
        if len(self.tools) < _MAX_NOTES:
            self.tools.append(name)
        self.recovered += call.found_in != "wire"
        if self.session is not None:
            self.session.add_call(self.identifier, call.identifier, name)

    def add_sent(self, data: bytes) -> None:
        if self.first_at is None and data:
            self.first_at = time.monotonic() - self.began
        if not self.is_gone:
            self.on_cost(self, self.answer.add(data))

    def finish(self, status: int, seconds: float, token: str = "") -> None:
        """Finish an answered request. `token` is the client's key, if a backend may have received it."""
        # A viewer on another thread may look meanwhile. It sees an unfinished request, and masks the key itself, until
        # the last line below.
        self.record.log_entry, self.record.headers = None, NO_HEADERS
        if token and not is_placeholder(token):
            self._mask(token)
        self.status, self.seconds = status, seconds
        if self.session is not None:
            self.session.add_reply(self)
        self.record.token = self.record.beta = ""

    def clear(self) -> None:
        self.request = self.view = None
        self.record, self.declarations = ReplyRecord(front=self.front), {}
        self.body, self.answer, self.replies, self.notes = b"", CutBytes(), [], []

    def _mask(self, token: str) -> None:
        """Mask the client's own key in the backend's text. A refusal may repeat the key in another spelling."""
        key = token.encode(errors="surrogatepass")
        bodies = [*[reply.body for reply in self.replies], self.answer]
        end = self.record.end
        if not isinstance(end, ReplyFailed) and not any(key in each.join() for each in bodies):
            return
        mask = Redactor([token]).text
        for each in bodies:
            each.chunks = [mask(each.join().decode(errors="surrogateescape")).encode(errors="surrogateescape")]
        if isinstance(end, ReplyFailed):
            self.record.end = replace(end, message=mask(end.message), excerpt=mask(end.excerpt))


class RequestLog:
    """The requests of one process, in the order of arrival.

    Args:
        max_requests: Maximum requests in the log.
        max_bytes: Approximate maximum bytes. A single request that exceeds it is dropped too.
    """

    def __init__(self, max_requests: int = MAX_REQUESTS, max_bytes: int = MAX_BYTES) -> None:
        self.sessions = SessionLog()
        self.name = secrets.token_hex(3)
        """Prefix of the identifiers, which makes them unique across processes and restarts."""
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._entries: dict[str, LoggedRequest] = {}
        self._count = 0
        self._cost = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def cost(self) -> int:
        return self._cost

    def begin(
        self,
        front: str,
        client: str = "",
        owner: str = "",
        *,
        session: str = "",
        again_of: str = "",
        variant: str = "",
    ) -> LoggedRequest:
        """Add a request to this front, from a client that is allowed to send it. `session` is its own session's name."""
        self._count += 1
        entry = LoggedRequest(
            at=time.time(),
            identifier=f"{self.name}-{self._count}",
            number=self._count,
            front=front,
            client=client[:_MAX_NAME],
            owner=owner,
            again_of=again_of,
            variant=variant,
            on_cost=self._add_cost,
        )
        if session:
            entry.session = self.sessions.join(entry, session)
        self._entries[entry.identifier] = entry
        self._cost += entry.cost
        if len(self._entries) > self._max_requests or self._cost > self._max_bytes:
            self._evict()
        return entry

    def set_exchange(self, entry: LoggedRequest, exchange: Exchange) -> None:
        """Add what a client's request says: its conversation, its session, and the results of earlier calls."""
        entry.set_exchange(exchange)
        if entry.session is None:
            entry.session = self.sessions.join(entry, read_body(exchange.body), exchange.request)
        for identifier in entry.session.take_failures(exchange.request):
            if (earlier := self.get(identifier)) is not None:
                earlier.failed_calls += 1
                earlier.view = None

    def drop(self, entry: LoggedRequest) -> None:
        """Remove a request that another entry is about."""
        if self._entries.pop(entry.identifier, None) is not None:
            self._cost -= entry.cost
            entry.is_gone = True
            entry.clear()
        if entry.session is not None:
            entry.session.turns -= 1
            entry.session = None

    def get(self, identifier: str) -> LoggedRequest | None:
        return self._entries.get(identifier)

    def newest(self) -> Iterator[LoggedRequest]:
        return reversed(self._entries.values())

    def _add_cost(self, entry: LoggedRequest, cost: int) -> None:
        if not entry.is_gone:
            entry.cost += cost
            self._cost += cost
            if self._cost > self._max_bytes:
                self._evict()

    def _evict(self) -> None:
        while self._entries and (len(self._entries) > self._max_requests or self._cost > self._max_bytes):
            entry = self._entries.pop(next(iter(self._entries)))
            self._cost -= entry.cost
            entry.is_gone = True
            if entry.is_live:  # the log alone held a finished request
                entry.clear()

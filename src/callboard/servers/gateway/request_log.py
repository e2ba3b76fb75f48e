"""The last requests of this process, in memory, so that a person can look at them.

While a request is answered, only references are kept: to the bytes that came and went, and to what reads the backend's
bytes. Nothing is decoded, counted or written as text before somebody looks (`request_view`); the events are read again
then (`replay`). To keep the events themselves would cost a long stream a tenth of its time: thousands of objects that are
not freed at once are memory that the next reply cannot use.

Laws: at most `max_requests` and about `max_bytes` are held, the oldest go first, and a request that has gone takes no
more room while it is still answered. No header of a client or a backend is kept but the client's name for itself, and
of a key only the name; a key that a client sent is masked where a backend repeated it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from callboard.core import Note, ReplyFailed, Request
from callboard.modes import Plan
from callboard.providers.http_model import NO_HEADERS, HttpModel, PreparedRequest
from callboard.providers.transport import HttpResponse
from callboard.servers.gateway.auth import short_owner
from callboard.servers.gateway.exchange import Exchange, ReplyRecord
from callboard.servers.gateway.redaction import Redactor, is_placeholder, select_declarations

MAX_REQUESTS: Final = 500
MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes that all requests of the log hold, as far as they are counted."""
MAX_BODY: Final = 4 * 1024 * 1024
"""Bytes of one request's body that are kept, and of one reply, in each direction."""
_MAX_NAME: Final = 200
"""Characters of a name that a client chose."""
_BODY_FACTOR: Final = 4
"""What a body takes for each of its bytes: itself, the canisters made of it, and the body made of these."""
_MAX_NOTES: Final = 100
_ENTRY_BYTES: Final = 2048


class CutBytes(msgspec.Struct, eq=False):
    """Bytes as they came, up to a limit."""

    limit: int = MAX_BODY
    chunks: list[bytes] = []
    size: int = 0
    """Of all that came, also of what was not kept."""

    def add(self, chunk: bytes) -> int:
        """How many of these bytes are kept."""
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
    """One answer of a backend as it came, and what is needed to read it again."""

    backend: str
    redactor: Redactor
    """Takes the secrets of the settings out of what is shown."""
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
    """One request, perhaps still being answered. What is not known (yet) is empty."""

    identifier: str
    number: int
    """Requests of a log are counted up."""
    front: str
    client: str = ""
    """What the client calls itself: its User-Agent."""
    at: float
    """Seconds since 1970."""
    began: float = msgspec.field(default_factory=time.monotonic)
    again_of: str = ""
    """The request that this one asks again, from the board."""
    variant: str = ""
    """What is different in it, such as `mode validated`."""
    owner: str = ""
    """Who asks: the name of a key, or `client-` and a digest."""
    model: str = ""
    """As the client calls it."""
    body: bytes = b""
    """As it came; its beginning, where it is larger than `MAX_BODY`."""
    body_size: int = 0
    """Of all that came."""
    declarations: Mapping[str, Any] = {}
    """Fields of the body that may hold credentials of the client."""
    request: Request | None = None
    """The whole conversation, also where the body has its end only."""
    replies: list[RecordedReply] = []
    notes: list[Note] = []
    """What was done on the way. All other events are read again from the replies' bytes."""
    recovered: int = 0
    """Calls that were found in text."""
    answer: CutBytes = msgspec.field(default_factory=CutBytes)
    """The body of what the client got."""
    status: int = 0
    first_at: float | None = None
    """Seconds from the beginning to the first byte for the client."""
    seconds: float | None = None
    """Seconds to the end; None while it is answered."""
    record: ReplyRecord = msgspec.field(default_factory=lambda: ReplyRecord(front=""))
    """What happens while it is answered. At the end the client's key and the backend's headers are taken out."""
    failure: str = ""
    """The code of a refusal of the gateway itself."""
    is_gone: bool = False
    """No longer in the log."""
    cost: int = _ENTRY_BYTES
    """Bytes that it holds, as far as they are counted."""
    on_cost: Callable[[LoggedRequest, int], None] = lambda entry, cost: None
    view: object = None
    """What was rendered of it since it ended: `request_view` keeps it here."""

    @property
    def is_live(self) -> bool:
        return self.seconds is None

    @property
    def key(self) -> str:
        """The name of the gateway's key; of a client without one, the beginning of a digest."""
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
        """A backend answers. What is returned takes the bytes of its body."""
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

    def add_sent(self, data: bytes) -> None:
        if self.first_at is None and data:
            self.first_at = time.monotonic() - self.began
        if not self.is_gone:
            self.on_cost(self, self.answer.add(data))

    def finish(self, status: int, seconds: float, token: str = "") -> None:
        """The request has been answered. `token` is the key that the client sent, if a backend may have got it."""
        # A viewer on a thread may look in between: it sees a request that is being answered until all is in its place,
        # and masks the key itself until nothing holds it.
        self.record.log_entry, self.record.headers = None, NO_HEADERS
        if token and not is_placeholder(token):
            self._mask(token)
        self.status, self.seconds = status, seconds
        self.record.token = self.record.beta = ""

    def clear(self) -> None:
        self.request = self.view = None
        self.record, self.declarations = ReplyRecord(front=self.front), {}
        self.body, self.answer, self.replies, self.notes = b"", CutBytes(), [], []

    def _mask(self, token: str) -> None:
        """Take the client's own key out of what a backend said: a refusal may repeat it, and spell it otherwise."""
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
    """The requests of one process, in the order in which they began.

    Args:
        max_requests: How many are held.
        max_bytes: About how many bytes they may hold; a request that takes more alone is let go of as well.
    """

    def __init__(self, max_requests: int = MAX_REQUESTS, max_bytes: int = MAX_BYTES) -> None:
        self.name = secrets.token_hex(3)
        """Begins the identifiers, so that those of another process, or of one before a restart, are others."""
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
        self, front: str, client: str = "", owner: str = "", *, again_of: str = "", variant: str = ""
    ) -> LoggedRequest:
        """A request has come on this front, of a client that may ask."""
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
        self._entries[entry.identifier] = entry
        self._cost += entry.cost
        if len(self._entries) > self._max_requests or self._cost > self._max_bytes:
            self._evict()
        return entry

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
            if entry.is_live:  # of one that has ended nothing but the log held anything
                entry.clear()

"""The gateway's traffic for the board: the requests of its log, its backends, and repeating a request.

Laws: a repeated request goes through the gateway's own backends, like every request, and appears in the log. It counts
neither against a backend's breaker nor as a client's request, but it counts toward the total budget. At most
`MAX_REPEATED` repeated requests are open.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import Final, Self

from msgspec.structs import replace

from callboard.core import Request
from callboard.dialects import get_dialect
from callboard.errors import CallerError
from callboard.modes import get_mode
from callboard.servers.gateway.abandoned_replies import Message
from callboard.servers.gateway.backend import Backend
from callboard.servers.gateway.dispatch import stream_reply
from callboard.servers.gateway.exchange import Exchange, ReplyRecord
from callboard.servers.gateway.frontends import FRONTENDS
from callboard.servers.gateway.gateway import Gateway
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.request_body import run_in_thread_if_large
from callboard.servers.gateway.request_log import LoggedRequest, RequestLog
from callboard.servers.gateway.request_view import (
    decode_body,
    make_vector,
    mask_reply,
    read_canisters,
    read_events,
    view_dialect,
    view_dialects,
    view_request,
    view_row,
)
from callboard.servers.gateway.response_stream import respond
from callboard.servers.gateway.sessions import RequestSession
from callboard.servers.gateway.spending import ReplyCosts
from callboard.servers.gateway.traffic_values import (
    PAGE_SIZE,
    KeptReply,
    RepeatOrder,
    ReplyReading,
    RequestRow,
    RequestView,
    RowFilter,
    RowPage,
)

log = logging.getLogger("callboard.gateway")

MAX_REPEATED: Final = 4
"""Maximum repeated requests that are open at once."""
_MAX_CURSOR: Final = 20
"""Maximum characters of a cursor."""


class Traffic:
    """The traffic of one process. Leaving its `async with` cancels repeated requests."""

    def __init__(self, gateway: Gateway, request_log: RequestLog) -> None:
        self._gateway = gateway
        self._log = request_log
        self._repeated: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._repeated:
            task.cancel()
        await asyncio.gather(*self._repeated, return_exceptions=True)

    async def page(self, row_filter: RowFilter, before: str = "", limit: int = PAGE_SIZE) -> RowPage:
        """Return a page of the list. `before` is the cursor of the page before."""
        return select_page(await self._read_rows(), row_filter, before, limit)

    async def sessions(self, limit: int = PAGE_SIZE) -> list[RequestSession]:
        """Return the sessions with the latest requests."""
        await self._read_rows()
        return self._log.sessions.newest()[:limit]

    async def _read_rows(self) -> list[RequestRow]:
        """Return the rows of the log, newest first. Each session gets its first question."""
        rows: list[RequestRow] = []
        for entry in list(self._log.newest())[::-1]:
            if entry.view is None:
                await asyncio.sleep(0)  # let other tasks run before each new row
            if not entry.is_gone:
                row = await run_in_thread_if_large(entry.cost, partial(view_row, entry))
                rows.append(row)
                if (session := entry.session) is not None:
                    session.question = session.question or row.question
        return rows[::-1]

    def find_session(self, identifier: str) -> RequestSession | None:
        return self._log.sessions.get(identifier)

    async def turns(self, identifier: str) -> tuple[RequestRow, ...]:
        """Return the requests of a session that are still in the log, in order."""
        return (await self.page(RowFilter(session=identifier), limit=len(self._log))).rows[::-1]

    async def view(self, identifier: str) -> RequestView:
        """Return one request. Raises CallerError if it is not in the log."""
        entry = self._entry(identifier)
        return await run_in_thread_if_large(entry.cost, partial(view_request, entry))

    async def read_as(self, identifier: str, place: int, dialect: str) -> ReplyReading:
        """Return what another dialect would have read from answer number `place`. Raises CallerError."""
        entry = self._entry(identifier)
        return await run_in_thread_if_large(entry.cost, partial(view_dialect, entry, place, dialect))

    async def find_dialects(self, identifier: str, place: int) -> tuple[str, ...]:
        """Return the dialects that find a call in answer number `place`."""
        return await asyncio.to_thread(view_dialects, self._entry(identifier), place)

    @property
    def backends(self) -> Sequence[Backend]:
        return self._gateway.backends

    async def kept_reply(self, identifier: str) -> KeptReply:
        """Return the last complete reply, to make a test of it. Raises CallerError if there is none."""
        entry = self._entry(identifier)
        request = self._conversation(entry)
        reply = next((each for each in reversed(entry.replies) if each.status == 200), None)
        if reply is None or entry.is_live or reply.body.is_cut:
            raise CallerError("there is no complete reply for a test", path=identifier)
        canisters = read_canisters(read_events(mask_reply(reply)))
        vector = make_vector(reply, f"request {identifier}")
        return KeptReply(identifier, (*request.canisters, *canisters), request.tools, vector)

    async def repeat(self, identifier: str, order: RepeatOrder) -> str:
        """Repeat a request, with changes. The reply arrives later.

        Returns:
            The identifier of the new request, which is in the log immediately.

        Raises:
            CallerError: The request cannot be repeated with these changes.
        """
        entry = self._entry(identifier)
        request = replace(self._conversation(entry), model=order.model or entry.model)
        backend, name = await self._choose(request, entry, order)
        spending = self._gateway.spending
        if len(self._repeated) >= MAX_REPEATED:
            hint = "wait until one has its reply"
            raise CallerError(f"{MAX_REPEATED} repeated requests are already open", path=identifier, hint=hint)
        mode = get_mode(order.mode).name if order.mode else ""
        variant = backend.variant(mode, get_dialect(order.dialect).name if order.dialect else "")
        repeated = self._log.begin(
            entry.front, "the board", entry.owner, again_of=identifier, variant=str(order) or "the same"
        )
        repeated.set_body(entry.body)
        front, fields = FRONTENDS[entry.front], decode_body(entry.body)
        exchange = Exchange(
            front=front,
            request=request,
            body=fields,
            echo=fields,
            identifier=front.prefix + secrets.token_hex(16),
            record=ReplyRecord(
                front=front.name,
                owner=entry.owner,
                costs=ReplyCosts("", spending if spending.has_budget("") else None, len(entry.body)),
            ),
            source=partial(stream_reply, [(variant, name)], request),
        )
        repeated.set_exchange(exchange)
        task = asyncio.get_running_loop().create_task(self._answer(exchange, repeated))
        self._repeated.add(task)
        task.add_done_callback(self._repeated.discard)
        return repeated.identifier

    async def _answer(self, exchange: Exchange, entry: LoggedRequest) -> None:
        status = 0

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                entry.add_sent(message["body"])

        try:
            await respond(exchange, _stay, send, self._gateway.settings.heartbeat)
        except HttpError as error:
            entry.failure, status = error.failure.code, error.status
        except Exception:
            entry.failure, status = "internal_error", 500
            log.exception("a repeated request failed")
        finally:
            entry.finish(status, monotonic() - entry.began)

    async def _choose(self, request: Request, entry: LoggedRequest, order: RepeatOrder) -> tuple[Backend, str]:
        try:
            self._gateway.check_model_name(request.model)
            await self._gateway.spending.check("")
            candidates = self._gateway.spending.select_priced(self._gateway.candidates(request, entry.owner), "")
        except HttpError as error:
            raise CallerError(error.failure.message, path="model") from None
        backend_name = order.backend or (entry.record.backend_name if request.model == entry.model else "")
        chosen = next((each for each in candidates if each[0].name == backend_name), candidates[0])
        if order.backend and chosen[0].name != order.backend:
            raise CallerError(f"{order.backend} does not serve {request.model}", path="backend")
        if chosen[0].forwards_client_key and entry.owner:
            hint = "set a key for the backend (key_variable)"
            raise CallerError("this backend gets the clients' own keys, which are not stored", hint=hint)
        return chosen

    def _entry(self, identifier: str) -> LoggedRequest:
        entry = self._log.get(identifier)
        if entry is None:
            hint = "the log has only the last requests of a running gateway"
            raise CallerError("this request is no longer kept", path=identifier[:100], hint=hint)
        return entry

    def _conversation(self, entry: LoggedRequest) -> Request:
        if entry.request is None:
            raise CallerError("the gateway refused this request before it read a conversation", path=entry.identifier)
        return entry.request


def select_page(rows: Sequence[RequestRow], row_filter: RowFilter, before: str, limit: int) -> RowPage:
    """Return a page of rows, newest first. `before` is the cursor of the page before."""
    last = int(before) if before.isdecimal() and len(before) < _MAX_CURSOR else None
    chosen = [row for row in rows if (last is None or row.number < last) and row_filter.matches(row)]
    shown = tuple(chosen[:limit])
    cursor = str(shown[-1].number) if len(chosen) > limit else ""
    models, clients = {row.model for row in rows if row.model}, {row.client_name for row in rows if row.client_name}
    return RowPage(shown, cursor, tuple(sorted(models)), tuple(sorted(clients)))


async def _stay() -> Message:
    await asyncio.Event().wait()
    raise AssertionError

"""`POST /agui`: a run of an agent as AG-UI 1.0 over HTTP, RunAgentInput in and server-sent events out.

Who may ask, from which web pages, and how much, is decided as for all of the gateway's endpoints.

Laws: what is refused is refused before the run begins, with a status and the place; what fails behind that is an event;
a client that leaves stops nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Final, Self

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from callboard.errors import CallboardError, CallerError
from callboard.servers.agui.events import AguiEvent, encode_event
from callboard.servers.agui.run_input import read_run_input
from callboard.servers.agui.service import AguiService
from callboard.servers.agui.thread_runs import AguiRun
from callboard.servers.gateway.auth import Authenticator, read_token
from callboard.servers.gateway.frontends import frontends
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.request_body import BudgetShare, ByteBudget, read_body, read_json
from callboard.servers.gateway.response_stream import send_json
from callboard.servers.gateway.settings import GatewayLimits
from callboard.servers.listening import call_at_signals

log = logging.getLogger("callboard.agui")

PATH: Final = "/agui"
HEARTBEAT: Final = b": the run goes on\n\n"
_HEADERS: Final = {"cache-control": "no-cache", "x-accel-buffering": "no"}
_LOOKS: Final = 40
"""Looks at the store, a quarter of a second each, until a silent stream says that it goes on."""


class AguiExtension:
    """What answers at `/agui`, for a server that enters it as an asynchronous context manager while it serves.

    Args:
        service: Runs the agents.
        authenticator: Says who may ask.
        limits: Of one request.
        budget: The bytes of all requests that are read at once.
        origins: Web pages whose browsers are told that they may ask, where the server itself tells none.
    """

    def __init__(
        self,
        service: AguiService,
        authenticator: Authenticator,
        limits: GatewayLimits,
        budget: ByteBudget,
        origins: Sequence[str] = (),
    ) -> None:
        self._service = service
        self._authenticator = authenticator
        self._limits = limits
        self._budget = budget
        self._origins = origins
        self._closing = asyncio.Event()
        """Set when the server is told to stop: a run may take longer than anybody wants to wait."""

    async def __aenter__(self) -> Self:
        await self._service.__aenter__()
        call_at_signals(self._closing.set)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._service.__aexit__(kind, error, at)

    def routes(self) -> Sequence[BaseRoute]:
        """Of the first agent, and of each by its name."""
        endpoint: ASGIApp = self
        methods = ["POST"]
        if self._origins:
            methods += ["OPTIONS"]
            endpoint = CORSMiddleware(self, allow_origins=self._origins, allow_methods=["POST"], allow_headers=["*"])
        return [Route(path, endpoint, methods=methods) for path in (PATH, f"{PATH}/{{agent}}")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with the run that it asks for."""
        headers = Headers(scope=scope)
        try:
            token = read_token(headers)
            with (caller := self._authenticator.authenticate(headers, token)):
                owner = self._authenticator.owner(caller, token)
                run = await self._begin(Request(scope).path_params.get("agent", ""), owner, headers, receive)
                response = StreamingResponse(
                    stream_frames(self._service, run, self._closing), headers=_HEADERS, media_type="text/event-stream"
                )
                await response(scope, receive, send)
        except HttpError as error:
            await send_json(send, error.status, frontends()["chat"].error_body(error), error.headers)

    async def _begin(self, agent: str, owner: str, headers: Headers, receive: Receive) -> AguiRun:
        with BudgetShare(self._budget) as share:
            data = await read_body(headers, receive, self._limits, share)
            body = await read_json(data, self._limits)
            try:
                run_input = read_run_input(body, self._limits.items)
                return await self._service.begin(agent, owner, run_input)
            except CallerError as error:
                code = "not_found" if error.path == "agent" else "invalid_request"
                hint = f"; {error.hint}" if error.hint else ""
                raise HttpError(code, f"{error.message}{hint}", path=error.path) from None
            except CallboardError as error:
                log.error("the store failed: %s", error)  # noqa: TRY400  # it says all that there is
                raise HttpError("store_unavailable", "the store of jobs does not answer") from None


async def stream_frames(service: AguiService, run: AguiRun, closing: asyncio.Event) -> AsyncGenerator[bytes]:
    """The frames of a run. What fails is its last event, since the status was sent already: so does a server that stops."""
    silent = 0
    try:
        async with aclosing(service.follow(run)) as followed:
            async for events in followed:
                silent = 0 if events else silent + 1
                if events:
                    yield _frame(events)
                elif silent % _LOOKS == 0:
                    yield HEARTBEAT
                if closing.is_set():
                    message = "the server stops; the job goes on when it is back"
                    yield _frame(run.encoder.fail(message, "server_stopped"))
                    return
    except Exception:
        log.exception("a run could not be followed; its job %s goes on", run.job.id)
        yield _frame(run.encoder.fail("the run cannot be followed; its job goes on", "internal_error"))


def _frame(events: list[AguiEvent]) -> bytes:
    return b"".join([b"data: %b\n\n" % encode_event(each) for each in events])

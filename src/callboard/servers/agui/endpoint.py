"""`POST /agui`: a run of an agent as AG-UI 1.0 over HTTP, RunAgentInput in and server-sent events out.

Authentication, allowed web pages and limits are the same as for the gateway's other endpoints.

Laws: requests are refused before the run begins, with a status and a path. Later failures are events. A client that
disconnects stops nothing.

The service of an AG-UI server: its agents, and the worker that runs their jobs in this process.

Law: a job that another process left is taken over, including jobs from before a restart of this server.

`follow_job` yields a job as AG-UI events until the job has ended or waits for a person.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from callboard.agent import Agent
from callboard.errors import CallboardError, CallerError
from callboard.jobs.database import Database
from callboard.jobs.handle import follow_events
from callboard.jobs.job import DurableJob, JobKind, JobSummary
from callboard.jobs.store import DurableStore
from callboard.jobs.streams import JobStreams
from callboard.jobs.worker import open_worker
from callboard.servers.agui.encoder import AguiEncoder
from callboard.servers.agui.events import AguiEvent, encode_event
from callboard.servers.agui.run_input import RunInput, read_run_input
from callboard.servers.agui.runs import AguiKind, AguiRun, ThreadRuns, agui_queue
from callboard.servers.gateway.auth import Authenticator, read_token
from callboard.servers.gateway.frontends import FRONTENDS
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.request_body import BudgetShare, ByteBudget, read_body, read_json
from callboard.servers.gateway.response_stream import send_json
from callboard.servers.gateway.settings import GatewayLimits
from callboard.servers.gateway.spending import Spending
from callboard.servers.listening import call_at_signals

_FOR_PEOPLE: Final = frozenset({"approval", "question"})
"""Kinds of waiting that outlast a client's connection."""


async def follow_job(
    store: DurableStore, streams: JobStreams, encoder: AguiEncoder, job: DurableJob, after: int
) -> AsyncGenerator[list[AguiEvent]]:
    """Yield the events after entry number `after` as they are committed, and the pieces of the open reply before them.

    Empty lists show that the job is still running. `job` is the row before the run, to compute the run's own usage.
    """
    yield [*encoder.start(), *encoder.feed(job)]
    async with aclosing(follow_events(store, streams, job.id, after)) as looks:
        async for look in looks:
            events = [event for each in look.events for event in encoder.feed(each)]
            if not (look.is_whole and is_at_rest(look.job)):
                yield events
                continue
            if look.job.state == "waiting":
                for each in await store.read_approvals(job.id):
                    if not each.verdict:
                        events += encoder.feed(each)
            yield [*events, *encoder.feed(look.job), *encoder.finish()]
            return


def is_at_rest(job: JobSummary) -> bool:
    """True if a job does nothing until somebody answers."""
    return job.has_ended or (job.state == "waiting" and job.waits_for in _FOR_PEOPLE)


CONCURRENCY: Final = 32
"""Maximum jobs that one process runs at once. They wait for a model nearly all of the time."""

OpenAgents: TypeAlias = Callable[[], AbstractAsyncContextManager[Mapping[str, Agent[Any]]]]
"""Opens the agents, by their references."""


class OwnJobs:
    """The database of durable jobs, with a worker for the kinds that are added before it is opened."""

    def __init__(self, url: str = "", streams: JobStreams | None = None) -> None:
        """Takes the database, see `Database.open`, and the streams that receive the pieces of open replies."""
        self.streams = streams or JobStreams()
        self._url = url
        self._kinds: list[JobKind] = []
        self._queues: list[str] = []
        self._resources = AsyncExitStack()

    def add_kind(self, kind: JobKind, queues: Iterable[str], /) -> None:
        self._kinds.append(kind)
        self._queues += queues

    async def open(self) -> DurableStore:
        async with AsyncExitStack() as resources:
            database = await asyncio.to_thread(Database.open, self._url)
            resources.push_async_callback(asyncio.to_thread, database.close)
            store = DurableStore(database)
            worker = open_worker(store, self._kinds, self._queues, self.streams, concurrency=CONCURRENCY)
            await resources.enter_async_context(worker)
            self._resources = resources.pop_all()
        return store

    async def aclose(self) -> None:
        await self._resources.aclose()


class AguiService:
    """Begins and follows runs while it is entered as an asynchronous context manager.

    Args:
        references: Names of the agents in jobs, by their names in the URL. They are the same in all processes. The
            first agent is the default.
        open_agents: Opens the agents.
        jobs: Runs the jobs.
        spending: Budgets of the gateway's keys. Runs count against them too.
    """

    def __init__(
        self,
        references: Mapping[str, str],
        open_agents: OpenAgents,
        jobs: OwnJobs,
        spending: Spending | None = None,
    ) -> None:
        self._references = references
        self._open_agents = open_agents
        self._jobs = jobs
        self._resources = AsyncExitStack()
        self._agents: dict[str, Agent[Any]] = {}
        self._spending = spending
        jobs.add_kind(AguiKind(self._agents, spending), [agui_queue(each) for each in references.values()])

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as resources:
            self._agents |= await resources.enter_async_context(self._open_agents())
            resources.push_async_callback(self._jobs.aclose)
            self._store = await self._jobs.open()
            self._runs = ThreadRuns(self._store, self._agents)
            self._resources = resources.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._resources.aclose()

    async def begin(self, name: str, owner: str, run_input: RunInput) -> AguiRun:
        """Begin a run of the agent with this name, or of the first agent for ""; see `ThreadRuns.begin`.

        Also raises HttpError if a budget is used up.
        """
        reference = self._references.get(name) if name else next(iter(self._references.values()), None)
        if reference is None:
            hint = f"there are {', '.join(self._references)}"
            raise CallerError(f"no agent is called {name[:100]!r}", path="agent", hint=hint)
        if self._spending is not None:
            await self._spending.check(owner)
        return await self._runs.begin(reference, owner, run_input)

    def follow(self, run: AguiRun) -> AsyncGenerator[list[AguiEvent]]:
        """Yield the events of a run. Empty lists show that the run is still active."""
        return follow_job(self._store, self._jobs.streams, run.encoder, run.job, run.after)


log = logging.getLogger("callboard.agui")

PATH: Final = "/agui"
HEARTBEAT: Final = b": the run goes on\n\n"
_HEADERS: Final = {"cache-control": "no-cache", "x-accel-buffering": "no"}
_LOOKS: Final = 40
"""Polls of the store, a quarter of a second each, before a silent stream sends a sign of life."""


class AguiExtension:
    """The endpoint `/agui`. Its server enters it as an asynchronous context manager while it serves.

    Args:
        service: Runs the agents.
        authenticator: Authenticates clients.
        limits: Limits of one request.
        budget: Maximum bytes of all requests that are read at once.
        origins: Web pages that may call the endpoint, if the server itself handles no CORS.
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
        """Set when the server stops: a run may take longer than the shutdown should."""

    async def __aenter__(self) -> Self:
        await self._service.__aenter__()
        call_at_signals(self._closing.set)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._service.__aexit__(kind, error, at)

    def routes(self) -> Sequence[BaseRoute]:
        """Routes of the first agent, and of each agent by its name."""
        endpoint: ASGIApp = self
        methods = ["POST"]
        if self._origins:
            methods += ["OPTIONS"]
            endpoint = CORSMiddleware(self, allow_origins=self._origins, allow_methods=["POST"], allow_headers=["*"])
        return [Route(path, endpoint, methods=methods) for path in (PATH, f"{PATH}/{{agent}}")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with its run."""
        headers = Headers(scope=scope)
        try:
            token = read_token(headers)
            with (caller := self._authenticator.authenticate(headers, token)):
                await caller.count()
                owner = self._authenticator.owner(caller, token)
                run = await self._begin(Request(scope).path_params.get("agent", ""), owner, headers, receive)
                response = StreamingResponse(
                    stream_frames(self._service, run, self._closing), headers=_HEADERS, media_type="text/event-stream"
                )
                await response(scope, receive, send)
        except HttpError as error:
            await send_json(send, error.status, FRONTENDS["chat"].error_body(error), error.headers)

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
                log.error("the store failed: %s", error)  # noqa: TRY400  # the message is complete
                raise HttpError("store_unavailable", "the store of jobs does not answer") from None


async def stream_frames(service: AguiService, run: AguiRun, closing: asyncio.Event) -> AsyncGenerator[bytes]:
    """Yield the frames of a run. After the status is sent, a failure or a shutdown is the last event of the run."""
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
                    message = "the server is stopping; the job continues after the restart"
                    yield _frame(run.encoder.fail(message, "server_stopped"))
                    return
    except Exception:
        log.exception("cannot follow a run; its job %s continues", run.job.id)
        yield _frame(run.encoder.fail("the run cannot be followed; its job continues", "internal_error"))


def _frame(events: list[AguiEvent]) -> bytes:
    return b"".join([b"data: %b\n\n" % encode_event(each) for each in events])

"""A server that is there when it is asked.

Owns the connection to one server: when it is made, lost and made again, and what becomes of the calls meanwhile.
Knows nothing of tools beyond the SDK's values.
Law: a call is sent again only if it was not sent, once if it may be repeated, and once if the server refused it for
want of a session; all that wait share one reconnect; without anybody who asks nothing is tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from callboard.mcp.connection import Connection
from callboard.mcp.connection_state import State
from callboard.mcp.deadline import Deadline
from callboard.mcp.elicitation import Elicit, Sample, elicitation_of, sampling_of
from callboard.mcp.eras import Eras
from callboard.mcp.errors import ServerFailure, ServerTimeout, ServerUnreachable, cut, failure_of, is_lost
from callboard.mcp.events import LinkEvent, Logged, Progress, ToolsChanged
from callboard.mcp.pagination import every_page
from callboard.mcp.reconnect import Upkeep, explained
from callboard.mcp.sending import Sending
from callboard.mcp.settings import ServerSettings
from callboard.mcp.tool_list_watcher import Changes

if TYPE_CHECKING:
    import httpx2
    from mcp_types import (
        CallToolResult,
        GetPromptResult,
        Prompt,
        ReadResourceResult,
        Resource,
        ResourceTemplate,
        ServerCapabilities,
        Tool,
    )

OnProgress = Callable[[float, float | None, str], None]
"""How far it is, of how much where the server knows, and what it says."""
_MOST_LOGGED: Final = 4096
T = TypeVar("T")

__all__ = ["Link", "LinkEvent", "OnProgress", "ServerIdentity"]


class ServerIdentity(msgspec.Struct, frozen=True):
    """What a server says of itself; nothing of it is to be trusted."""

    name: str = ""
    version: str = ""
    instructions: str = ""


class Link:
    """A server, connected when it is first asked or by `start`.

    `on_event` is told what it does. `elicit` asks the user for it, and `sample` the run's model, if the settings
    allow that; a server learns beforehand what is not there. `auth` signs HTTP requests. `eras` remembers which
    protocol the server speaks. All calls raise ServerFailure and are bounded by the settings' times; an event loop
    has its own links.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        on_event: Callable[[LinkEvent], None] = lambda _: None,
        elicit: Elicit | None = None,
        sample: Sample | None = None,
        auth: httpx2.Auth | None = None,
        eras: Eras | None = None,
    ) -> None:
        self.settings = settings
        self.server: ServerIdentity | None = None
        self.protocol_version: str | None = None
        self.capabilities: ServerCapabilities | None = None
        self.on_tools_changed: Callable[[tuple[Tool, ...]], None] = lambda _: None
        """Called with the new tools when they are others than they were, once `tools` was asked."""
        self.left_out: Mapping[str, str] = {}
        """Why tools that the server lists are not among its tools, by their names."""
        self.noise = 0
        """Lines on its standard output that were no messages."""
        self._on_event = on_event
        self._elicit = elicit
        self._sample = sample if settings.sampling else None
        self._upkeep = Upkeep(
            settings,
            callbacks=self._callbacks,
            began=self._begin,
            noise=self._noise,
            tell=self._tell,
            auth=auth,
            eras=eras,
        )
        self._path = self._upkeep.path
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changes = Changes(settings.name, self._listed_on, self._changed)

    @property
    def state(self) -> State:
        return self._upkeep.state

    async def start(self) -> None:
        """Connects now, whatever failed before. Raises ServerFailure if the one try fails."""
        self._check_loop()
        await self._upkeep.start()

    async def aclose(self) -> None:
        """Ends the connection for good, and the server if it is a program of ours."""
        await self._changes.aclose()
        await self._upkeep.aclose()

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        idempotent: bool = False,
        on_progress: OnProgress | None = None,
    ) -> CallToolResult:
        """Calls a tool. One that is `idempotent` is called again, once, after a lost connection."""

        def send(client: Any, deadline: Deadline) -> Awaitable[CallToolResult]:
            async def progressed(progress: float, total: float | None, message: str | None) -> None:
                deadline.alive()
                self._tell(Progress(self.settings.name, name, progress, total, message or ""))
                if on_progress is not None:
                    on_progress(progress, total, message or "")

            asked: Awaitable[CallToolResult] = client.call_tool(name, dict(arguments), progress_callback=progressed)
            return asked

        return await self._ask(f"the tool {name}", send, idempotent=idempotent)

    async def tools(self) -> tuple[Tool, ...]:
        """All tools; from the first time on, changes are followed."""
        self._changes.asked()
        tools = await self._ask("the list of tools", self._list("list_tools", "tools"))
        self._changes.known(tools)
        return tools

    async def resources(self) -> tuple[Resource, ...]:
        return await self._ask("the list of resources", self._list("list_resources", "resources"))

    async def resource_templates(self) -> tuple[ResourceTemplate, ...]:
        listed = self._list("list_resource_templates", "resource_templates")
        return await self._ask("the list of resource templates", listed)

    async def prompts(self) -> tuple[Prompt, ...]:
        return await self._ask("the list of prompts", self._list("list_prompts", "prompts"))

    async def read_resource(self, uri: str) -> ReadResourceResult:
        return await self._ask(f"the resource {cut(uri, 200)}", lambda client, _: client.read_resource(uri))

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> GetPromptResult:
        return await self._ask(f"the prompt {name}", lambda client, _: client.get_prompt(name, dict(arguments)))

    # calls

    async def _ask(self, what: str, send: Callable[[Any, Deadline], Awaitable[T]], *, idempotent: bool = True) -> T:
        self._check_loop()
        deadline = Deadline(self.settings.idle_timeout, self.settings.timeout)
        patience = max(self.settings.idle_timeout, self.settings.connect_timeout)
        connection: Connection | None = None
        repeated = renewed = False
        try:
            async with deadline:
                while True:
                    connection = self._upkeep.current
                    if connection is None:
                        deadline.alive(patience)
                        connection = await self._upkeep.connected()
                        deadline.alive()
                    sending = Sending()
                    try:
                        answer = await connection.run(lambda client: send(client, deadline), sending, deadline)
                    except Exception as error:  # noqa: BLE001  # of the SDK, or of a transport
                        again = not renewed if sending.refused else idempotent and not repeated
                        self._judge(what, error, connection, sending, again=again)
                        renewed |= sending.refused
                        repeated |= sending.sent and not sending.refused
                        connection = None
                        continue
                    self._upkeep.answered(connection)
                    return answer
        except TimeoutError as error:
            if deadline.expired is None:
                raise
            raise self._late(what, deadline, connection) from error

    def _judge(self, what: str, error: Exception, connection: Connection, sending: Sending, *, again: bool) -> None:
        """Returns if it is to be sent again, as what was sent only may be with `again`; else raises what went wrong."""
        failure = failure_of(error, self._path)
        if not (sending.refused or is_lost(error, over=connection.over.is_set())):
            raise failure from error
        connection.end(failure.message)
        if sending.sent and not again:
            lost = f"the connection was lost: {explained(connection, connection.why or failure.message)}"
            message = f"{lost}; {what} was sent and may have run"
            raise ServerUnreachable(message, path=self._path, may_have_run=True) from error

    def _late(self, what: str, deadline: Deadline, connection: Connection | None) -> ServerFailure:
        idle = deadline.expired == "idle"
        if connection is None:
            why = f": {self._upkeep.failure.message}" if self._upkeep.failure else ""
            return ServerUnreachable(f"no connection for {what} in time{why}", path=self._path)
        if idle:
            connection.doubt(self.settings.connect_timeout)
        seconds = self.settings.idle_timeout if idle else self.settings.timeout
        message = f"{'no sign of life' if idle else 'no answer'} from {what} within {seconds:g} s"
        hint = f"its {'idle_timeout' if idle else 'timeout'} can be raised"
        if connection.first_noise:
            message += f"; it wrote to its standard output what is no message, first: {connection.first_noise}"
        return ServerTimeout(message, path=self._path, hint=hint, may_have_run=True)

    def _list(self, method: str, field: str) -> Callable[[Any, Deadline], Awaitable[tuple[Any, ...]]]:
        return lambda client, deadline: every_page(
            getattr(client, method), field, deadline.alive, lambda text: self._log("warning", text)
        )

    # connections

    def _check_loop(self) -> None:
        """Its tasks are those of one event loop; from another they would be waited for without end."""
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop and self._loop.is_running():
            hint = "connect the server there too: an event loop has its own links"
            raise ServerFailure("it is connected in another event loop, which is running", path=self._path, hint=hint)
        self._loop = loop

    def _begin(self, connection: Connection) -> None:
        client = connection.client
        info = client.server_info
        name, version = (info.name, info.version) if info else ("", "")
        self.server = ServerIdentity(name, version, client.instructions or "")
        self.protocol_version = client.protocol_version
        self.capabilities = client.server_capabilities
        self.left_out = connection.left_out
        self._changes.began(connection)

    def _callbacks(self, connection: Connection) -> dict[str, Any]:
        """What the SDK calls."""

        async def logged(params: Any) -> None:
            text = params.data if isinstance(params.data, str) else msgspec.json.encode(params.data).decode()
            self._log(str(params.level), text, params.logger or "")

        async def notified(message: Any) -> None:
            if getattr(message, "method", "") == "notifications/tools/list_changed":
                self._changes.heard()

        callbacks: dict[str, Any] = {"logging_callback": logged, "message_handler": notified}
        if self._elicit is not None:
            callbacks["elicitation_callback"] = elicitation_of(self._elicit, connection.held)
        if self._sample is not None:
            callbacks["sampling_callback"] = sampling_of(self._sample, connection.held)
        return callbacks

    async def _listed_on(self, connection: Connection) -> tuple[Tool, ...]:
        listing = self._list("list_tools", "tools")
        async with Deadline(self.settings.idle_timeout, self.settings.timeout) as deadline:
            return await connection.run(lambda client: listing(client, deadline), Sending(), deadline)

    # what is told

    def _changed(self, change: ToolsChanged, tools: tuple[Tool, ...]) -> None:
        self._tell(change)
        self.on_tools_changed(tools)

    def _noise(self, line: bytes) -> None:
        self.noise += 1
        if self.noise == 1:
            first = cut(line.decode("utf-8", "replace"), 200)
            self._log("warning", f"it writes to its standard output what is no message, first: {first}")

    def _log(self, level: str, text: str, logger: str = "") -> None:
        self._tell(Logged(self.settings.name, level, cut(text, _MOST_LOGGED), logger))

    def _tell(self, event: LinkEvent) -> None:
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001  # who listens does not end the connection
            context = {"message": f"on_event of {self._path} raised", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

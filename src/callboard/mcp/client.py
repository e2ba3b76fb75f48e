"""The client of one MCP server: it connects on the first call, and reconnects when a connection is lost.

Laws: a call is retried if it was not sent. It is retried once if it may be repeated, and once if the server refused it
without a session. All waiting calls share one reconnect; without a waiting call nothing is tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from callboard.mcp.connection import Connection, Deadline
from callboard.mcp.connection_state import Logged, SendState, ServerEvent, State, ToolsChanged
from callboard.mcp.elicitation import Elicit, Sample, elicitation_callback, sampling_callback
from callboard.mcp.errors import ServerFailure, ServerTimeout, ServerUnreachable, excerpt, is_lost, to_failure
from callboard.mcp.reconnector import ProtocolCache, Reconnector, add_stderr
from callboard.mcp.settings import ServerSettings
from callboard.mcp.tool_list_watcher import ToolListWatcher, list_all
from callboard.telemetry import names, record, switch

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
"""Called with progress, total (None if the server does not know it) and message."""
_MAX_LOG_CHARS: Final = 4096
T = TypeVar("T")

__all__ = ["McpClient", "OnProgress", "ServerEvent", "ServerIdentity"]


class ServerIdentity(msgspec.Struct, frozen=True):
    """Name, version and instructions from the server: untrusted text."""

    name: str = ""
    version: str = ""
    instructions: str = ""


class McpClient:
    """One server, connected by `start` or by the first call. A client belongs to one event loop.

    All calls raise ServerFailure, and are limited by the timeouts of the settings.

    Args:
        settings: How to reach the server.
        on_event: Called with state changes, log messages and changes of the tools.
        elicit: Asks the user for the server. If it is missing, the server learns that nobody can be asked.
        sample: Asks the run's model for the server, if the settings allow `sampling`.
        auth: Signs HTTP requests.
        protocols: Remembers which protocol the server speaks.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        on_event: Callable[[ServerEvent], None] = lambda _: None,
        elicit: Elicit | None = None,
        sample: Sample | None = None,
        auth: httpx2.Auth | None = None,
        protocols: ProtocolCache | None = None,
    ) -> None:
        self.settings = settings
        self.server: ServerIdentity | None = None
        self.protocol_version: str | None = None
        self.capabilities: ServerCapabilities | None = None
        self.on_tools_changed: Callable[[tuple[Tool, ...]], None] = lambda _: None
        """Called with the new tools when they change, after the first call of `tools`."""
        self.skipped_tools: Mapping[str, str] = {}
        """Reasons why listed tools cannot be used, by tool name."""
        self.noise_lines = 0
        """Number of lines on the server's standard output that were not messages."""
        self._on_event = on_event
        self._elicit = elicit
        self._sample = sample if settings.sampling else None
        self._reconnector = Reconnector(
            settings,
            make_callbacks=self._make_callbacks,
            on_connected=self._on_connected,
            on_noise=self._on_noise,
            emit=self._emit,
            auth=auth,
            protocols=protocols,
        )
        self._path = self._reconnector.path
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tool_watcher = ToolListWatcher(settings.name, self._list_tools_on, self._on_tools_changed)

    @property
    def state(self) -> State:
        """The state of the connection."""
        return self._reconnector.state

    async def start(self) -> None:
        """Connect now, regardless of earlier failures. Raises ServerFailure if this attempt fails."""
        self._check_loop()
        await self._reconnector.start()

    async def aclose(self) -> None:
        """Close the connection for good, and end the server if we started it."""
        await self._tool_watcher.aclose()
        await self._reconnector.aclose()

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        idempotent: bool = False,
        on_progress: OnProgress | None = None,
    ) -> CallToolResult:
        """Return the answer to a call of the tool `name` with `arguments`; `on_progress` is called with its progress.

        An `idempotent` call is repeated once after a lost connection.
        """

        def do_call(client: Any, deadline: Deadline) -> Awaitable[CallToolResult]:
            async def report_progress(progress: float, total: float | None, message: str | None) -> None:
                deadline.extend()
                if on_progress is not None:
                    on_progress(progress, total, message or "")

            result: Awaitable[CallToolResult] = client.call_tool(
                name, dict(arguments), progress_callback=report_progress
            )
            return result

        begun, error_type = perf_counter(), ""
        try:
            result = await self._request(f"the tool {name}", do_call, idempotent=idempotent)
            error_type = "tool_error" if result.is_error else ""
        except BaseException as error:
            error_type = type(error).__qualname__
            raise
        else:
            return result
        finally:
            if switch.recorder is not None:
                self._record_call(name, perf_counter() - begun, error_type)

    def _record_call(self, name: str, seconds: float, error_type: str) -> None:
        """Record the metrics of a call. The SDK has its own spans for requests, but no metrics."""
        about = {
            names.MCP_METHOD: "tools/call",
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: excerpt(name, 100),
            names.NETWORK_TRANSPORT: "pipe" if self.settings.command else "tcp",
        }
        failed = {names.ERROR_TYPE: error_type} if error_type else {}
        record(names.MCP_CLIENT_DURATION, seconds, {**about, **failed})

    async def tools(self) -> tuple[Tool, ...]:
        """Return all tools, and watch for changes from now on."""
        self._tool_watcher.mark_current()
        tools = await self._list("tools")
        self._tool_watcher.set_tools(tools)
        return tools

    async def resources(self) -> tuple[Resource, ...]:
        """Return all resources."""
        return await self._list("resources")

    async def resource_templates(self) -> tuple[ResourceTemplate, ...]:
        """Return all templates of resources."""
        return await self._list("resource_templates")

    async def prompts(self) -> tuple[Prompt, ...]:
        """Return all prompts."""
        return await self._list("prompts")

    async def read_resource(self, uri: str) -> ReadResourceResult:
        """Return the content of the resource `uri`."""
        return await self._request(f"the resource {excerpt(uri, 200)}", lambda client, _: client.read_resource(uri))

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> GetPromptResult:
        """Return the prompt `name`, filled in with `arguments`."""
        return await self._request(f"the prompt {name}", lambda client, _: client.get_prompt(name, dict(arguments)))

    # calls

    async def _request(self, what: str, send: Callable[[Any, Deadline], Awaitable[T]], *, idempotent: bool = True) -> T:
        self._check_loop()
        deadline = Deadline(self.settings.idle_timeout, self.settings.timeout)
        patience = max(self.settings.idle_timeout, self.settings.connect_timeout)
        connection: Connection | None = None
        was_repeated = was_renewed = False
        try:
            async with deadline:
                while True:
                    connection = self._reconnector.current
                    if connection is None:
                        deadline.extend(patience)
                        connection = await self._reconnector.wait_connected()
                        deadline.extend()
                    state = SendState(idempotent=idempotent)
                    try:
                        answer = await connection.run(lambda client: send(client, deadline), state, deadline)
                    except Exception as error:  # noqa: BLE001  # of the SDK, or of a transport
                        may_retry = not was_renewed if state.session_missing else idempotent and not was_repeated
                        self._raise_unless_retryable(what, error, connection, state, may_retry=may_retry)
                        was_renewed |= state.session_missing
                        was_repeated |= state.sent and not state.session_missing
                        connection = None
                        continue
                    self._reconnector.mark_answered(connection)
                    return answer
        except TimeoutError as error:
            if deadline.expired is None:
                raise
            raise self._to_timeout(what, deadline, connection) from error

    def _raise_unless_retryable(
        self, what: str, error: Exception, connection: Connection, state: SendState, *, may_retry: bool
    ) -> None:
        """Return if the call should be retried. A call that was sent is retried only if `may_retry`."""
        failure = to_failure(error, self._path)
        if not (state.session_missing or is_lost(error, closed=connection.closed.is_set())):
            raise failure from error
        connection.end(failure.message)
        if state.sent and not may_retry:
            reason = f"the connection was lost: {add_stderr(connection, connection.why or failure.message)}"
            message = f"{reason}; {what} was sent and may have run"
            raise ServerUnreachable(message, path=self._path, may_have_run=True) from error

    def _to_timeout(self, what: str, deadline: Deadline, connection: Connection | None) -> ServerFailure:
        idle = deadline.expired == "idle"
        if connection is None:
            why = f": {self._reconnector.failure.message}" if self._reconnector.failure else ""
            return ServerUnreachable(f"no connection for {what} in time{why}", path=self._path)
        if idle:
            connection.check_alive(self.settings.connect_timeout)
        seconds = self.settings.idle_timeout if idle else self.settings.timeout
        message = f"{'no sign of life' if idle else 'no answer'} from {what} within {seconds:g} s"
        hint = f"its {'idle_timeout' if idle else 'timeout'} can be raised"
        if connection.first_noise:
            message += f"; it wrote to its standard output what is no message, first: {connection.first_noise}"
        return ServerTimeout(message, path=self._path, hint=hint, may_have_run=True)

    async def _list(self, field: str) -> tuple[Any, ...]:
        return await self._request(f"the list of {field.replace('_', ' ')}", self._make_lister(field))

    def _make_lister(self, field: str) -> Callable[[Any, Deadline], Awaitable[tuple[Any, ...]]]:
        return lambda client, deadline: list_all(
            getattr(client, f"list_{field}"), field, deadline.extend, lambda text: self._log("warning", text)
        )

    # connections

    def _check_loop(self) -> None:
        """Refuse a different event loop while ours runs: waiting for a task of another loop never ends."""
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop and self._loop.is_running():
            hint = "connect the server there too: each event loop needs a client of its own"
            raise ServerFailure("it is connected in another event loop, which is running", path=self._path, hint=hint)
        self._loop = loop

    def _on_connected(self, connection: Connection) -> None:
        client = connection.client
        info = client.server_info
        name, version = (info.name, info.version) if info else ("", "")
        self.server = ServerIdentity(name, version, client.instructions or "")
        self.protocol_version = client.protocol_version
        self.capabilities = client.server_capabilities
        self.skipped_tools = connection.skipped_tools
        self._tool_watcher.set_connection(connection)

    def _make_callbacks(self, connection: Connection) -> dict[str, Any]:
        async def on_log(params: Any) -> None:
            text = params.data if isinstance(params.data, str) else msgspec.json.encode(params.data).decode()
            self._log(str(params.level), text, params.logger or "")

        async def on_notification(message: Any) -> None:
            if getattr(message, "method", "") == "notifications/tools/list_changed":
                self._tool_watcher.mark_stale()

        callbacks: dict[str, Any] = {"logging_callback": on_log, "message_handler": on_notification}
        if self._elicit is not None:
            callbacks["elicitation_callback"] = elicitation_callback(self._elicit, connection.pause_deadlines)
        if self._sample is not None:
            callbacks["sampling_callback"] = sampling_callback(self._sample, connection.pause_deadlines)
        return callbacks

    async def _list_tools_on(self, connection: Connection) -> tuple[Tool, ...]:
        listing = self._make_lister("tools")
        async with Deadline(self.settings.idle_timeout, self.settings.timeout) as deadline:
            return await connection.run(lambda client: listing(client, deadline), SendState(), deadline)

    # events

    def _on_tools_changed(self, change: ToolsChanged, tools: tuple[Tool, ...]) -> None:
        self._emit(change)
        self.on_tools_changed(tools)

    def _on_noise(self, line: bytes) -> None:
        self.noise_lines += 1
        if self.noise_lines == 1:
            first = excerpt(line.decode("utf-8", "replace"), 200)
            self._log("warning", f"it writes to its standard output what is no message, first: {first}")

    def _log(self, level: str, text: str, logger: str = "") -> None:
        self._emit(Logged(self.settings.name, level, excerpt(text, _MAX_LOG_CHARS), logger))

    def _emit(self, event: ServerEvent) -> None:
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001  # an error in a listener does not end the connection
            context = {"message": f"on_event of {self._path} raised", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

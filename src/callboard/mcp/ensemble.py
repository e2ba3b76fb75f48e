"""A server as an ensemble: its tools as invokers.

Laws: only tools that match their pins become invokers. When a server changes its tools, new invokers are made, and a
run keeps its own invokers.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias

from callboard.errors import CallerError, DescriptorError
from callboard.execution.result_store import KeptResults
from callboard.mcp.client import McpClient, OnProgress
from callboard.mcp.connection_state import RETRY_SECONDS, ServerEvent
from callboard.mcp.elicitation import Elicit, ElicitAction, Sample
from callboard.mcp.errors import ServerFailure
from callboard.mcp.oauth_tokens import stored_auth
from callboard.mcp.pins import PinComparison, Pins
from callboard.mcp.reconnector import ProtocolCache
from callboard.mcp.results import prompt_invokers, resource_invokers, result_content
from callboard.mcp.sanitize import MAX_NAME, MAX_TOOLS, clean_schema, clean_text
from callboard.mcp.settings import ServerSettings, parse_address
from callboard.schema import compile_schema
from callboard.text.display import display
from callboard.text.suggest import suggest
from callboard.tools import Context, Ensemble, Invoker

if TYPE_CHECKING:
    from mcp_types import CallToolResult, Tool

Warn: TypeAlias = Callable[[str], None]

GRACE_SECONDS: Final = 5.0
"""Extra seconds that an invoker waits after the client's timeout, because the client's message is better."""
SERVED: Final = "mcp"
"""Key in a context's auxdata for the caller of our own server. Its `mark_answered` gets the raw result."""
MAX_WARNINGS: Final = 100
"""Maximum warnings about one server. Further ones are dropped."""
MAX_LISTED: Final = 10
"""Maximum tools that a warning names. The others are counted."""

_log = logging.getLogger("callboard.mcp")


class ToolCaller(Protocol):
    """The part of a client that an invoker needs. The SDK's client has it too."""

    async def call_tool(self, name: str, arguments: dict[str, Any], /) -> CallToolResult: ...


class McpEnsemble(Ensemble):
    """The tools of one server, after `connect`.

    Args:
        settings: The server.
        result_store: Stores results that are too long. The caller then offers its `ensemble()`. Without a store, this
            ensemble has its own tool to read them.
        pins: By default the user's pins.
        warn: Called once with each line about omitted tools.
        on_event: See McpClient.
        elicit: See McpClient.
        sample: See McpClient.
        cli_options: Options with which `callboard mcp` finds the server; None if it cannot.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        result_store: KeptResults | None = None,
        pins: Pins | None = None,
        warn: Warn = _log.warning,
        on_event: Callable[[ServerEvent], None] = lambda _: None,
        elicit: Elicit | None = None,
        sample: Sample | None = None,
        cli_options: str | None = None,
    ) -> None:
        super().__init__(settings.name, (), {} if settings.search is None else {"search": settings.search})
        self.settings = settings
        self._on_event, self._elicit, self._sample = on_event, elicit, sample
        self._cli_options = cli_options
        self._closed = self._was_connected = False
        self._retry_task: asyncio.Task[None] | None = None
        self.client = self._new_client()
        self._result_store = result_store or KeptResults()
        self._owns_result_store = result_store is None
        self._pins = pins or Pins()
        self._warn = warn
        self._warned: set[str] = set()
        self._offered: tuple[Tool, ...] = ()
        self.instructions = ""
        """The server's instructions, cleaned. Empty if they do not match their pin."""
        self.pin_comparison: PinComparison | None = None
        """Comparison of the server's tools with its pins, if it is pinned."""

    @property
    def invokers(self) -> Mapping[str, Invoker]:
        """Raises CallerError before `connect`. Otherwise an agent would silently run without these tools."""
        if not self._was_connected:
            hint = "enter it: `async with mcp.connect(...) as ensemble`, or await its connect()"
            raise CallerError("it is not connected", path=self.name, hint=hint)
        return super().invokers

    async def connect(self) -> None:
        """Connect, and list the tools. Raises CallboardError with the name of the server."""
        self._was_connected = True
        if self._closed:
            self._closed, self.client = False, self._new_client()
        if self.client.state != "ready":
            await self.client.start()
        self._update_tools(await self.client.tools())

    async def disconnect(self) -> None:
        """Close the connection for good."""
        self._closed = True
        if self._retry_task is not None:
            self._retry_task.cancel()
        await self.client.aclose()

    def connect_in_background(self) -> None:
        """Retry in the background until success, permanent failure, or disconnection."""
        self._retry_task = asyncio.create_task(self._retry())

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    def find_tool(self, invoker: Invoker) -> Tool | None:
        """Return the server's tool that `invoker` calls, or None for our own invokers."""
        return next((tool for tool in self._offered if tool.name == invoker.name), None)

    async def list_tools(self) -> tuple[Tool, ...]:
        """Return the offered tools, as the server describes them."""
        return self._offered

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], /, *, on_progress: OnProgress | None = None
    ) -> CallToolResult:
        """Return the server's answer to a call of the tool `name` with `arguments`; `on_progress` is called with its
        progress.
        """
        repeatable = _is_idempotent(name, self.settings)
        return await self.client.call(name, dict(arguments), idempotent=repeatable, on_progress=on_progress)

    async def _retry(self) -> None:
        for failures in count(1):
            if self.client.state == "failed":
                return
            await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
            with suppress(ServerFailure):
                self._update_tools(await self.client.tools())
                return

    def _new_client(self) -> McpClient:
        client = McpClient(
            self.settings,
            on_event=self._on_event,
            elicit=self._ask_user if self._elicit else None,
            sample=self._sample,
            auth=stored_auth(self.settings),
            protocols=ProtocolCache(),
        )
        client.on_tools_changed = self._update_tools
        return client

    async def _ask_user(self, text: str, schema: Mapping[str, Any]) -> tuple[ElicitAction, Mapping[str, Any] | None]:
        if self._elicit is None:
            return "decline", None
        # The user must know which server asks.
        return await self._elicit(f"{self.name} asks: {clean_text(text, self.settings.description_bytes)}", schema)

    def _update_tools(self, tools: Sequence[Tool]) -> None:
        """Make the invokers of these tools. Running agents keep the old ones."""
        known = {tool.name: tool for tool in self._offered}
        invokers: dict[str, Invoker] = {}
        offered: list[Tool] = []
        skipped = [
            f"the tool '{display(name, 64)}' is left out: {why}" for name, why in self.client.skipped_tools.items()
        ]
        for tool in self._filter_pinned([*tools]) if "tools" in self.settings.expose else ():
            if not is_selected(tool.name, self.settings):
                continue
            try:
                if len(invokers) == MAX_TOOLS:
                    raise DescriptorError(f"there are {MAX_TOOLS} already")
                if tool.name in invokers:
                    raise DescriptorError("there is another of its name")
                if known.get(tool.name) == tool:
                    # The same tool, although the keys of its schema may have another order.
                    invokers[tool.name] = self._invokers[tool.name]
                else:
                    invokers[tool.name] = create_invoker_from_mcp_tool(
                        tool, self, settings=self.settings, result_store=self._result_store
                    )
            except CallerError as refused:
                skipped.append(f"the tool '{display(tool.name, 64)}' is left out: {refused}")
            else:
                offered.append(tool)
        self._warn_of_each(skipped, "are left out")
        names = [tool.name for tool in tools]
        for pattern in (*self.settings.tools, *self.settings.exclude):
            if names and pattern != "*" and not any(fnmatchcase(name, pattern) for name in names):
                self._warn_once(f"{self.name}: no tool of it is {pattern!r}; {suggest(pattern, names)}")
        for invoker in self._make_own_invokers():
            name = invoker.name
            while name in invokers:
                name += "_"
            invokers[name] = invoker.replace(name=name)
        if self._owns_result_store:
            self._result_store.tool_name = name
        for invoker in invokers.values():
            invoker.ensemble = self
        # Keep the old order: a server may list its tools differently after a restart, which would break prompt caches.
        self._invokers = {name: invokers[name] for name in (*self._invokers, *invokers) if name in invokers}
        self._offered = tuple(offered)

    def _filter_pinned(self, tools: list[Tool]) -> list[Tool]:
        text = self.client.server.instructions if self.client.server else ""
        if not self.settings.pinned:
            self.instructions = clean_text(text, self.settings.description_bytes)
            return tools
        self.pin_comparison = comparison = self._pins.compare(self.settings, tools, text)
        self.instructions = clean_text(text, self.settings.description_bytes) if comparison.instructions else ""
        accept = self._accept_hint()
        if comparison.replaces:
            what = "URL" if self.settings.transport == "http" else "program"
            self._warn_once(
                f"{self.name}: another {what} than before has this name; its tools are trusted as they are now"
            )
        if not comparison.instructions:
            self._warn_once(f"{self.name}: its instructions changed and are not used; {accept}")
        for what, of_many, names in (("changed", "changed", comparison.changed), ("is new", "are new", comparison.new)):
            lines = [
                f"the tool '{display(name, 64)}' {what} since its first use and is not offered; {accept}"
                for name in names
                if is_selected(name, self.settings)
            ]
            self._warn_of_each(lines, f"{of_many} since its first use and are not offered; {accept}")
        return [tool for tool in tools if tool.name in comparison.same]

    def _accept_hint(self) -> str:
        name = shlex.quote(self.name)
        if self._cli_options is None:
            return f"`callboard mcp pins forget {name}` trusts it as it is at its next use"
        return f"see `callboard mcp tools {name}{self._cli_options}`, then `callboard mcp pins accept {name}{self._cli_options}`"

    def _make_own_invokers(self) -> list[Invoker]:
        """Return our own invokers: for resources, prompts, and stored results."""
        own: list[Invoker] = []
        for what, make in (("resources", resource_invokers), ("prompts", prompt_invokers)):
            if what in self.settings.expose:
                if getattr(self.client.capabilities, what, None) is None:
                    self._warn_once(f"{self.name}: it has no {what}")
                else:
                    own += make(lambda: self.client, self._result_store, self.settings.result_bytes)
        return [*own, self._result_store.invoker()] if self._owns_result_store else own

    def _warn_of_each(self, lines: list[str], of_many: str) -> None:
        """Warn about the first lines one by one, and about the others with their number."""
        for line in lines[:MAX_LISTED]:
            self._warn_once(f"{self.name}: {line}")
        if len(lines) > MAX_LISTED:
            self._warn_once(f"{self.name}: {len(lines) - MAX_LISTED} more tools {of_many}")

    def _warn_once(self, line: str) -> None:
        if line not in self._warned and len(self._warned) < MAX_WARNINGS:
            self._warned.add(line)
            self._warn(line)


def create_invoker_from_mcp_tool(
    tool: Tool, client: ToolCaller, *, settings: ServerSettings | None = None, result_store: KeptResults | None = None
) -> Invoker:
    """Return the invoker of a server's `tool`, which `client` calls. An ensemble adds it.

    `settings` has limits, and `result_store` keeps the rest of long results. The schema is the server's own, with
    cleaned texts. Raises SchemaError and DescriptorError if the tool is not safe to show to a model.
    """
    limits = settings or ServerSettings(name="mcp")
    results = result_store or KeptResults()
    if not 0 < len(tool.name) <= MAX_NAME or not tool.name.isprintable():
        raise DescriptorError(f"a name has 1 to {MAX_NAME} characters that are seen")
    validator = compile_schema(tool.input_schema)
    name = tool.name

    async def invocable(context: Context, arguments: Mapping[str, Any]) -> Any:
        if isinstance(client, McpEnsemble):
            result = await client.call_tool(name, arguments, on_progress=context.progress)
        else:
            result = await client.call_tool(name, dict(arguments))
        if report := getattr(context.auxdata.get(SERVED), "mark_answered", None):
            report(result)
        return result_content(result, results, limits.result_bytes)

    return Invoker(
        name,
        invocable,
        clean_schema(tool.input_schema, limits.description_bytes),
        description=clean_text(tool.description or "", limits.description_bytes),
        validator=validator,
        timeout=limits.timeout + GRACE_SECONDS,
        idempotent=_is_idempotent(name, limits),
    )


def is_selected(name: str, settings: ServerSettings) -> bool:
    """True if the settings select this tool of the server."""
    return _matches(name, settings.tools) and not _matches(name, settings.exclude)


def _is_idempotent(name: str, settings: ServerSettings) -> bool:
    return _matches(name, settings.idempotent)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


class PendingConnection:
    """The result of `connect`: `await` returns the connected ensemble, `async with` also disconnects it."""

    def __init__(self, ensemble: McpEnsemble) -> None:
        self._ensemble = ensemble

    def __await__(self) -> Generator[Any, None, McpEnsemble]:
        return self._ensemble.__aenter__().__await__()

    async def __aenter__(self) -> McpEnsemble:
        return await self._ensemble.__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await self._ensemble.disconnect()


def connect(
    address: str, *, name: str = "", options: dict[str, Any] | None = None, **settings: Any
) -> PendingConnection:
    """Return the ensemble of the server at an address.

    Args:
        address: For example `stdio://weather-server --metric` or `https://host/mcp`.
        name: Name of the ensemble, by default derived from the address.
        options: Arguments of McpEnsemble.
        settings: Fields of ServerSettings.

    Raises:
        CallerError: The address is not valid. When awaited, also the exceptions of `McpEnsemble.connect`.
    """
    return PendingConnection(McpEnsemble(parse_address(address, name=name, **settings), **(options or {})))

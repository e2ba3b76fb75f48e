"""A server as an ensemble.

Owns the way from a server's tools to invokers, and when they are made. Knows nothing of how a server is reached.
Law: only tools that are as pinned become invokers; when a server changes its tools new invokers are made, and a run
keeps those that it began with.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias

from callboard.errors import CallerError, DescriptorError
from callboard.execution.result_store import KeptResults
from callboard.mcp.client import Link, OnProgress
from callboard.mcp.connection_state import DELAYS
from callboard.mcp.elicitation import Action, Elicit, Sample
from callboard.mcp.eras import Eras
from callboard.mcp.errors import ServerFailure
from callboard.mcp.events import LinkEvent
from callboard.mcp.oauth_tokens import stored_auth
from callboard.mcp.pins import Compared, Pins
from callboard.mcp.resource_tools import prompt_invokers, resource_invokers
from callboard.mcp.results import content_of
from callboard.mcp.sanitize import MAX_NAME, MAX_TOOLS, clean_schema, cleaned
from callboard.mcp.settings import ServerSettings
from callboard.schema import compile_schema
from callboard.text.display import display
from callboard.text.suggest import suggest
from callboard.tools import Context, Ensemble, Invoker

if TYPE_CHECKING:
    from mcp_types import CallToolResult, Tool

Tell: TypeAlias = Callable[[str], None]

GRACE: Final = 5.0
"""Seconds that a call has beyond the server's own limit, which says more of what happened."""
SERVED: Final = "mcp"
"""Where in the auxdata of a context who serves the call to a client of its own is; it hears what was `answered`."""
MAX_TOLD: Final = 100
"""Lines that one server has told."""
MAX_LEFT_OUT: Final = 10
"""Tools of which it is told each why they are left out; of the others how many they are."""

_MANY: Final = {"changed": "changed", "is new": "are new"}

_log = logging.getLogger("callboard.mcp")


class CallsTools(Protocol):
    """What an invoker needs of a connection; the SDK's client has it too."""

    async def call_tool(self, name: str, arguments: dict[str, Any], /) -> CallToolResult: ...


class McpEnsemble(Ensemble):
    """The tools of one server (seeds 000 and 004); it has them from `connect` on.

    `kept` is where results go that are too long, and then its `ensemble()` is offered elsewhere; without it this
    ensemble has a tool of its own to read them. `pins` are by default those of the user. `tell` is told, once each,
    what is left out and why; `on_event` what the connection does. `elicit` and `sample` as of Link. `found_by` are the
    arguments by which `callboard mcp` finds the server, which it does not where this is None.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        kept: KeptResults | None = None,
        pins: Pins | None = None,
        tell: Tell = _log.warning,
        on_event: Callable[[LinkEvent], None] = lambda _: None,
        elicit: Elicit | None = None,
        sample: Sample | None = None,
        found_by: str | None = None,
    ) -> None:
        super().__init__(settings.name, (), {} if settings.search is None else {"search": settings.search})
        self.settings = settings
        self._on_event, self._elicit, self._sample = on_event, elicit, sample
        self._found_by = found_by
        self._closed = self._was_connected = False
        self._trying: asyncio.Task[None] | None = None
        self.link = self._new_link()
        self._kept = kept or KeptResults()
        self._reads_kept = kept is None
        self._pins = pins or Pins()
        self._tell = tell
        self._told: set[str] = set()
        self._offered: tuple[Tool, ...] = ()
        self.instructions = ""
        """What the server says about its use, cleaned; nothing where it is not as pinned."""
        self.compared: Compared | None = None
        """What it offers beside its pins, if it is pinned."""

    @property
    def invokers(self) -> Mapping[str, Invoker]:
        """Raises CallerError before `connect`: an agent without the tools that it was given would not say so."""
        if not self._was_connected:
            hint = "enter it: `async with mcp.connect(...) as ensemble`, or await its connect()"
            raise CallerError("it is not connected", path=self.name, hint=hint)
        return super().invokers

    async def connect(self) -> None:
        """Connects and lists the tools, if that is not so yet. Raises CallboardError that names the server."""
        self._was_connected = True
        if self._closed:
            self._closed, self.link = False, self._new_link()
        if self.link.state != "ready":
            await self.link.start()
        self._take(await self.link.tools())

    async def disconnect(self) -> None:
        self._closed = True
        if self._trying is not None:
            self._trying.cancel()
        await self.link.aclose()

    def connect_later(self) -> None:
        """Goes on trying, until it has the tools, there is no hope, or it is disconnected."""
        self._trying = asyncio.create_task(self._try())

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    def tool_of(self, invoker: Invoker) -> Tool | None:
        """The server's tool that one of the invokers calls; None for one that is ours."""
        return next((tool for tool in self._offered if tool.name == invoker.name), None)

    async def list_tools(self) -> tuple[Tool, ...]:
        """The tools that are offered, as the server describes them (seed 004)."""
        return self._offered

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], /, *, on_progress: OnProgress | None = None
    ) -> CallToolResult:
        """The server's answer to one call (seed 004)."""
        repeatable = _is_idempotent(name, self.settings)
        return await self.link.call(name, dict(arguments), idempotent=repeatable, on_progress=on_progress)

    async def _try(self) -> None:
        for failures in count(1):
            if self.link.state == "failed":
                return
            await asyncio.sleep(DELAYS[min(failures, len(DELAYS) - 1)])
            with suppress(ServerFailure):
                self._take(await self.link.tools())
                return

    def _new_link(self) -> Link:
        link = Link(
            self.settings,
            on_event=self._on_event,
            elicit=self._asked if self._elicit else None,
            sample=self._sample,
            auth=stored_auth(self.settings),
            eras=Eras(),
        )
        link.on_tools_changed = self._take
        return link

    async def _asked(self, text: str, schema: Mapping[str, Any]) -> tuple[Action, Mapping[str, Any] | None]:
        if self._elicit is None:
            return "decline", None
        # Who is asked is to know by whom.
        return await self._elicit(f"{self.name} asks: {cleaned(text, self.settings.description_bytes)}", schema)

    def _take(self, tools: Sequence[Tool]) -> None:
        """Makes the invokers of these tools; those that runs have go on."""
        known = {tool.name: tool for tool in self._offered}
        made: dict[str, Invoker] = {}
        offered: list[Tool] = []
        left_out = [f"the tool '{display(name, 64)}' is left out: {why}" for name, why in self.link.left_out.items()]
        for tool in self._as_pinned([*tools]) if "tools" in self.settings.expose else ():
            if not is_chosen(tool.name, self.settings):
                continue
            try:
                if len(made) == MAX_TOOLS:
                    raise DescriptorError(f"there are {MAX_TOOLS} already")
                if tool.name in made:
                    raise DescriptorError("there is another of its name")
                if known.get(tool.name) == tool:
                    # It is the same, though the keys of its schema may stand in another order.
                    made[tool.name] = self._invokers[tool.name]
                else:
                    made[tool.name] = create_invoker_from_mcp_tool(tool, self, settings=self.settings, kept=self._kept)
            except CallerError as refused:
                left_out.append(f"the tool '{display(tool.name, 64)}' is left out: {refused}")
            else:
                offered.append(tool)
        self._some(left_out, "are left out")
        names = [tool.name for tool in tools]
        for pattern in (*self.settings.tools, *self.settings.exclude):
            if names and pattern != "*" and not any(fnmatchcase(name, pattern) for name in names):
                self._once(f"{self.name}: no tool of it is {pattern!r}; {suggest(pattern, names)}")
        for invoker in self._own():
            name = invoker.name
            while name in made:
                name += "_"
            made[name] = invoker.replace(name=name)
        if self._reads_kept:
            self._kept.tool_name = name
        for invoker in made.values():
            invoker.ensemble = self
        # A server may list its tools in another order after a restart: that would change the beginning of every prompt.
        self._invokers = {name: made[name] for name in (*self._invokers, *made) if name in made}
        self._offered = tuple(offered)

    def _as_pinned(self, tools: list[Tool]) -> list[Tool]:
        said = self.link.server.instructions if self.link.server else ""
        if not self.settings.pinned:
            self.instructions = cleaned(said, self.settings.description_bytes)
            return tools
        self.compared = compared = self._pins.compare(self.settings, tools, said)
        self.instructions = cleaned(said, self.settings.description_bytes) if compared.instructions else ""
        accept = self._how_to_accept()
        if compared.replaces:
            what = "URL" if self.settings.transport == "http" else "program"
            self._once(f"{self.name}: another {what} than before has this name; its tools are trusted as they are now")
        if not compared.instructions:
            self._once(f"{self.name}: its instructions changed and are not used; {accept}")
        for what, names in (("changed", compared.changed), ("is new", compared.new)):
            lines = [
                f"the tool '{display(name, 64)}' {what} since its first use and is not offered; {accept}"
                for name in names
                if is_chosen(name, self.settings)
            ]
            self._some(lines, f"{_MANY[what]} since its first use and are not offered; {accept}")
        return [tool for tool in tools if tool.name in compared.same]

    def _how_to_accept(self) -> str:
        name = shlex.quote(self.name)
        if self._found_by is None:
            return f"`callboard mcp pins forget {name}` trusts it as it is at its next use"
        return (
            f"see `callboard mcp tools {name}{self._found_by}`, then `callboard mcp pins accept {name}{self._found_by}`"
        )

    def _own(self) -> list[Invoker]:
        """The invokers that are ours, not the server's."""
        own: list[Invoker] = []
        for what, make in (("resources", resource_invokers), ("prompts", prompt_invokers)):
            if what in self.settings.expose:
                if getattr(self.link.capabilities, what, None) is None:
                    self._once(f"{self.name}: it has no {what}")
                else:
                    own += make(lambda: self.link, self._kept, self.settings.result_bytes)
        return [*own, self._kept.invoker()] if self._reads_kept else own

    def _some(self, lines: list[str], of_many: str) -> None:
        """Tells the first lines, and how many more there are."""
        for line in lines[:MAX_LEFT_OUT]:
            self._once(f"{self.name}: {line}")
        if len(lines) > MAX_LEFT_OUT:
            self._once(f"{self.name}: {len(lines) - MAX_LEFT_OUT} more tools {of_many}")

    def _once(self, line: str) -> None:
        if line not in self._told and len(self._told) < MAX_TOLD:
            self._told.add(line)
            self._tell(line)


def create_invoker_from_mcp_tool(
    tool: Tool, client: CallsTools, *, settings: ServerSettings | None = None, kept: KeptResults | None = None
) -> Invoker:
    """The invoker of a server's tool (seed 004), for an ensemble to add.

    Its schema is the server's own, with the texts in it cleaned. Raises SchemaError and DescriptorError for a tool
    that no model should be shown.
    """
    limits = settings or ServerSettings(name="mcp")
    results = kept or KeptResults()
    if not 0 < len(tool.name) <= MAX_NAME or not tool.name.isprintable():
        raise DescriptorError(f"a name has 1 to {MAX_NAME} characters that are seen")
    validator = compile_schema(tool.input_schema)
    name = tool.name

    async def invocable(context: Context, arguments: Mapping[str, Any]) -> Any:
        if isinstance(client, McpEnsemble):
            answered = await client.call_tool(name, arguments, on_progress=context.progress)
        else:
            answered = await client.call_tool(name, dict(arguments))
        if hears := getattr(context.auxdata.get(SERVED), "answered", None):
            hears(answered)
        return content_of(answered, results, limits.result_bytes)

    return Invoker(
        name,
        invocable,
        clean_schema(tool.input_schema, limits.description_bytes),
        description=cleaned(tool.description or "", limits.description_bytes),
        validator=validator,
        timeout=limits.timeout + GRACE,
        idempotent=_is_idempotent(name, limits),
    )


def is_chosen(name: str, settings: ServerSettings) -> bool:
    """Whether the settings want this tool of the server."""
    return _matches(name, settings.tools) and not _matches(name, settings.exclude)


def _is_idempotent(name: str, settings: ServerSettings) -> bool:
    return _matches(name, settings.idempotent)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)

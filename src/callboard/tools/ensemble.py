"""A group of invokers with a name, defaults and a connection: they are connected and disconnected together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from callboard.errors import DescriptorError, NoSuchTool, ToolDefinitionError
from callboard.text.suggest import suggest
from callboard.tools.invoker import Invoker
from callboard.tools.tool import Tool, is_seconds

ToolLike: TypeAlias = Tool[..., Any] | Invoker | Callable[..., Any]


class Ensemble:
    """A group of invokers: local functions, a TOML file, one MCP server.

    `invokers` may hold invokers, tools and plain functions, or map names to invokers. `configuration` may
    set `timeout` (seconds) and `max_retries` for all of them, say with `search` whether models have to search for them
    (see `callboard.tools.InvokerRegistry.names_behind_search`), and hold whatever else its tools read. `connection` is
    connected and disconnected with the ensemble, where it has methods of those names, async or plain. `config` is another
    name of `configuration`.

    Raises DescriptorError for a value of `configuration` that cannot be, and ToolDefinitionError for what is no tool.
    """

    def __init__(
        self,
        name: str,
        invokers: Mapping[str, Invoker] | Iterable[ToolLike] = (),
        configuration: Mapping[str, Any] | None = None,
        connection: Any = None,
        *,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        if config is not None and configuration is not None:
            raise DescriptorError("give configuration or config, not both", path=name)
        configuration = config if configuration is None else configuration
        self.name = name
        self.configuration: Mapping[str, Any] = MappingProxyType(_check_configuration(configuration or {}, name))
        self.connection = connection
        self._invokers: dict[str, Invoker] = {}
        if isinstance(invokers, Mapping):
            _check_names(invokers, name)
            invokers = invokers.values()
        if callable(invokers) or not isinstance(invokers, Iterable) or isinstance(invokers, (str, bytes)):
            hint = "put it into a list: [...]" if callable(invokers) else "give a list of functions, Tools or Invokers"
            raise ToolDefinitionError(f"{invokers!r} stands alone", path=name, hint=hint)
        for each in invokers:
            self.add_invoker(each)

    @property
    def invokers(self) -> Mapping[str, Invoker]:
        """Its invokers by their names."""
        return MappingProxyType(self._invokers)

    def add_invoker(self, invoker: ToolLike) -> Invoker:
        """Adds an invoker, a tool or a function, and gives what was added; of another ensemble's invoker, a copy.

        Raises DescriptorError if the name is taken.
        """
        added = as_invoker(invoker)
        if added.ensemble not in (None, self):
            added = added.replace()
        if added.name in self._invokers:
            raise DescriptorError(
                f"two tools are named {added.name!r}", path=self.name, hint="rename one: @tool(name=...)"
            )
        added.ensemble = self
        self._invokers[added.name] = added
        return added

    def access_invoker(self, name: str) -> Invoker:
        """The invoker of that name. Raises NoSuchTool with the nearest names."""
        try:
            return self.invokers[name]
        except KeyError:
            raise NoSuchTool(f"no tool {name!r}", path=self.name, hint=suggest(name, self._invokers)) from None

    @property
    def source(self) -> Ensemble:
        """The ensemble that this one is a part or another form of: itself, unless a wrapper made it."""
        return self

    async def connect(self) -> None:
        """Connect what its invokers work on, if it has a connection."""
        await self._connection_does("connect")

    async def disconnect(self) -> None:
        """Disconnect it again."""
        await self._connection_does("disconnect")

    async def _connection_does(self, what: str) -> None:
        act = getattr(self.connection, what, None)
        if act is not None:
            done = act()
            if inspect.isawaitable(done):
                await done

    def __repr__(self) -> str:
        return f"<Ensemble {self.name}: {', '.join(self._invokers) or 'empty'}>"


def _check_configuration(configuration: Mapping[str, Any], path: str) -> dict[str, Any]:
    if not isinstance(configuration, Mapping):
        raise DescriptorError(f"{configuration!r} is no mapping", path=f"{path}: configuration")
    for key, (fits, expected) in _DEFAULTS.items():
        if key in configuration and not fits(configuration[key]):
            raise DescriptorError(f"{configuration[key]!r} is no {expected}", path=f"{path}: configuration.{key}")
    return dict(configuration)


_DEFAULTS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "timeout": (is_seconds, "number of seconds above zero"),
    "max_retries": (lambda value: type(value) is int and value >= 0, "count"),
    "search": (lambda value: isinstance(value, bool), "true or false"),
}
"""What the configuration of an ensemble says of its calls, and what it may be."""


def _check_names(invokers: Mapping[str, Invoker], path: str) -> None:
    for name, invoker in invokers.items():
        if getattr(invoker, "name", name) != name:
            hint = f"write {invoker.name!r}, or rename it with renamed()"
            raise DescriptorError(f"{name!r} maps to a tool that is named {invoker.name!r}", path=path, hint=hint)


def as_invoker(tool: ToolLike) -> Invoker:
    """The invoker of a function or a Tool, or the one that is given. Raises ToolDefinitionError for anything else."""
    if isinstance(tool, Invoker):
        return tool
    if isinstance(tool, Tool):
        return Invoker.of(tool)
    if callable(tool):
        return Invoker.of(Tool(tool))
    raise ToolDefinitionError(f"{tool!r} is no tool", hint="pass a function, a Tool or an Invoker")


def refuse_clashes(placed: Iterable[tuple[str, Ensemble]]) -> None:
    """Refuse ensembles of one name that are not parts of one ensemble, or that have a tool of one name.

    Args:
        placed: Each ensemble behind the place where it stands.

    Raises:
        DescriptorError: Two clash.
    """
    tools: dict[int, set[str]] = {}
    named: list[tuple[str, str]] = []
    for place, each in placed:
        source = id(each.source)
        if source not in tools or tools[source] & each.invokers.keys():
            named.append((each.name, place))
        tools.setdefault(source, set()).update(each.invokers)
    refuse_same_names(named)


def refuse_same_names(placed: Iterable[tuple[str, str]]) -> None:
    """Refuse ensembles of one name: it tells their tools apart, and a run's state belongs to it.

    Args:
        placed: For each ensemble its name and where it stands.

    Raises:
        DescriptorError: Two have the same name.
    """
    places: dict[str, str] = {}
    for name, place in placed:
        if name in places:
            hint = f"the other is at {places[name]}"
            raise DescriptorError(f"two ensembles are named {name!r}", path=place, hint=hint)
        places[name] = place

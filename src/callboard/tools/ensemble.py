"""Groups of invokers with a name, defaults and a connection, and the registry of a conversation's invokers."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import is_
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from callboard.core import ToolDeclaration
from callboard.errors import DescriptorError, NoSuchTool, ToolDefinitionError
from callboard.text.suggest import suggest
from callboard.tools.invoker import Invoker
from callboard.tools.permissions import Policy
from callboard.tools.tool import Tool, is_seconds

ToolLike: TypeAlias = Tool[..., Any] | Invoker | Callable[..., Any]


class Ensemble:
    """A group of invokers with a `name`: local functions, a TOML file, one MCP server.

    `invokers` holds invokers, tools and plain functions, or maps names to invokers. `configuration` may set `timeout`
    (seconds) and `max_retries` for all of them, and any settings that its tools read. Its `search` says whether models
    have to search for the tools (see `callboard.tools.InvokerRegistry.names_behind_search`). If `connection` has
    methods `connect` and `disconnect`, async or plain, the ensemble calls them. `config` is another name of
    `configuration`.

    Raises DescriptorError for an invalid value of `configuration`, ToolDefinitionError for anything but a tool.
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
            raise ToolDefinitionError(f"{invokers!r} is not a list", path=name, hint=hint)
        for each in invokers:
            self.add_invoker(each)

    @property
    def invokers(self) -> Mapping[str, Invoker]:
        """The ensemble's invokers by name."""
        return MappingProxyType(self._invokers)

    def add_invoker(self, invoker: ToolLike) -> Invoker:
        """Return the invoker of the tool or function `invoker`, after adding it. Another ensemble's invoker is copied.

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
        """Return the invoker with the `name`. Raises NoSuchTool with the nearest names."""
        try:
            return self.invokers[name]
        except KeyError:
            raise NoSuchTool(f"no tool {name!r}", path=self.name, hint=suggest(name, self._invokers)) from None

    @property
    def source(self) -> Ensemble:
        """The original ensemble that a wrapper made this one from; otherwise the ensemble itself."""
        return self

    async def connect(self) -> None:
        """Connect the ensemble's connection, if it has one."""
        await self._connection_does("connect")

    async def disconnect(self) -> None:
        """Disconnect the ensemble's connection, if it has one."""
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
        raise DescriptorError(f"{configuration!r} is not a mapping", path=f"{path}: configuration")
    for key, (fits, expected) in _DEFAULTS.items():
        if key in configuration and not fits(configuration[key]):
            raise DescriptorError(f"{configuration[key]!r} is not {expected}", path=f"{path}: configuration.{key}")
    return dict(configuration)


_DEFAULTS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "timeout": (is_seconds, "a number of seconds above zero"),
    "max_retries": (lambda value: type(value) is int and value >= 0, "a count"),
    "search": (lambda value: isinstance(value, bool), "true or false"),
}
"""Keys of an ensemble's configuration that apply to its calls, with their checks and types."""


def _check_names(invokers: Mapping[str, Invoker], path: str) -> None:
    for name, invoker in invokers.items():
        if getattr(invoker, "name", name) != name:
            hint = f"write {invoker.name!r}, or rename it with renamed()"
            raise DescriptorError(f"{name!r} maps to a tool that is named {invoker.name!r}", path=path, hint=hint)


def as_invoker(tool: ToolLike) -> Invoker:
    """Return the invoker of `tool`: a function, a Tool or an Invoker. Raises ToolDefinitionError for anything else."""
    if isinstance(tool, Invoker):
        return tool
    if isinstance(tool, Tool):
        return Invoker.of(tool)
    if callable(tool):
        return Invoker.of(Tool(tool))
    raise ToolDefinitionError(f"{tool!r} is not a tool", hint="pass a function, a Tool or an Invoker")


def refuse_clashes(placed: Iterable[tuple[str, Ensemble]]) -> None:
    """Refuse ensembles with the same name or a tool of the same name, unless they are parts of one ensemble.

    Args:
        placed: For each ensemble its place and itself.

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
    """Refuse ensembles with the same name: the name distinguishes their tools, and a run's state belongs to it.

    Args:
        placed: For each ensemble its name and its place.

    Raises:
        DescriptorError: Two have the same name.
    """
    places: dict[str, str] = {}
    for name, place in placed:
        if name in places:
            hint = f"the other is at {places[name]}"
            raise DescriptorError(f"two ensembles are named {name!r}", path=place, hint=hint)
        places[name] = place


class InvokerRegistry(Mapping[str, Invoker]):
    """The invokers of `ensembles` by the names that models use, in the order of the ensembles.

    A unique name stays plain. Otherwise the ensemble's name precedes it. The registry never changes, so a name means
    one tool for the whole conversation. `declarations` are the tools as models see them. The wire encodes characters
    that a provider does not accept.

    Raises DescriptorError for two ensembles with the same name, unless they are parts of one ensemble.
    """

    def __init__(self, ensembles: Iterable[Ensemble]) -> None:
        ensembles = [*ensembles]
        refuse_clashes([(f"ensembles[{at}]", each) for at, each in enumerate(ensembles)])
        every = _every(ensembles)
        taken = Counter(invoker.name for _, invoker in every)
        self._invokers: dict[str, Invoker] = {}
        for ensemble, invoker in every:
            name = invoker.name if taken[invoker.name] == 1 else f"{ensemble.name}__{invoker.name}"
            while name in self._invokers:
                name += "_"
            self._invokers[name] = invoker
        self.declarations: tuple[ToolDeclaration, ...] = tuple(
            invoker.declare(name) for name, invoker in self._invokers.items()
        )

    def is_made_of(self, ensembles: Iterable[Ensemble]) -> bool:
        """Return whether the registry still has exactly the invokers of these `ensembles`."""
        every = [invoker for _, invoker in _every(ensembles)]
        return len(every) == len(self) and all(map(is_, every, self._invokers.values()))

    def allowed_declarations(self, policy: Policy) -> tuple[ToolDeclaration, ...]:
        """Return the declarations, without the tools that `policy` always forbids."""
        hidden = {name for name, invoker in self._invokers.items() if policy.forbids(invoker)}
        return tuple([each for each in self.declarations if each.name not in hidden]) if hidden else self.declarations

    def names_behind_search(self, offered: Iterable[ToolDeclaration], limit: int, keep: str = "") -> frozenset[str]:
        """Return the names of tools that are declared only after a search (see `callboard.tools.search`).

        These are the tools of ensembles with `search = true`. If the model cannot take all others, the largest
        ensembles follow, whole, until half of the limit is free for found tools. So hundreds of added tools do not
        crowd out the tools that people wrote themselves. Ensembles with `search = false` come last.

        Args:
            offered: The tools that the policy does not forbid.
            limit: Maximum tools that the model takes; 0 for any number.
            keep: Name of a tool that has to be declared.
        """
        groups: dict[int, list[str]] = {}
        wishes: dict[int, bool | None] = {}
        for each in offered:
            ensemble = self._invokers[each.name].ensemble
            groups.setdefault(id(ensemble), []).append(each.name)
            wishes[id(ensemble)] = ensemble.configuration.get("search") if ensemble else None
        searched = {name for group, names in groups.items() if wishes[group] for name in names}
        remaining = sum(map(len, groups.values())) - len(searched)
        if limit and remaining + bool(searched) > limit:
            others = [group for group in groups if not wishes[group]]
            for group in sorted(others, key=lambda each: (wishes[each] is False, -len(groups[each]))):
                if remaining < (limit if wishes[group] is False else limit // 2):
                    break
                searched.update(groups[group])
                remaining -= len(groups[group])
        return frozenset(searched - {keep})

    def __getitem__(self, name: str) -> Invoker:
        return self._invokers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._invokers)

    def __len__(self) -> int:
        return len(self._invokers)


def _every(ensembles: Iterable[Ensemble]) -> list[tuple[Ensemble, Invoker]]:
    return [(ensemble, invoker) for ensemble in ensembles for invoker in ensemble.invokers.values()]

"""Groups of invokers with a name, defaults and a connection, and the registry of those of a conversation."""

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


class InvokerRegistry(Mapping[str, Invoker]):
    """The invokers of a conversation by the names that models call them, in the order of the ensembles.

    A name is plain where it is unique, else it begins with the ensemble's. The registry is frozen once made, so that a
    name means one tool for the whole conversation. `declarations` is what models are told. Which characters a provider
    takes is its wire's business.

    Raises DescriptorError for two ensembles of one name, unless they are parts of one.
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
        """Whether these ensembles still have the very invokers that it was made of."""
        every = [invoker for _, invoker in _every(ensembles)]
        return len(every) == len(self) and all(map(is_, every, self._invokers.values()))

    def allowed_declarations(self, policy: Policy) -> tuple[ToolDeclaration, ...]:
        """The declarations without those of tools that the policy forbids altogether."""
        hidden = {name for name, invoker in self._invokers.items() if policy.forbids(invoker)}
        return tuple([each for each in self.declarations if each.name not in hidden]) if hidden else self.declarations

    def names_behind_search(self, offered: Iterable[ToolDeclaration], limit: int, keep: str = "") -> frozenset[str]:
        """The names of the offered tools that are declared only once they were found (see `callboard.tools.search`).

        Those of ensembles whose configuration says `search` are. Where the others are more than a model takes, so are
        those of the largest ensembles, whole, until half of the limit is left for what is found: what people added by
        the hundred does not crowd out what they wrote themselves. An ensemble that says `search = false` comes last.

        Args:
            offered: What the policy does not forbid.
            limit: How many tools the model takes, 0 for any number.
            keep: The name of one that has to be declared.
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

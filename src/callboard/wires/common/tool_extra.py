"""What the definition of a tool, or a message, says that has no name in the core, and which of two definitions counts.

Owns where the former is kept: in `extra`, under the name of the wire that it came over. Knows no wire.
Law: it is written on that wire only, and as it came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from callboard.core import Canister, InvocationCanister, ToolDeclaration


def unnamed(definition: Mapping[str, Any], named: Collection[str]) -> dict[str, Any]:
    """The fields that are none of the named ones, without nulls."""
    return {name: value for name, value in definition.items() if name not in named and value is not None}


def unnamed_in(message: Mapping[str, Any], named: Collection[str]) -> dict[str, Any]:
    """As `unnamed`, without what says nothing: clients send back whole messages of replies, which name all fields."""
    return {name: value for name, value in unnamed(message, named).items() if value not in ("", [], {})}


def own_fields(wire: str, extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """What was kept in an `extra` for this wire."""
    fields = extra.get(wire) if extra else None
    return dict(fields) if isinstance(fields, Mapping) else {}


def message_fields(wire: str, canisters: Iterable[Canister]) -> Counter[str]:
    """How often each field is kept in messages for this wire, by its path."""
    count: Counter[str] = Counter()
    for canister in canisters:
        if canister.extra:
            count.update(f"messages.{name}" for name in own_fields(wire, canister.extra))
        for part in () if isinstance(canister, InvocationCanister) else canister.content:
            if part.extra and wire == "chat":  # other wires keep whole parts so
                count.update(f"messages.content.{name}" for name in own_fields(wire, part.extra))
    return count


def kept(wire: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The `extra` of a tool that came over the wire with these fields besides."""
    return {wire: fields} if fields else {}


def distinct(tools: Iterable[ToolDeclaration]) -> tuple[tuple[ToolDeclaration, ...], tuple[str, ...]]:
    """The first tool of each name, for providers refuse two, and what is told of those that say something else."""
    first: dict[str, ToolDeclaration] = {}
    others = [tool for tool in tools if first.setdefault(tool.name, tool) != tool]
    return tuple(first.values()), tuple([second(tool.name) for tool in others])


def second(name: str) -> str:
    """What is told of a definition that does not count."""
    return f"second definition of the tool {name}"

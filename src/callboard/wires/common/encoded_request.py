"""A request as a wire encodes it, with what the way back needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from callboard.schema.provider_limits import Fitted

NO_NAMES: Mapping[str, str] = MappingProxyType({})
"""Every name on the wire is the declared one."""
NO_TOOLS: Mapping[str, Any] = MappingProxyType({})


class EncodedRequest(msgspec.Struct, frozen=True):
    """A request as a provider's body, and what the way back needs. Tools are named as they were declared."""

    body: dict[str, Any]
    names: Mapping[str, str] = NO_NAMES
    """From a tool's name on the wire to the declared one, where they differ."""
    dropped: tuple[str, ...] = ()
    """Each kind of thing that the wire could not carry."""
    nullable: Mapping[str, Mapping[str, Any]] = NO_TOOLS
    """Declared schemas of tools whose calls may contain nulls for missing optional members."""
    respelled: Mapping[str, Fitted] = NO_TOOLS
    """The tools whose arguments have other names on the wire."""

    def __post_init__(self) -> None:
        if self.dropped:
            msgspec.structs.force_setattr(self, "dropped", dedupe(self.dropped))

    @property
    def rewritten(self) -> frozenset[str]:
        """The tools whose arguments come back in another form than they were declared in."""
        return frozenset({*self.nullable, *self.respelled})

    def restore(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of a call in the form that the tool was declared in."""
        if tool in self.respelled:
            from callboard.schema.provider_limits import restore_names  # noqa: PLC0415 - few tools have such names

            arguments = restore_names(arguments, self.respelled[tool])
        if tool in self.nullable:
            from callboard.schema.strict import without_nulls  # noqa: PLC0415 - few schemas are made strict

            arguments = without_nulls(arguments, self.nullable[tool])
        return arguments


def dedupe(dropped: Iterable[str]) -> tuple[str, ...]:
    """Each of them once, in order."""
    return tuple(dict.fromkeys(dropped))

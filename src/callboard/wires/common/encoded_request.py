"""What a request became on a wire.

Owns the values that the way back needs. Knows no wire.
Law: `dropped` says nothing twice.
"""

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


class Lowered(msgspec.Struct, frozen=True):
    """A request in a provider's words.

    `names` maps a tool's name on the wire to the declared one, where they differ. `dropped` names each kind of
    thing that the wire could not carry. `nullable` are the tools, by their declared names, whose calls may have a
    null where an optional member is left out, and the schemas that they were declared with; `respelled` those whose
    arguments have other names on the wire.
    """

    body: dict[str, Any]
    names: Mapping[str, str] = NO_NAMES
    dropped: tuple[str, ...] = ()
    nullable: Mapping[str, Mapping[str, Any]] = NO_TOOLS
    respelled: Mapping[str, Fitted] = NO_TOOLS

    def __post_init__(self) -> None:
        if self.dropped:
            msgspec.structs.force_setattr(self, "dropped", once(self.dropped))

    @property
    def rewritten(self) -> frozenset[str]:
        """The tools whose calls come otherwise than they were declared."""
        return frozenset({*self.nullable, *self.respelled})

    def restored(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of a call as the tool was declared."""
        if tool in self.respelled:
            from callboard.schema.provider_limits import restored  # noqa: PLC0415 - few tools have such names

            arguments = restored(arguments, self.respelled[tool])
        if tool in self.nullable:
            from callboard.schema.strict import without_nulls  # noqa: PLC0415 - few schemas are made strict

            arguments = without_nulls(arguments, self.nullable[tool])
        return arguments


def once(dropped: Iterable[str]) -> tuple[str, ...]:
    """Each of them once, in order."""
    return tuple(dict.fromkeys(dropped))

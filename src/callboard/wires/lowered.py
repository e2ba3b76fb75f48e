"""What a request became on a wire.

Owns the values that the way back needs. Knows no wire.
Law: `dropped` says nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

NO_NAMES: Mapping[str, str] = MappingProxyType({})
"""Every name on the wire is the declared one."""
NO_NULLS: Mapping[str, Mapping[str, Any]] = MappingProxyType({})


class Lowered(msgspec.Struct, frozen=True):
    """A request in a provider's words.

    `names` maps a tool's name on the wire to the declared one, where they differ. `dropped` names each kind of
    thing that the wire could not carry. `nullable` are the tools, by their declared names, whose calls may have a
    null where an optional member is left out, and the schemas that they were declared with.
    """

    body: dict[str, Any]
    names: Mapping[str, str] = NO_NAMES
    dropped: tuple[str, ...] = ()
    nullable: Mapping[str, Mapping[str, Any]] = NO_NULLS

    def __post_init__(self) -> None:
        if self.dropped:
            msgspec.structs.force_setattr(self, "dropped", once(self.dropped))


def once(dropped: Iterable[str]) -> tuple[str, ...]:
    """Each of them once, in order."""
    return tuple(dict.fromkeys(dropped))

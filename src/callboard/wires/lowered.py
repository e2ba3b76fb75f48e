"""What a request became on a wire.

Owns the three values that the way back needs. Knows no wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

NO_NAMES: Mapping[str, str] = MappingProxyType({})
"""Every name on the wire is the declared one."""


class Lowered(msgspec.Struct, frozen=True):
    """A request in a provider's words.

    `names` maps a tool's name on the wire to the declared one, where they differ. `dropped` names the kind of
    each thing that the wire could not carry, once for each.
    """

    body: dict[str, Any]
    names: Mapping[str, str] = NO_NAMES
    dropped: tuple[str, ...] = ()

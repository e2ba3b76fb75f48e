"""The four ways to ask for calls, as rows.

Owns what differs between them. Knows nothing of how tools are declared on a wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from callboard.dialects import Dialect, dialect_named
from callboard.errors import CallerError
from callboard.profiles import ModeName, Prices, Resolution


class Mode(msgspec.Struct, frozen=True):
    """`declares` says where the tools stand; `dialect` is watched for in the text, "" takes the profile's."""

    name: ModeName
    declares: Literal["wire", "constraint", "prompt"]
    dialect: str
    validated: bool


MODES: Mapping[str, Mode] = MappingProxyType(
    {
        mode.name: mode
        for mode in (
            Mode("native", "wire", "", validated=True),
            Mode("structured", "constraint", "action", validated=True),
            Mode("validated", "prompt", "", validated=True),
            Mode("parsed", "prompt", "json", validated=False),
        )
    }
)


class Plan(msgspec.Struct, frozen=True):
    """How a model is asked, decided once before the first byte.

    `dialect` None watches for nothing; the rest is the profile's (see Profile).
    """

    mode: Mode
    dialect: Dialect | None = None
    in_prose: bool = False
    answer_after: Literal["model", "results"] = "model"
    constrains: bool = False
    prices: Prices | None = None


def plan(resolution: Resolution, mode: str = "") -> Plan:
    """The plan of a resolved model; `mode` overrides its own. Raises CallerError for one there is not."""
    name = mode or resolution.mode
    row = MODES.get(name)
    if row is None:
        raise CallerError(f"no mode {name!r}", hint=f"there are {', '.join(MODES)}")
    dialect = row.dialect or resolution.profile.dialect
    if not dialect and row.declares != "wire":
        dialect = "json"
    return Plan(
        row,
        dialect_named(dialect) if dialect else None,
        in_prose=resolution.profile.results == "prose",
        answer_after=resolution.profile.answer_after,
        constrains=resolution.profile.constrains,
        prices=resolution.profile.prices,
    )


def plan_of(model: object) -> Plan:
    """The plan that a model carries; one that says nothing of it is asked natively and believed."""
    found = getattr(model, "plan", None)
    return found if isinstance(found, Plan) else Plan(MODES["native"])

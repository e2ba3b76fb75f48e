"""What a row of facts says besides its facts: where each is known from, and which backend was asked.

`FACT_evidence` beside a fact is a sentence that `callboard explain` shows. `examined` is the backend out of which
`callboard doctor --write` found the facts: other commands compare it with the backend that they ask.

Law: evidence never outlives its fact. Where a higher layer sets a fact, the evidence of the lower one goes with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from callboard.profiles.profile import Profile

EVIDENCE: Final = "_evidence"
EXAMINED: Final = "examined"


class Examination(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A backend that was asked for facts."""

    url: str = ""
    """Its base URL, or `local:` and the name of a model of this machine."""
    version: str = ""
    """What it said of its version, "" if nothing."""
    date: str = ""


def remark_kind(key: str) -> type[Any] | None:
    """The type of a remark's value; None for a key that is none."""
    if key == EXAMINED:
        return Examination
    return str if key.endswith(EVIDENCE) and key.removesuffix(EVIDENCE) in Profile.__struct_fields__ else None


def select_facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without its remarks."""
    return {key: value for key, value in row.items() if remark_kind(key) is None}


def merge_rows(lower: Mapping[str, Any], higher: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of two rows with their own remarks; where both have a fact, the higher's."""
    replaced = {f"{fact}{EVIDENCE}" for fact in higher}
    return {key: value for key, value in lower.items() if key not in replaced} | dict(higher)

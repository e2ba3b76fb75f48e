"""Remarks in a row of facts: the source of each fact, and the examined backend.

`FACT_evidence` beside a fact is a sentence that `callboard explain` shows. `examined` is the backend in which
`callboard doctor --write` found the facts. Other commands compare it with the backend that they ask.

Law: evidence never outlives its fact. If a higher layer sets a fact, the lower layer's evidence is removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from callboard.profiles.profile import Profile

EVIDENCE: Final = "_evidence"
EXAMINED: Final = "examined"


class Examination(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A backend that was examined for facts on the day `date`."""

    url: str = ""
    """Base URL of the backend, or `local:` and the name of a local model."""
    version: str = ""
    """The version that the backend reported, or ""."""
    date: str = ""


def remark_kind(key: str) -> type[Any] | None:
    """Return the type of a remark's value, or None if the key is not a remark."""
    if key == EXAMINED:
        return Examination
    return str if key.endswith(EVIDENCE) and key.removesuffix(EVIDENCE) in Profile.__struct_fields__ else None


def select_facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row without its remarks."""
    return {key: value for key, value in row.items() if remark_kind(key) is None}


def merge_rows(lower: Mapping[str, Any], higher: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of two rows with their remarks. If both rows have a fact, the higher row wins."""
    replaced = {f"{fact}{EVIDENCE}" for fact in higher}
    return {key: value for key, value in lower.items() if key not in replaced} | dict(higher)

"""The phases of the coding agents, as data.

Owns the table in `phases.toml` and what a row may say. Knows nothing of how a phase is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Final, Literal, TypeAlias

import msgspec

from callboard.coding.jobs.store import JobType

Form: TypeAlias = Literal["phased", "short"]
"""Many phases with tools of many actions, or one phase with few single-action tools (seed 003's lessons)."""

Gathered: TypeAlias = Literal["tests", "files", "tree", "diff"]
Evidence: TypeAlias = Literal["looked", "said", "changed", "tests", "reproduced", "findings", "names_a_file"]


class Phase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A phase: see `phases.toml` for its fields. `settles` ends it as soon as its evidence holds; where it is `spoken`,
    the model calls no tools, and the code that it writes in words is put into the files.
    """

    name: str
    prompt: str
    rounds: int
    tools: tuple[str, ...]
    gathers: tuple[Gathered, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    output: Literal["", "findings"] = ""
    hands_on: bool = False
    settles: bool = False
    spoken: bool = False


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    groups: dict[str, tuple[str, ...]]
    phased: dict[JobType, tuple[Phase, ...]]
    short: dict[JobType, tuple[Phase, ...]]


READS: Final = ("look", "history")
"""The groups that change nothing."""


@cache
def _table() -> _Table:
    return msgspec.toml.decode(files("callboard.coding.agents").joinpath("phases.toml").read_bytes(), type=_Table)


def phases_of(kind: JobType, form: Form) -> tuple[Phase, ...]:
    """The phases of an agent, in their order."""
    table: Mapping[JobType, tuple[Phase, ...]] = getattr(_table(), form)
    return table[kind]


def actions(tools: Iterable[str]) -> tuple[str, ...]:
    """The single actions of groups and actions, each once."""
    groups = _table().groups
    return tuple(dict.fromkeys(each for name in tools for each in groups.get(name, (name,))))

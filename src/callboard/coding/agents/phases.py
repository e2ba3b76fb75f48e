"""The phases of the coding agents: the table in `phases.toml`, read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from callboard.coding.jobs.job import JobType
from callboard.configuration.coding import Access

Workflow: TypeAlias = Literal["phased", "short"]
"""Many phases with tools of many actions, or one phase with few tools of one action."""

PromptPart: TypeAlias = Literal["tests", "files", "tree", "diff"]
Evidence: TypeAlias = Literal["files_read", "answer", "changed", "tests", "failure_seen", "findings", "file_named"]

READ_GROUPS: Final = ("look", "history")
"""The groups of tools that change nothing."""
_WITHIN: Final[Mapping[Access, tuple[str, ...]]] = {
    "read-only": READ_GROUPS,
    "edit": (*READ_GROUPS, "edit", "commit", "run_tests"),
}


class Phase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of `phases.toml`, which explains the fields."""

    name: str
    prompt: str
    rounds: int
    tools: tuple[str, ...]
    prompt_context: tuple[PromptPart, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    output: Literal["", "findings"] = ""
    passes_summary: bool = False
    code_blocks: bool = False


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    groups: dict[str, tuple[str, ...]]
    phased: dict[JobType, tuple[Phase, ...]]
    short: dict[JobType, tuple[Phase, ...]]


@cache
def _table() -> _Table:
    return msgspec.toml.decode(files("callboard.coding.agents").joinpath("phases.toml").read_bytes(), type=_Table)


def phases_of(kind: JobType, workflow: Workflow, access: Access = "full") -> tuple[Phase, ...]:
    """The phases of an agent in their order, with those of their tools that the access allows."""
    table: Mapping[JobType, tuple[Phase, ...]] = getattr(_table(), workflow)
    if access == "full":
        return table[kind]
    allowed = actions_of_groups(_WITHIN[access])
    return tuple(
        replace(phase, tools=tuple(each for each in actions_of_groups(phase.tools) if each in allowed))
        for phase in table[kind]
    )


def actions_of_groups(names: Iterable[str]) -> tuple[str, ...]:
    """The single actions of groups, and of names that are actions themselves, each once."""
    groups = _table().groups
    return tuple(dict.fromkeys(action for name in names for action in groups.get(name, (name,))))

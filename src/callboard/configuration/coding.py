"""The settings of the coding agents: `[coding]` in callboard.toml.

Owns the keys of seed 003's configuration (limits, git, tools, project, context, modes, debug) that mean something here, and
their defaults. Knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

Strings: TypeAlias = tuple[str, ...]
Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Access: TypeAlias = Literal["read-only", "edit", "full"]
"""What a job may do: read; change files, commit and run the tests; run commands as well."""

RESULT_LIMITS: Final[Mapping[str, int]] = {
    "search": 6000,
    "grep": 6000,
    "file": 24_000,
    "read_file": 24_000,
    "code_edit": 24_000,
    "get_lines": 24_000,
    "default": 8000,
}
"""Characters of a result that a model is shown, by tool."""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class LimitSettings(_Table, frozen=True):
    """`max_task_duration_minutes` and `max_inference_runs` bound a whole job; without the second the phases' own rounds do.

    The others bound each command in the sandbox: `command_seconds`, `command_memory_mb` of a process, `command_processes`.
    """

    max_task_duration_minutes: Positive = 30
    max_inference_runs: Count | None = None
    command_seconds: Positive = 120
    command_memory_mb: Count = 2048
    command_processes: Count = 256


class GitSettings(_Table, frozen=True):
    """`branch_prefix` begins the names of jobs' branches; `remote` is pushed to; `always_draft_pr` makes pull requests drafts.

    `fetch` lets a job fetch what the commit that it begins at lacks here: in a partial clone, or of git-lfs.
    """

    branch_prefix: str = "callboard/"
    remote: str = "origin"
    always_draft_pr: bool = True
    fetch: bool = False


class ToolSettings(_Table, frozen=True):
    """Command patterns of `bash`, by shell words: those that are allowed (all, if empty) and those that are not."""

    allowed_bash_commands: Strings = ()
    forbidden_commands: Strings = ()


class ProjectSettings(_Table, frozen=True):
    """What the model is told of the project; `workdir` is the folder of the repository that the tests run in."""

    name: str = ""
    workdir: str = ""
    tech_stack: Strings = ()


class SandboxSettings(_Table, frozen=True):
    """`hosts` may be reached from the sandbox (`example.org`, `*.example.org`), `readable` are further folders that are seen there.

    `allow_weaker` lets jobs, whose commands nobody looks at, run in a sandbox that leaves something outside of the
    workspace open to change; by default they are refused. Only a user may say so, for the project's file is guarded.
    """

    hosts: Strings = ()
    readable: Strings = ()
    allow_weaker: bool = False


class ContextSettings(_Table, frozen=True):
    """`compact_at` is the share of the model's context at which older rounds are compacted, `keep_rounds` stay as they are.

    With `compact_every_n_rounds` they are compacted whenever so many have come besides, within that share too.
    `tool_result_limits` are characters by tool; `default` is for the others.
    """

    compact_at: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.75
    keep_rounds: Count = 3
    compact_every_n_rounds: Count | None = None
    tool_result_limits: dict[str, Count] = {}

    def result_limit(self, tool: str) -> int:
        """Characters of a result of this tool."""
        limits = {**RESULT_LIMITS, **self.tool_result_limits}
        return limits.get(tool, limits["default"])


class DebugSettings(_Table, frozen=True):
    """`enabled` shows all of a job, as `--verbose` does; `keep_temp_files` keeps its working tree when it is done."""

    enabled: bool = False
    keep_temp_files: bool = False


class ModeSettings(_Table, frozen=True):
    """Of one kind of job. `access` is what it may do, `rounds` bounds it, `deny` are permission patterns of tools."""

    access: Access | None = None
    rounds: Count | None = None
    deny: Strings = ()


class CodingSettings(_Table, frozen=True):
    """`[coding]`."""

    limits: LimitSettings = LimitSettings()
    git: GitSettings = GitSettings()
    tools: ToolSettings = ToolSettings()
    project: ProjectSettings = ProjectSettings()
    sandbox: SandboxSettings = SandboxSettings()
    context: ContextSettings = ContextSettings()
    modes: dict[Literal["build", "debug", "review", "triage", "chat"], ModeSettings] = {}
    debug: DebugSettings = DebugSettings()


CHAT_ROUNDS: Final = 50
"""Replies of a turn of a chat where nothing bounds them."""

DENIALS: Final = (("tools", "forbidden_commands"), ("modes", "*", "deny"))
"""Lists of what is denied: those of all files hold together. `*` stands for any one key."""


def merge_tables(lower: Mapping[str, Any], higher: Mapping[str, Any], above: tuple[str, ...] = ()) -> dict[str, Any]:
    """The tables of two files as one, key by key; the higher file's values win, and denials are added."""
    merged = dict(lower)
    for key, value in higher.items():
        keys = (*above, key)
        if isinstance(lower.get(key), Mapping) and isinstance(value, Mapping):
            merged[key] = merge_tables(lower[key], value, keys)
        elif any(len(each) == len(keys) and all(map(_matches, each, keys)) for each in DENIALS):
            merged[key] = [*lower.get(key, ()), *value]
        else:
            merged[key] = value
    return merged


def _matches(part: str, key: str) -> bool:
    return part in {"*", key}

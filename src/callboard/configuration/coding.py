"""The settings of the coding agents: `[coding]` in callboard.toml.

The names of the tables and keys are those of the specification.
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
"""Characters of a result that a model gets, by tool."""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class LimitSettings(_Table, frozen=True):
    """`[coding.limits]`: bounds of a whole job, and of each command in the sandbox."""

    max_task_duration_minutes: Positive = 30
    max_inference_runs: Count | None = None
    """Replies of a whole job; None leaves it to the rounds of each phase."""
    command_seconds: Positive = 120
    command_memory_mb: Count = 2048
    """Of each process."""
    command_processes: Count = 256


class GitSettings(_Table, frozen=True):
    """`[coding.git]`."""

    branch_prefix: str = "callboard/"
    """The beginning of the names of jobs' branches."""
    remote: str = "origin"
    """The remote that is pushed to."""
    always_draft_pr: bool = True
    """Whether pull requests are drafts."""
    fetch: bool = False
    """Whether a job may fetch objects that are missing here: in a partial clone, or of git-lfs."""


class ToolSettings(_Table, frozen=True):
    """`[coding.tools]`: patterns of commands of `bash`, by shell words."""

    allowed_bash_commands: Strings = ()
    """All, if empty."""
    forbidden_commands: Strings = ()


class ProjectSettings(_Table, frozen=True):
    """`[coding.project]`: facts for the model's prompt."""

    name: str = ""
    workdir: str = ""
    """The folder of the repository in which the tests run."""
    tech_stack: Strings = ()


class SandboxSettings(_Table, frozen=True):
    """`[coding.sandbox]`."""

    hosts: Strings = ()
    """Hosts that commands may reach (`example.org`, `*.example.org`)."""
    readable: Strings = ()
    """Further folders that commands may read."""
    allow_weaker: bool = False
    """Whether jobs, whose commands nobody looks at, may run in a sandbox that lets them change something outside of the
    workspace. Only in the user's own file."""


class ContextSettings(_Table, frozen=True):
    """`[coding.context]`: when older rounds are compacted, and how long results may be."""

    compact_at: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.75
    """The share of the model's context window at which older rounds are compacted."""
    keep_rounds: Count = 3
    """The latest rounds, which are never compacted."""
    compact_every_n_rounds: Count | None = None
    """Compact after so many further rounds too, below that share."""
    tool_result_limits: dict[str, Count] = {}
    """Characters of a result by tool; `default` is for the others."""

    def result_limit(self, tool: str) -> int:
        """Characters of a result of this tool."""
        limits = {**RESULT_LIMITS, **self.tool_result_limits}
        return limits.get(tool, limits["default"])


class DebugSettings(_Table, frozen=True):
    """`[coding.debug]`."""

    enabled: bool = False
    """Show all of a job, as `--verbose` does."""
    keep_temp_files: bool = False
    """Keep a job's working tree when it is done."""


class ModeSettings(_Table, frozen=True):
    """`[coding.modes.KIND]`: one kind of job."""

    access: Access | None = None
    rounds: Count | None = None
    deny: Strings = ()
    """Permission patterns of tools that are denied."""


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
"""Lists of denials, which are added up over all files. `*` matches any one key."""


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

"""The settings of the coding agents: `[coding]` in callboard.toml.

The specification names the tables and keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

Strings: TypeAlias = tuple[str, ...]
Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Access: TypeAlias = Literal["read-only", "edit", "full"]
"""Rights of a job: read; also change files, commit and run the tests; also run commands."""

RESULT_LIMITS: Final[Mapping[str, int]] = {
    "search": 6000,
    "grep": 6000,
    "file": 24_000,
    "read_file": 24_000,
    "code_edit": 24_000,
    "get_lines": 24_000,
    "skill": 24_000,
    "default": 8000,
}
"""Maximum characters of a result for the model, by tool."""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class LimitSettings(_Table, frozen=True):
    """`[coding.limits]`: limits of a job, and of each command in the sandbox."""

    max_task_duration_minutes: Positive = 30
    max_inference_runs: Count | None = None
    """Maximum replies of a job; None means the sum of its phases."""
    command_seconds: Positive = 120
    command_memory_mb: Count = 2048
    """Memory of each process, in MB."""
    command_processes: Count = 256


class GitSettings(_Table, frozen=True):
    """`[coding.git]`."""

    branch_prefix: str = "callboard/"
    """Prefix of the jobs' branch names."""
    remote: str = "origin"
    """The remote to push to."""
    always_draft_pr: bool = True
    """True to open pull requests as drafts."""
    fetch: bool = False
    """True to let jobs fetch objects that a partial clone or git-lfs lacks."""


class ToolSettings(_Table, frozen=True):
    """`[coding.tools]`: patterns of `bash` commands, by shell words."""

    allowed_bash_commands: Strings = ()
    """Commands to allow; empty allows all."""
    forbidden_commands: Strings = ()


class ProjectSettings(_Table, frozen=True):
    """`[coding.project]`: facts for the model's prompt."""

    name: str = ""
    workdir: str = ""
    """The folder in the repository where the tests run."""
    tech_stack: Strings = ()


class SandboxSettings(_Table, frozen=True):
    """`[coding.sandbox]`."""

    hosts: Strings = ()
    """Hosts that commands may reach (`example.org`, `*.example.org`)."""
    readable: Strings = ()
    """Additional folders that commands may read."""
    allow_weaker: bool = False
    """True to run jobs' unattended commands in a sandbox that does not block every write outside the workspace. Only in
    the user's own file."""


class ContextSettings(_Table, frozen=True):
    """`[coding.context]`: when older rounds are compacted, and how long results may be."""

    compact_at: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.75
    """The share of the model's context window at which older rounds are compacted."""
    keep_rounds: Count = 3
    """Number of latest rounds that are never compacted."""
    compact_every_n_rounds: Count | None = None
    """Also compact after this many rounds, below that share."""
    tool_result_limits: dict[str, Count] = {}
    """Maximum characters of a result, by tool; `default` applies to other tools."""

    def result_limit(self, tool: str) -> int:
        """Return the maximum characters of a result of this tool."""
        limits = {**RESULT_LIMITS, **self.tool_result_limits}
        return limits.get(tool, limits["default"])


class DebugSettings(_Table, frozen=True):
    """`[coding.debug]`."""

    enabled: bool = False
    """Show all steps of a job, as `--verbose` does."""
    keep_temp_files: bool = False
    """Keep a job's working tree after the job."""


class ModeSettings(_Table, frozen=True):
    """`[coding.modes.KIND]`: one kind of job."""

    access: Access | None = None
    rounds: Count | None = None
    deny: Strings = ()
    """Permission patterns of tools that are denied."""


class PhaseSettings(_Table, frozen=True):
    """`[coding.phases.NAME]`: one phase of the agents."""

    model: str = ""
    """The model of the phase; by default the job's."""


class CodingSettings(_Table, frozen=True):
    """`[coding]`."""

    escalate: str = ""
    """A stronger model that continues a phase in which the job's model is stuck."""
    limits: LimitSettings = LimitSettings()
    git: GitSettings = GitSettings()
    tools: ToolSettings = ToolSettings()
    project: ProjectSettings = ProjectSettings()
    sandbox: SandboxSettings = SandboxSettings()
    context: ContextSettings = ContextSettings()
    modes: dict[Literal["build", "debug", "review", "triage", "chat"], ModeSettings] = {}
    phases: dict[str, PhaseSettings] = {}
    debug: DebugSettings = DebugSettings()


CHAT_ROUNDS: Final = 50
"""Default maximum of replies in a turn of a chat."""

DENIALS: Final = (("tools", "forbidden_commands"), ("modes", "*", "deny"))
"""Lists of denials, which are joined over all files. `*` matches any one key."""


def merge_tables(lower: Mapping[str, Any], higher: Mapping[str, Any], above: tuple[str, ...] = ()) -> dict[str, Any]:
    """Merge the tables of two files key by key. The higher file's values win; denials are joined."""
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

"""A person's request to a coding agent.

A command makes one `JobRequest`, which never changes. A step that knows more, such as the text of an issue, makes a new
request.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, get_args

import msgspec

from callboard.coding.agents.phases import Workflow
from callboard.coding.job import JobType
from callboard.configuration import Settings
from callboard.configuration.coding import Access
from callboard.errors import CallerError

ACCESS_LEVELS: Final[tuple[Access, ...]] = get_args(Access)
MAX_LOGS: Final = 20_000
"""Characters of a file of logs that are read: its end."""

_MAX_READ = 64 * 1024 * 1024
_NOT_INPUT: Final = frozenset({"kind", "directory", "settings", "logs", "github_text"})
"""Fields that are not in a job's record, or are elsewhere in it."""


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The task, the directory and the options. Raises CallerError if anything is missing or wrong."""

    kind: JobType
    directory: Path
    settings: Settings
    description: str = ""
    """Feature to build, symptoms of a fault, or a report."""
    logs: str = ""
    """See `read_logs`."""
    logs_file: str = ""
    issue: int | None = None
    pull_request: int | None = None
    """The pull request that is reviewed."""
    github_text: str = ""
    """The text of the issue or the pull request."""
    branch: str = ""
    """The branch that is reviewed."""
    base: str = ""
    """Commit that the branch is compared with; by default the HEAD of the user's tree."""
    commit: str = ""
    """Commit at which the job's branch begins; by default HEAD."""
    push: bool = False
    open_pull_request: bool = False
    model: str = ""
    base_url: str = ""
    mode: str = ""
    dialect: str = ""
    context: int = 0
    """Default: the context in the settings."""
    effort: str = ""
    escalate: str = ""
    """A stronger model for when this one is stuck; by default the one in the settings."""
    access: Access | Literal[""] = ""
    """Default: the access in the settings; see `access_level`."""
    workflow: Workflow | Literal[""] = ""
    """Default: the workflow in the model's profile."""
    rounds: int | None = None
    budget: float | None = None
    """Default: the budget in the settings; see `max_cost`."""
    without_sandbox: bool = False
    allow_weaker_sandbox: bool = False
    keep_tree: bool = False

    def __post_init__(self) -> None:
        if self.access:
            parse_access(self.access, "--access")
        if self.workflow not in ("", *get_args(Workflow)):
            raise CallerError(f"no workflow {self.workflow!r}", path="--workflow", hint="there are phased and short")
        if self.kind in ("build", "debug") and self.access_level == "read-only":
            raise CallerError(
                f"{self.kind} changes files", path="--access read-only", hint="ask with callboard triage or review"
            )
        required = {"debug": "symptoms", "review": "branch"}.get(self.kind, "description")
        text = self.branch if self.kind == "review" else self.description
        if self.kind != "chat" and not text.strip() and not self.issue and not self.pull_request:
            instead = "--pr" if self.kind == "review" else "--issue"
            hint = f'write callboard {self.kind} "...", or give {instead}'
            raise CallerError(f"missing {required!r} in input", path=f"--{required}", hint=hint)

    @property
    def access_level(self) -> Access:
        """Return the model's access: from the request, else the settings, else full; a chat asks before changes."""
        mode = self.settings.coding.modes.get(self.kind)
        return self.access or (mode and mode.access) or ("edit" if self.kind == "chat" else "full")

    @property
    def max_rounds(self) -> int | None:
        """Return the maximum replies of the job, or of each turn of a chat; None if the total has no limit."""
        coding = self.settings.coding
        mode = coding.modes.get(self.kind)
        return self.rounds or (mode and mode.rounds) or coding.limits.max_inference_runs

    @property
    def max_cost(self) -> float | None:
        """Return the job's budget in US dollars; None if it has no limit."""
        return self.budget or self.settings.budget

    def branch_of(self, identifier: str) -> str:
        """Return the branch name of the job made from the request."""
        return f"{self.settings.coding.git.branch_prefix}{self.kind}-{identifier}"

    @property
    def input(self) -> dict[str, Any]:
        """Return the request's fields for the job's record."""
        return {
            name: value for name in self.__struct_fields__ if name not in _NOT_INPUT and (value := getattr(self, name))
        }


def request_of(kind: str, directory: str, job_input: Mapping[str, Any], settings: Settings) -> JobRequest:
    """Rebuild the request of a job, with fresh settings. The job's input has the whole task.

    Raises CallerError.
    """
    known = {*JobRequest.__struct_fields__} - _NOT_INPUT
    fields = {name: value for name, value in job_input.items() if name in known}
    return JobRequest(
        kind=kind,  # type: ignore[arg-type]  # the kind of a job that a request made
        directory=Path(directory),
        settings=settings,
        **fields,
    )


def parse_access(name: str, path: str) -> Access:
    """Return the access of this name; `path` says where the name comes from. Raises CallerError."""
    for level in ACCESS_LEVELS:
        if level == name:
            return level
    raise CallerError(f"no access {name!r}", path=path, hint=f"there are {', '.join(ACCESS_LEVELS)}")


def read_logs(file: Path) -> str:
    """Return the end of a log file of any length; for an endless file, such as a device, the end of its beginning.

    Raises CallerError.
    """
    try:
        with file.open("rb") as opened:
            # A shorter file, and a pipe, is read from its beginning.
            with suppress(OSError):
                opened.seek(-4 * MAX_LOGS, os.SEEK_END)
            data = opened.read(_MAX_READ)
    except OSError as error:
        raise CallerError(error.strerror or str(error), path=str(file)) from None
    return data[-4 * MAX_LOGS :].decode("utf-8", "replace")[-MAX_LOGS:]

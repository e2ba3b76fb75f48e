"""A coding job or a chat as its runner knows it: what it hands over, and the steps beside its conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import msgspec

from callboard.core import Event, PictureContent
from callboard.text.surrogates import encode_json

JobType: TypeAlias = Literal["build", "debug", "review", "triage", "chat"]
JobState: TypeAlias = Literal["running", "completed", "failed"]

MAX_DIFF: Final = 1_000_000
"""Characters of the diff that a job's record holds."""


UNTESTED: Final = "not tested"
"""How `JobOutput.tests` begins if no test ran."""


@dataclass(frozen=True)
class Finding:
    """A fault that a review found: where, how bad, and what is wrong."""

    file: str
    line: int
    severity: Literal["critical", "high", "medium", "low"]
    problem: str


class PullRequest(msgspec.Struct, frozen=True):
    """The text of a pull request, whether it is opened or not."""

    title: str
    body: str


class Checkpoint(msgspec.Struct, frozen=True):
    """A chat's turn that changed files: the snapshots before and after it. `after` is "" if its process died in it."""

    before: str
    after: str = ""
    files: tuple[str, ...] = ()
    undone: bool = False


class ModelUse(msgspec.Struct, frozen=True):
    """What one of several models of a job did."""

    model: str
    rounds: int
    cost: float | None
    """Cost in US dollars; None if unknown."""


class JobOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a job."""

    summary: str = ""
    """The answer in words; of a review its findings, a line each."""
    missing: tuple[str, ...] = ()
    """A sentence for each missing piece of evidence."""
    branch: str = ""
    """Empty where nothing was committed."""
    commits: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    diff: str = ""
    tests: str = ""
    """The outcome of the last run of all tests in one line; `UNTESTED`, and why, if no test ran."""
    pull_request: PullRequest | None = None
    pull_request_url: str = ""
    patch: str = ""
    """Path of the file for `git apply`, if the folder has no git."""
    findings: tuple[Finding, ...] | None = None
    models: tuple[ModelUse, ...] = ()
    """The models that worked on the job, if there were several."""
    turns: tuple[Checkpoint, ...] = ()
    """Turns of a chat that changed files, including the current turn."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One job while a process runs it."""

    id: str
    type: JobType
    description: str
    """The task in full, with the issue and the logs."""
    directory: str
    """The user's; `tree` says where the job works."""
    model: str = ""
    input: dict[str, Any] = {}
    """Arguments of the command."""
    state: JobState = "running"
    reason: str = ""
    """Why it is in its state, where there is something to say."""
    phase: str = ""
    output: JobOutput = JobOutput()
    error: str = ""
    tree: dict[str, Any] = {}
    memory: dict[str, Any] = {}
    """State that another process needs to continue the job, besides its steps."""
    rounds: int = 0
    calls: int = 0
    usage: dict[str, int] = {}
    cost: float | None = None
    """Cost in US dollars; None if unknown."""


class PhaseStarted(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="phase_started"):
    """A phase begins; `rounds` is how many replies it may take, `model` its model if it is not the job's."""

    name: str
    rounds: int
    model: str = ""


class ModelChanged(msgspec.Struct, frozen=True, tag_field="type", tag="model_changed"):
    """Another model continues the phase, with the conversation so far."""

    model: str
    why: str


class PhaseEnded(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="phase_ended"):
    """A phase has ended; `missing` lists the missing evidence, empty if the phase is done."""

    name: str
    missing: tuple[str, ...] = ()


class Notice(msgspec.Struct, frozen=True, tag_field="type", tag="notice"):
    """Callboard's own words to the user."""

    text: str


class PromptSent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="prompt_sent"):
    """The model was sent a prompt: a task, or what is missing; `pictures` are what a person showed with it."""

    text: str
    pictures: tuple[PictureContent, ...] = ()


class TreeSnapshot(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="tree_snapshot"):
    """The job's files and notes after a round; a fork of the round begins with them."""

    tree: str
    """The id of a git tree, whose objects are in the job's folder."""
    memory: dict[str, Any] = {}


class FileEdited(msgspec.Struct, frozen=True, tag_field="type", tag="file_edited"):
    """A call changed a file. `diff` is its unified diff; /dev/null is the name of a file that does not exist."""

    path: str
    added: int
    removed: int
    diff: str


class Resumed(msgspec.Struct, frozen=True, tag_field="type", tag="resumed"):
    """Another process continues the job. Discard an unfinished reply. Keep everything else."""


Step: TypeAlias = (
    Event | PhaseStarted | PhaseEnded | ModelChanged | Notice | PromptSent | FileEdited | TreeSnapshot | Resumed
)
"""An event in a job."""


def encode_step(step: Step) -> bytes:
    """Return the step as one line of JSON, without the line break."""
    return encode_json(step)

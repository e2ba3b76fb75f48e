"""The record of a running job: its steps, its notes, and its spans if telemetry is on.

The notes are what another process needs to continue the job, apart from the steps. They are small: the steps hold the
conversation, and the tree holds the changes. The planning phase is a `plan KIND` span of the conventions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import msgspec
from msgspec.structs import replace

from callboard.coding.agents.mutation_check import MutationResult
from callboard.coding.agents.phases import Workflow
from callboard.coding.job import Finding, Job, ModelUse, Step
from callboard.coding.test_runners import TestReport
from callboard.core import Answer, Canister, InvocationCanister, Journal, Model, RunProgress
from callboard.errors import CallboardError
from callboard.providers.inference_span import describe_model
from callboard.telemetry import NO_SPAN, Span, names, open_span, switch
from callboard.text.surrogates import encode_json


class RunRecord(Journal, Protocol):
    """The journal of a run of a job."""

    def find_unsaved(self, canisters: Sequence[Canister]) -> list[Canister]:
        """Return the canisters of a run that are not written yet, because the run was stopped."""
        ...


class JobLeft(Exception):
    """The process leaves a job; another process continues it from the record."""


class JobRecord(Protocol):
    """The record that the runner of a job writes."""

    @property
    def job(self) -> Job:
        """The job as it is recorded."""
        ...

    @property
    def folder(self) -> Path:
        """The folder for the job's files: its tree, and what was too long for the model."""
        ...

    @property
    def is_left(self) -> bool:
        """True if another process continues the job. Then nothing is delivered, and the tree stays as it is."""
        ...

    @property
    def begins_fork(self) -> bool:
        """Whether all that is recorded is of the job that this one is a fork of."""
        ...

    def should_leave(self) -> bool:
        """Return whether this process leaves the job now, at the beginning of a round; then it is left."""
        ...

    def should_wait(self, failure: CallboardError) -> bool:
        """Return whether the job waits until its model can be asked again. Then this process leaves the job."""
        ...

    def open_journal(self, name: str, start: RunProgress | None = None) -> RunRecord:
        """Open the journal of a run by its unique name in the job; `start` is the progress if none is saved."""
        ...

    def find_answers(self, calls: Sequence[InvocationCanister]) -> tuple[Mapping[str, Answer], Mapping[str, Any]]:
        """Return people's answers to waiting calls: approvals and results, by call identifier."""
        ...

    def steps(self) -> Iterable[Step | Canister]:
        """Return the steps that earlier processes recorded."""
        ...

    def add(self, step: Step) -> None:
        """Record a step. Raises CallerError, OSError."""
        ...

    def update(self, **changes: Any) -> None:
        """Change fields of the job. Raises OSError."""
        ...

    async def save(self, canisters: Sequence[Canister] = ()) -> None:
        """Write all of it, and these canisters. A reply that is not whole is not written."""
        ...


MAX_FAILURES: Final = 12
"""Failures of a report that are kept with their messages, as many as a prompt shows."""

_NOT_FORKED: Final = frozenset({"seconds", "first_report", "last_report", "is_delivered"})
"""Notes of which the job's last ones do as well, or none."""


class PhaseMemory(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Memory of the running phase."""

    name: str = ""
    saw_failure: bool = False
    checks: int = 0
    """Runs after which the evidence was checked."""
    refusals: int = 0
    """Claims of being done that were refused in a row, with nothing changed in between."""
    digest: str = ""
    """Digest of the tree when the evidence was last checked."""
    why: str = ""
    """Why the last run ended incomplete."""
    model: str = ""
    """Name of the stronger model, if it has taken over."""
    checks_before: int = 0
    """Checks of the evidence before it took over."""
    rounds_before: int = 0
    """Replies of the job before it took over."""
    kept_files: dict[str, bytes] = {}
    """Contents by path: the best tests so far if the model writes only tests, else the code with which fewer tests fail."""
    failing: tuple[str, ...] = ()
    """Names of the tests that fail with the kept code."""
    kept_result: MutationResult | None = None
    """The mutants that the kept tests notice; None if no tests are kept."""
    mutated_files: tuple[str, ...] = ()
    """Files that are changed for a moment, to see whether the tests notice."""
    holes_begin: int = 0
    """Attempts before the first one that asks for lines of the code as it is now."""
    fills: int = 0
    """Replies that were asked for one line."""
    repeated: int = 0
    """Replies whose code was tested before."""
    cannot_escalate: bool = False
    """Whether the stronger model could not be asked."""


class JobMemory(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The notes of a job."""

    workflow: Workflow | Literal[""] = ""
    """The profile of a model may change while a job waits."""
    base: str = ""
    """The commit that a review compares with: the user's HEAD may move."""
    seconds: float = 0.0
    """How long the job ran, which is not how long ago it began."""
    first_report: TestReport | None = None
    """Report of the first run of all tests; later runs are compared with it."""
    last_report: TestReport | None = None
    findings: tuple[Finding, ...] | None = None
    dropped_tests: tuple[str, ...] = ()
    mutants: tuple[int, int] = (0, 0)
    """Of the small mistakes that were made in the code: how many the new tests notice, and how many there were."""
    models: tuple[ModelUse, ...] = ()
    messages: tuple[str, ...] = ()
    """Messages of a person to the model while the job ran."""
    is_delivered: bool = False
    """Whether what was changed is committed, and the job's output says so."""
    phase: PhaseMemory = msgspec.field(default_factory=PhaseMemory)

    @classmethod
    def load(cls, record: dict[str, Any]) -> JobMemory:
        """Return the notes in a job's record."""
        return msgspec.convert(record, cls)

    def dump_for_fork(self) -> dict[str, Any]:
        """Return the notes that a fork begins with; the tests' last report and the time are its own."""
        fields = self.dump()
        return {name: value for name, value in fields.items() if name not in _NOT_FORKED}

    def dump(self) -> dict[str, Any]:
        """Return the notes as JSON has them."""
        fields: dict[str, Any] = msgspec.json.decode(encode_json(self))
        return fields


def trim_report(report: TestReport | None) -> TestReport | None:
    """Return a report without the messages of most failures."""
    if report is None:
        return None
    first, rest = report.failures[:MAX_FAILURES], report.failures[MAX_FAILURES:]
    return replace(report, failures=(*first, *(replace(each, message="") for each in rest)))


def open_job_span(kind: str, model: Model, job: str) -> Span:
    """Begin the span of a job of a kind, by its name; runs of its agent are below it."""
    if switch.recorder is None:
        return NO_SPAN
    about = {**describe_model(model), names.OPERATION: names.INVOKE_AGENT, names.AGENT_NAME: kind, names.JOB_ID: job}
    return open_span(f"{names.INVOKE_AGENT} {kind}", attributes=about)


def open_phase_span(kind: str, phase: str) -> Span:
    """Begin the span of a phase of an agent."""
    if switch.recorder is None:
        return NO_SPAN
    about = {names.AGENT_NAME: kind, names.PHASE: phase}
    if phase == names.PLAN:
        return open_span(f"{names.PLAN} {kind}", attributes={**about, names.OPERATION: names.PLAN})
    return open_span(f"phase {phase}", attributes=about)

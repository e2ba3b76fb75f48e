"""What a job needs to go on in another process, and what its steps do not say. It is part of the job's record.

It is small: the steps hold the conversation, and the tree holds what was changed.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from callboard.coding.agents.phases import Workflow
from callboard.coding.json_encoding import encode_json
from callboard.coding.output import Finding
from callboard.coding.test_runners import TestReport

MAX_FAILURES: Final = 12
"""Failures of a report that are kept with their messages, as many as a prompt shows."""

_NOT_FORKED: Final = frozenset({"seconds", "first_report", "last_report", "is_delivered"})
"""Notes of which the job's last ones do as well, or none."""


class PhaseMemory(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Of the phase that runs."""

    name: str = ""
    saw_failure: bool = False
    checks: int = 0
    """Runs after which the evidence was checked."""
    refusals: int = 0
    """Claims of being done that were refused in a row, with nothing changed in between."""
    digest: str = ""
    """Of the tree when the evidence was checked last."""
    why: str = ""
    """Why the last run ended incomplete."""


class JobMemory(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The notes of a job."""

    workflow: Workflow | Literal[""] = ""
    """The profile of a model may change while a job waits."""
    base: str = ""
    """The commit that a review compares with: the user's HEAD may move."""
    seconds: float = 0.0
    """How long the job ran, which is not how long ago it began."""
    first_report: TestReport | None = None
    """Of the first run of all tests, the measure for those after it."""
    last_report: TestReport | None = None
    findings: tuple[Finding, ...] | None = None
    dropped_tests: tuple[str, ...] = ()
    is_delivered: bool = False
    """Whether what was changed is committed, and the job's output says so."""
    phase: PhaseMemory = msgspec.field(default_factory=PhaseMemory)

    @classmethod
    def load(cls, record: dict[str, Any]) -> JobMemory:
        """The notes in a job's record."""
        return msgspec.convert(record, cls)

    def dump_for_fork(self) -> dict[str, Any]:
        """The notes that a fork begins with; the tests' last report and the time are its own."""
        fields = self.dump()
        return {name: value for name, value in fields.items() if name not in _NOT_FORKED}

    def dump(self) -> dict[str, Any]:
        """The notes as JSON has them."""
        fields: dict[str, Any] = msgspec.json.decode(encode_json(self))
        return fields


def trim_report(report: TestReport | None) -> TestReport | None:
    """A report without the messages of most failures."""
    if report is None:
        return None
    first, rest = report.failures[:MAX_FAILURES], report.failures[MAX_FAILURES:]
    return replace(report, failures=(*first, *(replace(each, message="") for each in rest)))

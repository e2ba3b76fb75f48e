"""What has to hold before a phase is done.

Owns the table of evidence and the words for what is missing. Does nothing itself: it judges facts that others found.
Law: what a model says is never evidence of what was done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import msgspec

from callboard.coding.agents.phases import Evidence

SHOWN: Final = 5
"""Names that are listed of many."""


@dataclass(frozen=True)
class Finding:
    """A fault that a review found: where, how bad, and what is wrong."""

    file: str
    line: int
    severity: Literal["critical", "high", "medium", "low"]
    problem: str


class Report(Protocol):
    """What is asked of a report of tests."""

    @property
    def is_good(self) -> bool: ...

    @property
    def total(self) -> int: ...

    @property
    def summary(self) -> str: ...


class Facts(msgspec.Struct, kw_only=True):
    """What is known at the end of a phase.

    `looked` counts calls that read something, `changed` are the files that differ from where the job began, `kept`
    those that were to stay as they are and did not. `testable` says that there are tests to run; `report` is of the
    tree as it is, None if they did not run on it; `before` how many ran at the beginning. `wants_tests` says that the
    task names a new file of tests, `has_new_tests` that more of them pass than at the beginning. `failed` says that something
    was seen to fail. `findings` are a review's, `reviewed` the lines of each file that the change under review wrote.
    """

    said: str = ""
    looked: int = 0
    changed: Sequence[str] = ()
    kept: Sequence[str] = ()
    testable: bool = False
    report: Report | None = None
    before: int = 0
    wants_tests: bool = False
    has_new_tests: bool = False
    failed: bool = False
    findings: Sequence[Finding] | None = None
    reviewed: Mapping[str, Collection[int]] = {}
    files: Collection[str] = ()


def missing(evidence: Sequence[Evidence], facts: Facts) -> list[str]:
    """What is lacking, a sentence each; nothing where all of it holds."""
    return [lack for each in evidence if (lack := _TABLE[each](facts))]


def complaint(lacks: Sequence[str]) -> str:
    """What the model is told when it says that it is done."""
    listed = "\n".join(f"- {each}" for each in lacks)
    return f"This is not done yet:\n{listed}\nGo on with the tools."


def _looked(facts: Facts) -> str:
    return "" if facts.looked else "no file was looked at: read or search the code with a tool first."


def _said(facts: Facts) -> str:
    return "" if facts.said.strip() else "there is no answer in words."


def _changed(facts: Facts) -> str:
    return "" if facts.changed else "no file has changed: words alone change nothing, edit the files with a tool."


def _tests(facts: Facts) -> str:
    if facts.kept:
        return (
            f"{_listed(facts.kept)} may not be changed: the tests that failed are the measure. Put it back as it was."
        )
    if not facts.testable:
        return ""
    if facts.report is None:
        return "the tests have not been run on the files as they are now."
    if not facts.report.is_good:
        return f"the tests do not pass:\n{facts.report.summary}"
    if facts.report.total < facts.before:
        return f"only {facts.report.total} tests ran, and {facts.before} before: no test may be taken away."
    if facts.wants_tests and not facts.has_new_tests:
        return "no new test ran: the task names a file of tests that is to be written."
    return ""


def _reproduced(facts: Facts) -> str:
    if facts.failed:
        return ""
    return "nothing was seen to fail: run the tests, or a command that shows the fault."


def _findings(facts: Facts) -> str:
    if facts.findings is None:
        return "there are no findings in the form that was asked for."
    for each in facts.findings:
        if each.file not in facts.reviewed:
            return f"{each.file!r} is no file of the change; there are {_listed([*facts.reviewed])}."
    return ""


def _names_a_file(facts: Facts) -> str:
    words = set(re.findall(r"[\w./-]*\w", facts.said))
    if any(each in words or each.rpartition("/")[2] in words for each in facts.files):
        return ""
    return "no file of the repository is named: say where the cause is."


_TABLE: Final[Mapping[Evidence, Callable[[Facts], str]]] = {
    "looked": _looked,
    "said": _said,
    "changed": _changed,
    "tests": _tests,
    "reproduced": _reproduced,
    "findings": _findings,
    "names_a_file": _names_a_file,
}


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more

"""The phases of the coding agents: the table in `phases.toml`, and a table of checks that hold before a phase is done.

Law: what a model says is never evidence of what was done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from callboard.coding.job import Finding, JobType
from callboard.coding.test_runners import TestReport
from callboard.configuration.coding import Access

MAX_NAMES: Final = 5
"""Names of a longer list that a sentence has."""
_COMMANDS: Final = re.compile(r"^ {0,3}(?:```|~~~)(?:bash|sh|shell|console)[ \t]*$", re.MULTILINE)


class Facts(msgspec.Struct, kw_only=True):
    """Facts at the end of a phase."""

    answer: str = ""
    files_read: int = 0
    """Calls that read or searched files."""
    has_tools: bool = True
    """Whether the model calls tools; else it answers with code blocks."""
    changed_files: Sequence[str] = ()
    """Files that differ from where the job began."""
    changed_guarded_files: Sequence[str] = ()
    """Files that the phase may not change, and changed."""
    is_testable: bool = False
    report: TestReport | None = None
    """Report of all tests on the current tree."""
    tests_before: int = 0
    """How many tests ran when the job began."""
    wants_tests: bool = False
    """The task names a new file of tests."""
    has_new_tests: bool = False
    """More tests pass than when the job began."""
    saw_failure: bool = False
    findings: Sequence[Finding] | None = None
    reviewed_lines: Mapping[str, Collection[int]] = {}
    """By file: the lines that the change under review wrote."""
    files: Collection[str] = ()
    """All files of the repository."""


def missing_evidence(evidence: Sequence[Evidence], facts: Facts) -> tuple[str, ...]:
    """Return a sentence for each missing piece of evidence; empty if nothing is missing."""
    return tuple([lack for each in evidence if (lack := _CHECKS[each](facts))])


def find_unread_commands(answer: str) -> tuple[str, ...]:
    """Return the note for the model and the user about a block of commands in an answer that called no tool."""
    return ("the commands in a block of the reply were not run: call the tools.",) if _COMMANDS.search(answer) else ()


def refusal(missing: Sequence[str], *, has_tools: bool = True) -> str:
    """Return the prompt that refuses a claim of being done."""
    listed = "\n".join(f"- {each}" for each in missing)
    return f"This is not done yet:\n{listed}\n{'Go on with the tools.' if has_tools else 'Answer again.'}"


def _check_changed(facts: Facts) -> str:
    if facts.changed_files:
        return ""
    how = "edit the files with a tool" if facts.has_tools else "answer with the changed code in a fence"
    return f"no file has changed: words alone change nothing, {how}."


def _check_tests(facts: Facts) -> str:
    if facts.changed_guarded_files:
        names = _join_names(facts.changed_guarded_files)
        return f"{names} may not be changed: the tests that failed are the measure. Put it back as it was."
    if not facts.is_testable:
        return ""
    if facts.report is None:
        return "the tests have not been run on the files as they are now."
    if not facts.report.is_good:
        return f"the tests do not pass:\n{facts.report.summary}"
    if facts.report.total < facts.tests_before:
        return f"only {facts.report.total} tests ran, and {facts.tests_before} before: no test may be taken away."
    if facts.wants_tests and not facts.has_new_tests:
        return "no new test ran: the task names a file of tests that is to be written."
    return ""


def _check_findings(facts: Facts) -> str:
    if facts.findings is None:
        return "there are no findings in the form that was asked for."
    for each in facts.findings:
        if each.file not in facts.reviewed_lines:
            return f"{each.file!r} is no file of the change; there are {_join_names([*facts.reviewed_lines])}."
    return ""


def _check_file_named(facts: Facts) -> str:
    words = set(re.findall(r"[\w./-]*\w", facts.answer))
    if any(each in words or each.rpartition("/")[2] in words for each in facts.files):
        return ""
    return "no file of the repository is named: say where the cause is."


_CHECKS: Final[Mapping[Evidence, Callable[[Facts], str]]] = {
    "files_read": lambda facts: (
        "" if facts.files_read else "no file was looked at: read or search the code with a tool first."
    ),
    "answer": lambda facts: "" if facts.answer.strip() else "there is no answer in words.",
    "changed": _check_changed,
    "tests": _check_tests,
    "failure_seen": lambda facts: (
        "" if facts.saw_failure else "nothing was seen to fail: run the tests, or a command that shows the fault."
    ),
    "findings": _check_findings,
    "file_named": _check_file_named,
}


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


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
    """Return the phases of an agent in order, with the tools that the access allows."""
    table: Mapping[JobType, tuple[Phase, ...]] = getattr(_table(), workflow)
    if access == "full":
        return table[kind]
    allowed = actions_of_groups(_WITHIN[access])
    return tuple(
        replace(phase, tools=tuple(each for each in actions_of_groups(phase.tools) if each in allowed))
        for phase in table[kind]
    )


def actions_of_groups(names: Iterable[str]) -> tuple[str, ...]:
    """Return the single actions of groups, and of names that are actions themselves, each once."""
    groups = _table().groups
    return tuple(dict.fromkeys(action for name in names for action in groups.get(name, (name,))))

"""The end of a job: what came of it, its tests, and the commands for its change, one per line."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from typing import Final

from callboard.cli.diffs import count_lines
from callboard.cli.display import JobDisplay, print_safely
from callboard.cli.durable_store import read_output
from callboard.cli.terminal import STATE_COLORS
from callboard.coding.job import UNTESTED, JobOutput
from callboard.coding.workspace.changed_files import count_changed_lines
from callboard.jobs.job import DurableJob
from callboard.profiles import format_cost
from callboard.text.display import collapse
from callboard.text.plural import format_count

EXIT_CODES: Final[Mapping[tuple[str, bool], int]] = {
    ("completed", False): 0,
    ("completed", True): 3,
    ("failed", True): 3,
    ("failed", False): 1,
    ("cancelled", False): 130,
    ("cancelled", True): 130,
}
"""Exit codes by a job's state and whether evidence is missing."""
_MAX_REASON: Final = 1000


def find_exit_code(job: DurableJob) -> int:
    """Return the exit code of a command that ran a job to its end."""
    return EXIT_CODES.get((job.state, bool((job.output or {}).get("missing"))), 1)


def describe_result(job: DurableJob) -> tuple[str, str]:
    """Return a sentence about a job's state, and its color."""
    why = collapse(job.error or job.reason, _MAX_REASON)  # the error also has the place and the hint
    tests = read_output(job).tests
    if job.state == "completed" and tests.startswith(UNTESTED):
        return f"Completed, not tested: {collapse(tests.removeprefix(UNTESTED).lstrip(': '), _MAX_REASON)}", "33"
    why = "" if why == job.state else why
    return f"{job.state.capitalize()}{f': {why}' if why else ''}", STATE_COLORS.get(job.state, "")


def print_outcome(job: DurableJob, display: JobDisplay) -> None:
    """Show what came of a job. The last line is its result.

    If standard output is a file or a pipe, the branch is its last line.
    """
    output = read_output(job)
    for each in output.missing:
        display.tell(f"Missing: {collapse(each, 400)}", "33")
    if job.kind in ("review", "triage") and output.summary:
        print_safely(f"{output.summary}\n")
    for used in output.models:
        cost = format_cost(used.cost) or "cost unknown"
        display.tell(f"Model: {used.model}, {format_count(used.rounds, 'round')}, {cost}")
    for line in _describe_change(job, output):
        display.tell(line)
    if output.branch and output.commits and not sys.stdout.isatty():
        print_safely(f"{output.branch}\n")
    if not (output.branch and output.commits):
        display.tell(f"Details: callboard jobs show {job.id}", "2")
    display.tell(*describe_result(job))


def _describe_change(job: DurableJob, output: JobOutput) -> list[str]:
    """Return the lines about a coding job's change: where it is, its tests, and the commands to review and take it."""
    is_completed = job.state == "completed"
    unfinished = "" if is_completed else " (unfinished)"
    lines = []
    if output.patch:
        take = [f"Apply: git apply {shlex.quote(output.patch)}"] if is_completed else []
        lines = [f"Patch{unfinished}: {output.patch}", *take]
    elif (branch := output.branch) and output.commits:
        commits, files = (format_count(len(output.commits), "commit"), format_count(len(output.files), "file"))
        lines = [f"Branch{unfinished}: {branch}, {commits}, {files}{count_changes(output.diff)}"]
        lines.append(f"Review: git diff HEAD...{branch}")
        lines += [f"Merge: git merge {branch}"] if is_completed else []
        lines.append(f"Discard: callboard undo {job.id}")
        if output.pull_request:
            lines.append(f"Pull request: {output.pull_request_url or 'not opened'}")
    return [*lines, *([f"Tests: {output.tests}"] if output.tests else [])]


def count_changes(diff: str) -> str:
    """Return the numbers of added and removed lines of a unified diff, such as `, +2 -1`; "" without a diff."""
    return f", {count_lines(*count_changed_lines(diff))}" if diff else ""

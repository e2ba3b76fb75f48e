"""Repair code with one small change, which no model writes: an operator, a number, a condition, exchanged arguments.

Small models often write the right code with such a mistake, and some faults are one. A change costs one run of the tests,
much less than a reply.

Source: Debroy and Wong, "Using Mutation to Automatically Suggest Fixes for Faulty Programs", 2010.

Laws: the files have their own text again after each change, whatever happens. The work is bounded by a number of changes
and by seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, NamedTuple

from callboard.coding.agents.mutation_check import RunTests, choose_mutants, try_mutants
from callboard.coding.test_runners import Selection
from callboard.coding.workspace.workspace import Workspace

MAX_CHANGES: Final = 10
"""Changes of an answer that are tried."""
MAX_OWN_CHANGES: Final = 24
"""Changes of the code as it was that are tried, once."""
MAX_SECONDS: Final = 30.0
"""Seconds for all changes together: two or three replies of a small model."""

MAX_RUN: Final = 5.0
"""Seconds of a run of the tests. With slower tests, a reply of the model costs less."""
MAX_STOPPED: Final = 2
"""Runs that may be longer and are stopped, because a changed loop may have no end. Then nothing more is tried."""


class Repair(NamedTuple):
    """A line with which the tests pass."""

    path: str
    line: int
    code: str
    """The line, without its indentation."""


async def find_repair(
    workspace: Workspace, lines: Mapping[str, Sequence[range]], limit: int, run: RunTests, seconds: float
) -> Repair | None:
    """Find a small change of one of these lines with which all tests pass, among `limit`; None if there is none."""
    texts, mutants = await choose_mutants(workspace, lines, limit)
    run_all = partial(run, Selection(), MAX_RUN)
    stopped = 0
    async with aclosing(try_mutants(workspace, texts, mutants, run_all, min(seconds, MAX_SECONDS))) as tried:
        async for path, mutant, report in tried:
            if report.is_good:
                return Repair(path, mutant.line, mutant.new)
            stopped += bool(report.stopped)
            if stopped == MAX_STOPPED:
                break
    return None

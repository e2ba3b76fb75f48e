"""Repair code with small changes that no model writes.

Many faults are of a few kinds, and small models often write the right code with one small mistake. A change costs one run
of the tests, which is much less than a reply.

Source: Debroy and Wong, "Using Mutation to Automatically Suggest Fixes for Faulty Programs", 2010.

Laws: the files have their own text again after each change, whatever happens. The work is bounded by a number of changes
and by seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from heapq import merge
from itertools import islice, repeat
from typing import Final, NamedTuple

from callboard.coding.agents.mutation_check import RunTests, read_texts, try_mutants
from callboard.coding.edits.fixes import USUAL, make_fixes
from callboard.coding.edits.mutants import Mutant
from callboard.coding.outlines import find_syntax_error
from callboard.coding.test_runners import Selection
from callboard.coding.workspace.workspace import Workspace

MAX_CHANGES: Final = 20
"""Changes of an answer that are tried."""
MAX_OWN_CHANGES: Final = 300
"""Changes of the code as it was that are tried, once."""
MAX_STEPS: Final = 3
"""Changes of one repair."""
MAX_SECONDS: Final = 80.0
"""Seconds for all changes together: four replies of a small model, in which over 200 runs of fast tests fit."""

MAX_RUN: Final = 5.0
"""Seconds of a run of the tests. With slower tests, a reply of the model costs less."""
MAX_STOPPED: Final = 2
"""Runs that may be longer and are stopped, because a changed loop may have no end. Then nothing more is tried."""


class Repair(NamedTuple):
    """Code in the place of lines, with which the tests pass."""

    path: str
    line: int
    end_line: int
    code: str
    """The code, whose first line has no indentation."""


async def find_repair(
    workspace: Workspace, lines: Mapping[str, Sequence[int]], limit: int, run: RunTests, seconds: float
) -> tuple[Repair, ...]:
    """Find small changes of these lines, one after another, with which all tests pass; () if there are none.

    Each has `limit` candidates. If none passes, the one with the fewest failed tests stays, and the next is looked for;
    if it repairs a usual fault, before the unlikely ones are tried.
    """
    clock = asyncio.get_running_loop().time
    end = clock() + min(seconds, MAX_SECONDS)
    originals = read_texts(workspace, lines)
    texts, numbers = {**originals}, {path: [*each] for path, each in lines.items()}
    run_all = partial(run, Selection(), MAX_RUN)
    before = await run_all()
    repairs: tuple[Repair, ...] = ()
    try:
        while len(repairs) < MAX_STEPS and not before.stopped:
            fixes = await asyncio.to_thread(_choose, texts, numbers, limit)
            best: tuple[str, Mutant] | None = None
            stopped = 0
            async with aclosing(try_mutants(workspace, texts, fixes, run_all, end - clock())) as tried:
                async for path, fix, report in tried:
                    if report.is_good:
                        return (*repairs, _repair(path, fix))
                    stopped += bool(report.stopped)
                    if report.complete and not report.errors and report.failed < before.failed:
                        best, before = (path, fix), report
                    if stopped == MAX_STOPPED or (best and fix.rank > best[1].rank == USUAL):
                        break
            if best is None:
                break
            path, fix = best
            repairs += (_repair(path, fix),)
            added = fix.new.count("\n") - fix.old.count("\n")
            texts[path] = fix.text
            numbers[path] = [each + added * (each > fix.line) for each in numbers[path]]
            workspace.files.write(path, fix.text.encode())
    finally:
        if repairs:
            for path, text in originals.items():
                workspace.files.write(path, text.encode())
    return ()


def _repair(path: str, fix: Mutant) -> Repair:
    return Repair(path, fix.line, fix.line + fix.old.count("\n"), fix.new)


def _choose(texts: Mapping[str, str], lines: Mapping[str, Sequence[int]], limit: int) -> list[tuple[str, Mutant]]:
    """Return the likeliest `limit` fixes of these lines that parse."""
    fixes = merge(
        *(
            zip(repeat(path), make_fixes(text, path, lines[path], [texts[each] for each in texts if each != path]))
            for path, text in texts.items()
        ),
        key=lambda each: each[1].rank,
    )
    return [*islice((each for each in fixes if find_syntax_error(each[1].text, each[0]) is None), limit)]

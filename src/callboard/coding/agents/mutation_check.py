"""Judge tests by mutants: how many small mistakes in the tested code make them fail?

Laws: the tested files have their own text again after each mutant, whatever happens. The work is bounded by a number of
mutants and by seconds. A mutant that keeps all tests from running says nothing about the tests, so it does not count.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Final, NamedTuple

from callboard.coding.agents.prompts import Part
from callboard.coding.edits.mutants import Mutant, describe_mutant, make_mutants
from callboard.coding.test_runners import Selection, TestReport
from callboard.coding.workspace.workspace import Workspace

MAX_MUTANTS: Final = 12
MAX_SECONDS: Final = 180.0
"""Seconds for all mutants together."""
MIN_SECONDS: Final = 10.0
"""Seconds that the tests of one mutant may take, however fast the tests were before."""
ENOUGH: Final = 0.75
"""Share of the mutants that good tests notice. Some mutants behave like the code, so no test notices them."""
MAX_SHOWN: Final = 2
"""Unnoticed mutants in a prompt."""

MAX_FILE: Final = 200_000
"""Bytes of a file that is mutated."""

RunTests = Callable[[Selection, float], Awaitable[TestReport]]
"""Runs a selection of the tests within so many seconds."""


class MutationResult(NamedTuple):
    """The mutants that the tests noticed, and those that they did not."""

    noticed: int = 0
    survivors: tuple[str, ...] = ()
    """Descriptions of the mutants that no test noticed."""

    @property
    def is_enough(self) -> bool:
        """Whether the tests need not get better; also if there are no mutants."""
        return self.noticed >= ENOUGH * (self.noticed + len(self.survivors))

    @property
    def headline(self) -> str:
        """The result in one line."""
        return f"the new tests notice {self.noticed} of {self.noticed + len(self.survivors)} small mistakes in the code"

    def wish(self, tests: Sequence[str], wrong: Sequence[str], number: int) -> str:
        """Return the end of the next prompt, which asks for tests that notice more.

        `tests` are the files of tests, `wrong` describes removed tests of the last reply. Prompts of
        different numbers show different survivors.
        """
        first = number * MAX_SHOWN % max(len(self.survivors), 1)
        shown = [*self.survivors[first:], *self.survivors[:first]][:MAX_SHOWN]
        listed = "\n".join(f"- {each}" for each in shown)
        wrong_tests = "\n".join([f"- {each}" for each in wrong[:MAX_SHOWN]])
        left_out = f"These tests were wrong, since the code gives other values:\n{wrong_tests}\n\n" if wrong else ""
        return (
            f"{left_out}{' and '.join(tests)} has tests that pass, but all of them still pass after this change of the code:\n"
            f"{listed}\nWrite one short test with a new name. It passes on the code above, and fails after the change."
        )


async def check_mutants(
    workspace: Workspace, parts: Sequence[Part], tests: Sequence[str], run: RunTests, folder: str = ""
) -> MutationResult:
    """Run the files of tests against mutants of the parts, the tests' folder being `folder`."""
    lines: dict[str, list[range]] = {}
    for part in parts:
        lines.setdefault(part.path, []).append(range(part.start, part.end + 1))
    texts, mutants = await choose_mutants(workspace, lines, MAX_MUTANTS)
    clock = asyncio.get_running_loop().time
    begin = clock()
    selection = _select(tests, folder)
    report = await run(selection, MAX_SECONDS)
    if not report.is_good:
        selection = Selection()
        report = await run(selection, MAX_SECONDS)
    limit = max(MIN_SECONDS, 4 * (clock() - begin))
    noticed, survivors = 0, []
    tried = try_mutants(
        workspace, texts, mutants if report.is_good else (), partial(run, selection, limit), MAX_SECONDS
    )
    async with aclosing(tried):
        async for path, mutant, report in tried:
            if report.is_good:
                survivors.append(f"{path}, {describe_mutant(mutant)}")
            else:
                noticed += bool(report.stopped or report.passed or report.failed)
    return MutationResult(noticed, tuple(survivors))


async def choose_mutants(
    workspace: Workspace, lines: Mapping[str, Sequence[range]], limit: int
) -> tuple[Mapping[str, str], Sequence[tuple[str, Mutant]]]:
    """Return the texts of these files, and about `limit` mutants of these lines of them, in the order of the files.

    Files that are too large, or not in UTF-8, have no mutants.
    """
    texts = read_texts(workspace, lines)

    def choose() -> Iterator[tuple[str, Mutant]]:
        for path, text in texts.items():
            for mutant in make_mutants(text, path, lines[path], max(1, limit // len(texts))):
                yield path, mutant

    return texts, await asyncio.to_thread(lambda: [*choose()])


def read_texts(workspace: Workspace, paths: Iterable[str]) -> dict[str, str]:
    """Return the texts of files, without those that are too large or not in UTF-8."""
    texts: dict[str, str] = {}
    for path in paths:
        with suppress(OSError, UnicodeDecodeError):
            texts[path] = workspace.files.read(path, MAX_FILE).decode("utf-8")
    return texts


async def try_mutants(
    workspace: Workspace,
    texts: Mapping[str, str],
    mutants: Iterable[tuple[str, Mutant]],
    run: Callable[[], Awaitable[TestReport]],
    seconds: float,
) -> AsyncGenerator[tuple[str, Mutant, TestReport], None]:
    """Run the tests with each mutant in its file. No run begins after so many seconds."""
    clock = asyncio.get_running_loop().time
    end = clock() + seconds
    for path, mutant in mutants:
        if clock() > end:
            break
        workspace.files.write(path, mutant.text.encode())
        try:
            report = await run()
        finally:
            workspace.files.write(path, texts[path].encode())
        yield path, mutant, report


def _select(tests: Sequence[str], folder: str) -> Selection:
    """Select one file of tests, or its package in Go; all tests if there are several files."""
    if len(tests) != 1:
        return Selection()
    path = posixpath.relpath(tests[0], folder or ".")
    if path.endswith(".go"):
        return Selection(module=f"./{posixpath.dirname(path)}")
    return Selection(module=path)

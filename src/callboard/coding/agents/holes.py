"""Let a small model write one line at a time, where it does not see the line: small models copy the code that they see.

The lines of the code that the failing tests use are asked for in turn. The model gets the file without the line. A reply
takes a tenth of the time of a whole function.

Source: Xia and Zhang, "Less Training, More Repairing Please", 2022 (AlphaRepair).

Law: the same code gives the same holes in the same order, so a job that continues asks for the line that is next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from callboard.coding.agents.prompts import Part, is_test_file
from callboard.coding.edits.mutants import find_code_lines
from callboard.core import Canister, Controls, SupervisorCanister, UserCanister
from callboard.providers.local.fill import HOLE

MAX_HOLES: Final = 100
"""Lines that are found."""
MAX_ASKED: Final = 20
"""Lines that a model is asked for."""
BETWEEN: Final = 10
"""Replies with lines between two replies with whole functions."""
MAX_FILE: Final = 30_000
"""Characters of the largest file with holes: each prompt has the file up to the line."""
MAX_OUTPUT: Final = 1200
"""Characters of what the tests say, in a comment above the file."""
SAMPLES: Final = ((0.8, True), (0.8, False), (1.0, True))
"""How each line is asked for after the first time: the temperature, and whether the reply ends with the line. Several replies
to one prompt cost less than replies to several prompts. The first time, the temperature is 0: most lines come back as they
were, which costs no tests."""

IMPORT: Final = re.compile(r"(?:import|from|package)\b")
"""Begins a line that says what a file imports. A model without the line writes any import."""


class Hole(NamedTuple):
    """A line that the model does not see."""

    path: str
    line: int
    text: str
    """The line, without its indentation."""
    next_line: str
    prompt: str
    """The file up to the end of the definition, with HOLE instead of the text."""


class Attempts:
    """The attempts of a phase: one for whole functions, then BETWEEN for holes in the code as it is now, and so on.

    Args:
        number: Attempts so far.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._begin = 0
        self._holes: Sequence[Hole] = ()

    def begin(self, number: int, holes: Sequence[Hole]) -> None:
        """Begin again at the attempt `number`, with these holes."""
        self._begin, self._holes = number, holes

    @property
    def answers(self) -> int:
        """How many attempts before this one were for whole functions, since the beginning."""
        index = self.number - self._begin
        return -(-index // (1 + BETWEEN)) if self._holes else index

    @property
    def hole(self) -> Hole | None:
        """The hole of the attempt; None if the model is asked for whole functions."""
        if not self._holes or (self.number - self._begin) % (1 + BETWEEN) == 0:
            return None
        lines, count = self._lines, len(self._holes)
        return self._holes[lines if lines < count else (lines - count) // len(SAMPLES) % count]

    @property
    def controls(self) -> Controls:
        """How to sample the line of the hole."""
        later = self._lines - len(self._holes)
        temperature, is_line = (0.0, True) if later < 0 else SAMPLES[later % len(SAMPLES)]
        next_line = "" if is_line or self.hole is None else self.hole.next_line
        ending = "\n" if is_line else f"\n{next_line}" if next_line.strip() else "\n\n"
        return Controls(temperature=temperature, seed=self.number, stop=(ending,))

    @property
    def _lines(self) -> int:
        """How many attempts before this one were for lines."""
        return self.number - self._begin - self.answers


def find_holes(parts: Iterable[Part], read: Callable[[str], Sequence[str]], output: str) -> Iterator[Hole]:
    """Find the holes of these parts; `read` returns a file's lines, `output` is what the tests say."""
    return islice(_find_holes(parts, read, output[:MAX_OUTPUT]), MAX_HOLES)


def _find_holes(parts: Iterable[Part], read: Callable[[str], Sequence[str]], output: str) -> Iterator[Hole]:
    known: dict[str, list[int]] = {}
    for path, start, end in parts:
        lines = read(path)
        text = "\n".join(lines)
        if is_test_file(path) or len(text) > MAX_FILE or HOLE in text:
            continue
        if path not in known:
            known[path] = find_code_lines(text, path)
        mark = "# " if path.endswith(".py") else "// "
        comment = "".join([f"{mark}{each}\n" for each in output.replace(HOLE, "").splitlines()])
        numbers = [each for each in known[path] if start <= each <= end]
        known[path] = [each for each in known[path] if each not in numbers]
        numbers = [each for each in numbers if not IMPORT.match(lines[each - 1])]
        for number in numbers:
            line = lines[number - 1]
            content = line.strip()
            code = [*lines[: number - 1], line.replace(content, HOLE, 1), *lines[number:end], ""]
            yield Hole(path, number, content, "".join(lines[number : number + 1]), comment + "\n".join(code))


def drop_fills(canisters: Iterable[Canister]) -> tuple[Canister, ...]:
    """Return a conversation without the instructions, and without the questions for lines and their answers."""
    rest: list[Canister] = []
    is_fill = False
    for each in canisters:
        if isinstance(each, UserCanister):
            is_fill = HOLE in each.text
        if not (is_fill or isinstance(each, SupervisorCanister)):
            rest.append(each)
    return tuple(rest)

"""The values that the parser process answers with."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Symbol(msgspec.Struct, frozen=True):
    """What is defined at a line, from 1; `scope` is what it is in, with dots."""

    line: int
    kind: str
    name: str
    scope: str = ""

    @property
    def path(self) -> str:
        return f"{self.scope}.{self.name}" if self.scope else self.name


class Outline(msgspec.Struct, frozen=True):
    """What a text defines, and the numbers of the lines at which it imports."""

    symbols: list[Symbol]
    imports: list[int]


class Statement(NamedTuple):
    """A statement at the top of a text: rows from `start` to before `end`, from 0."""

    kind: str
    start: int
    end: int


class ParsedText(msgspec.Struct, frozen=True):
    """What a grammar read; `broken` is the line, from 1, of the first syntax error."""

    symbols: list[Symbol]
    imports: list[int]
    statements: list[Statement]
    broken: int | None = None

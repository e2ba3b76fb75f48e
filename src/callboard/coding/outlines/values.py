"""The values that the parser process answers with."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Symbol(msgspec.Struct, frozen=True):
    """A definition at a line, from 1; `scope` is the dotted path of the definitions around it."""

    line: int
    kind: str
    name: str
    scope: str = ""
    end: int = 0
    """The number of its last line; 0 where no grammar read the text."""

    @property
    def path(self) -> str:
        return f"{self.scope}.{self.name}" if self.scope else self.name


class Outline(msgspec.Struct, frozen=True):
    """The definitions of a text, and the numbers of its import lines."""

    symbols: list[Symbol]
    imports: list[int]


class Statement(NamedTuple):
    """A statement at the top of a text: rows from `start` to before `end`, from 0."""

    kind: str
    start: int
    end: int


class ParsedText(msgspec.Struct, frozen=True):
    """What a grammar found in a text; `broken` is the line, from 1, of the first syntax error."""

    symbols: list[Symbol]
    imports: list[int]
    statements: list[Statement]
    broken: int | None = None

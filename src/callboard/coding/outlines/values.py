"""The values that the parser process answers with."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

GUARD: Final = 'if __name__ == "__main__"'
"""The name of the statement that runs a script in Python."""


class Symbol(msgspec.Struct, frozen=True):
    """A definition at a line, from 1; `scope` is the dotted path of the definitions around it."""

    line: int
    kind: str
    name: str
    scope: str = ""
    end: int = 0
    """The number of its last line."""

    @property
    def path(self) -> str:
        return f"{self.scope}.{self.name}" if self.scope else self.name


class Outline(msgspec.Struct, frozen=True):
    """The definitions of a text, and the numbers of its import lines."""

    symbols: list[Symbol]
    imports: list[int]


class Gap(NamedTuple):
    """A comment or an ellipsis, on a line from 1, that stands for code which is left out."""

    line: int
    text: str


class Statement(msgspec.Struct, frozen=True, array_like=True):
    """A statement of a text or of a class; rows count from 0, and an end is the row behind the last."""

    kind: str
    """The grammar's word, or `import`, `compound`, `head` (what the file has to begin with), `several` on one line."""
    lead: int
    """The first row of the comments right above it."""
    start: int
    end: int
    names: list[str]
    """What it defines, or imports."""
    members: list[Statement] = []
    """The statements of a class, where each is on lines of its own."""
    header: int = 0
    """The row behind those above the members."""
    inner: int = 0
    """The row behind the members, 0 for what has none."""
    is_stub: bool = False
    """Whether its body does nothing."""

    @property
    def all_names(self) -> list[str]:
        """Its names and those of its members."""
        scope = f"{self.names[0]}." if self.names else ""
        return [*self.names, *(scope + name for member in self.members for name in member.all_names)]


class ParsedText(msgspec.Struct, frozen=True):
    """What a grammar found in a text; `broken` is the line, from 1, of the first syntax error."""

    symbols: list[Symbol]
    imports: list[int]
    statements: list[Statement]
    gaps: list[Gap] = []
    broken: int | None = None

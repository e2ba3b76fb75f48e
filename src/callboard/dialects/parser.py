"""Text in, events out.

Owns the one way into a dialect. Knows nothing of tokens, clocks or models.
Law: however the text is cut, the events are the same, but for where text, reasoning and arguments are
cut; and every character is in a piece, in a call or in its framing.
"""

from __future__ import annotations

from collections.abc import Iterable

from callboard.core import Event, Identify, TextPiece, ToolDeclaration, Why, identify_in_turn
from callboard.dialects.blocks import Blocks
from callboard.dialects.calls import Calls
from callboard.dialects.dialect import Dialect, dialect_named


class Parser:
    """A Stage: text to TextPiece, ReasoningPiece, the events of calls, and Notes.

    `tools` are those that may be called; None takes any name, and with none at all the text passes
    untouched where calls are not the dialect's only way to speak. `dialect` is a row or its name.
    Offsets count the characters fed. After `finish` a new text may be fed; offsets and indices go on.
    """

    def __init__(
        self,
        tools: Iterable[ToolDeclaration] | None = None,
        dialect: Dialect | str = "json",
        *,
        identify: Identify | None = None,
    ) -> None:
        row = dialect_named(dialect) if isinstance(dialect, str) else dialect
        declared = None if tools is None else tuple(tools)
        self._plain = declared == () and not row.undeclared
        self._offset = 0
        self._blocks = Blocks(row, Calls(declared, identify or identify_in_turn(0)))

    def feed(self, text: str, /) -> list[Event]:
        if not self._plain:
            return self._blocks.feed(text)
        begin, self._offset = self._offset, self._offset + len(text)
        return [TextPiece(text, offsets=(begin, self._offset))] if text else []

    def finish(self, why: Why = "stop", /) -> list[Event]:
        return self._blocks.finish(why)


def parse(
    text: str,
    tools: Iterable[ToolDeclaration] | None = None,
    dialect: Dialect | str = "json",
    *,
    why: Why = "stop",
    identify: Identify | None = None,
) -> list[Event]:
    """The events of a whole text."""
    parser = Parser(tools, dialect, identify=identify)
    return [*parser.feed(text), *parser.finish(why)]

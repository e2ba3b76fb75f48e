"""Turn text into events: the stage that parses calls out of a model's text.

`Parser.feed` pushes text into the buffer of a `ParseState` and resumes one generator, `scanner.scan`. That generator
reads text until a marker begins something, and delegates (`yield from`) to the generator for it:

    scanner      text, code spans, reasoning; the beginnings of lines
            fences       a fence: calls, or code that is not searched
      call_frames  the markers around calls
        grammars     one call: its name, its arguments

Each `yield` in any of them ends up here and means "more text". Nothing is parsed twice: if a generator finds that there
is no call, it raises NotACall, and the text that it has read stays text. `finish` throws EndOfText into the innermost
generator, which closes or abandons what is open.

Law: the events do not depend on how the text is split, except where text, reasoning and arguments are split. Every
character is in a piece, in a call or in its framing.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from callboard.core import Event, Identify, InvocationStarted, ToolDeclaration, Why
from callboard.dialects.call_builder import CallBuilder, Repair
from callboard.dialects.dialect import Dialect
from callboard.dialects.parse_state import ParseState
from callboard.dialects.registry import get_dialect
from callboard.dialects.scanner import scan
from callboard.dialects.table import DIALECTS
from callboard.dialects.text_buffer import EndOfText

_SLICE = 16 * 1024
"""Maximum characters that are parsed at once. This is less than may be held."""


class Parser:
    """A Stage from text to TextPiece, ReasoningPiece, the events of calls, and Notes.

    `tools` are the tools that may be called; None accepts any name. Without any tool the text passes unchanged, unless
    calls are the dialect's only way to write. `dialect` is a row or its name; `auto` takes the dialect of the first
    call. `start_in_reasoning` is for replies whose prompt ended with the opening marker. `identify` creates identifiers
    for calls without one. `repair` repairs the arguments of whole calls that are not JSON, such as `json_repair.loads`.
    Offsets count the fed characters. After `finish` a new text may be fed; offsets and indices continue.
    """

    def __init__(
        self,
        tools: Iterable[ToolDeclaration] | None = None,
        dialect: Dialect | str = "auto",
        *,
        start_in_reasoning: bool = False,
        identify: Identify | None = None,
        repair: Repair | None = None,
    ) -> None:
        row = get_dialect(dialect) if isinstance(dialect, str) else dialect
        declared = None if tools is None else tuple(tools)
        self._untouched = False
        if declared == () and not row.is_only_format:
            row = replace(row, frames=(), fences=(), alternatives=(), ignored=())
            self._untouched = not start_in_reasoning
        self._row = row
        self._thinking = start_in_reasoning
        self._calls = CallBuilder(declared, identify, repair)
        self._begin(0)

    def _begin(self, offset: int) -> None:
        self._state = ParseState(self._row, self._calls)
        self._state.buffer.base = offset
        self._count = self._calls.count
        self._reading = scan(self._state, thinking=self._thinking)

    @property
    def dialect(self) -> Dialect:
        """The dialect's row; with `auto` the dialect that the text has identified."""
        return self._state.markers.dialect

    def feed(self, text: str, /) -> list[Event]:
        """Return the events that are certain with this `text`."""
        state = self._state
        buffer = state.buffer
        idle = buffer.idle_pattern
        if self._untouched or (idle is not None and idle.search(text) is None):
            offsets = buffer.skip(text)
            return [buffer.piece_type(text, offsets=offsets)] if text else []
        if buffer.plain_pattern is not None and buffer.pass_plain(text):
            return state.take_events()
        if len(text) <= _SLICE:
            self._push(text)
        else:
            for begin in range(0, len(text), _SLICE):
                self._push(text[begin : begin + _SLICE])
        return state.take_events()

    def finish(self, why: Why = "stop", /) -> list[Event]:
        """Return the events of the held text. `why` says how the reply ended."""
        state = self._state
        state.why = why
        try:
            while True:
                self._reading.throw(EndOfText())
        except (StopIteration, EndOfText):  # the second if no text was fed
            pass
        if state.missed is not None and self._calls.count == self._count:
            state.buffer.out.append(state.missed)
        self._begin(state.buffer.base + len(state.buffer.text))
        return state.take_events()

    def _push(self, piece: str) -> None:
        buffer = self._state.buffer
        while len(piece) > (room := buffer.room):
            if room:
                buffer.push(piece[:room])
                self._reading.send(None)
                piece = piece[room:]
            if not buffer.room:
                self._reading.throw(buffer.limit_error())
        buffer.push(piece)
        self._reading.send(None)


def parse(
    text: str,
    tools: Iterable[ToolDeclaration] | None = None,
    dialect: Dialect | str = "auto",
    *,
    why: Why = "stop",
    start_in_reasoning: bool = False,
    identify: Identify | None = None,
) -> list[Event]:
    """Return the events of a whole text.

    Args:
        text: The text of a reply.
        tools: The declared tools; None counts every name as declared.
        dialect: The format of calls, or its name.
        why: How the reply ended.
        start_in_reasoning: True if the text begins inside reasoning.
        identify: Makes the identifiers of calls; by default they count from `call_0_0`.
    """
    parser = Parser(tools, dialect, start_in_reasoning=start_in_reasoning, identify=identify)
    return [*parser.feed(text), *parser.finish(why)]


def find_dialects(text: str, tools: Iterable[ToolDeclaration]) -> tuple[str, ...]:
    """Return the names of all dialects that find a call in a text.

    This takes 10 ms for a text of 5,000 characters. The first use takes 0.3 s longer.

    Args:
        text: The text of a reply.
        tools: The declared tools.
    """
    declared = tuple(tools) if text else ()

    def finds(name: str) -> bool:
        return any(isinstance(each, InvocationStarted) for each in parse(text, declared, name))

    return tuple([name for name in sorted(DIALECTS) if finds(name)]) if declared else ()

"""Cut results that a model invented out of its reply.

An invented result is found by its beginning: a tag, a label or a JSON object in the forms in which results are shown.
Laws: calls stay calls, and text stays in place. The outcome does not depend on how the text is split. Text is held back
only until it is clear whether a result begins in it. The work per character is constant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from callboard import core
from callboard.modes.filters.call_indices import CALL_EVENTS

EXCERPT: Final = 200
"""Maximum characters of the cut text in the note."""
MAX_LINE: Final = 4096
"""Maximum characters of a line that may be a result in JSON. A longer line is judged by its beginning."""


def _atoms(text: str) -> list[str]:
    return [r"[ \t]{1,4}" if char == " " else re.escape(char) for char in text]


_LEAD: Final = r"[ \t*#>]{0,8}"
_NAME: Final = r"[\w./:-]{1,64}"
_TAGS: Final[Sequence[tuple[Sequence[str], str]]] = (
    ([*_atoms("<tool_response"), r"[^<>\n]{0,100}", ">"], "</tool_response>"),
    ([*_atoms("<tool_result"), r"[^<>\n]{0,100}", ">"], "</tool_result>"),
    (_atoms("[TOOL_RESULTS]"), "[/TOOL_RESULTS]"),
    (_atoms("<|start_header_id|>ipython<|end_header_id|>"), "<|eot_id|>"),
)
"""Marks that begin a result anywhere in the text, with their end marks."""
_WORDS: Final[Sequence[Sequence[str]]] = (
    _atoms("tool results:"),
    _atoms("tool execution results:"),
    *(
        [*_atoms("tool "), r"\d{1,4}", *_atoms(" ("), _NAME, *_atoms(f") {what}:")]
        for what in ("output", "error", "failed")
    ),
    _atoms("observation:"),
    [*_atoms("✅ "), _NAME, ":"],
    [*_atoms("❌ "), _NAME, *_atoms(" failed")],
    [r"\{", r"\s{0,8}", *_atoms('"success"'), r"\s{0,8}", ":", r"\s{0,8}", "[tf]"],
)
"""Marks that begin a result only after a call; these results have no end mark."""
_OBJECT: Final[Sequence[str]] = (r"\{", r"[ \t]{0,8}", '"')
_KEYS: Final = (re.compile(r'"success"\s*:\s*(?:true|false)'), re.compile(r'"(?:output|error)"\s*:'))
"""Keys in the line of such an object if it is a result."""


def _whole_pattern(*marks: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches any of the marks, each in its own group."""
    return re.compile("|".join([f"({_LEAD}{''.join(atoms)})" for atoms in marks]), re.IGNORECASE)


def _prefix_pattern(*marks: Sequence[str]) -> re.Pattern[str]:
    patterns = []
    for atoms in marks:
        pattern = ""
        for atom in reversed(atoms):
            pattern = f"(?:{atom}{pattern})?"
        patterns.append(_LEAD + pattern)
    return re.compile("|".join(patterns), re.IGNORECASE)


_TAG: Final = _whole_pattern(*[atoms for atoms, _ in _TAGS])
_WORD: Final = _whole_pattern(*_WORDS)
_JSON: Final = _whole_pattern(_OBJECT)
_TAG_BEGUN: Final = _prefix_pattern(*[atoms for atoms, _ in _TAGS])
_ANY_BEGUN: Final = _prefix_pattern(*[atoms for atoms, _ in _TAGS], *_WORDS, _OBJECT)


_CLOSINGS: Final = {closing: re.compile(re.escape(closing), re.IGNORECASE) for _, closing in _TAGS}


class HallucinatedResultFilter:
    """A Stage between a model and the loop that removes invented results from a reply.

    A result in a tag is cut up to its closing tag. Other marks count only after a call: everything from the mark to the
    end of the reply's text is cut. An alert quotes the cut text.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._buffer = ""
        """The undecided text."""
        self._starts = True
        """Whether the buffer begins at the start of a line."""
        self._called = False
        self._closing: str | None = None
        """End mark of the text that is being cut; empty means the end of the text."""
        self._excerpt = ""

    def feed(self, event: core.Event, /) -> list[core.Event]:
        """Return the `event` without invented results."""
        match event:
            case core.TextPiece(text=text):
                quiet = not self._buffer and self._closing is None
                self._buffer += text
                events = self._read()
                # Most events are text in the middle of a line.
                return [event] if quiet and events == [core.TextPiece(text)] else events
            case core.ReplyStarted() | core.Usage() | core.Note():
                return [event]
            case core.ReplyEnded() | core.ReplyFailed():
                events = [*self.finish(), event]
                self._begin()
                return events
            case _:
                events = self._read(over=True)
                self._starts = True
                self._called = self._called or isinstance(event, CALL_EVENTS)
                return [*events, event]

    def finish(self, why: core.Why = "stop", /) -> list[core.Event]:
        """Return the held events. `why` says how the reply ended."""
        events = self._read(over=True)
        if self._closing is not None:
            self._excerpt = (self._excerpt + self._buffer)[:EXCERPT]
            self._buffer = ""
            events.append(self._note())
        return events

    def _read(self, *, over: bool = False) -> list[core.Event]:
        """Decide as much as possible; if `over`, decide everything."""
        events: list[core.Event] = []
        text = self._buffer
        begin = at = 0
        """The text between `begin` and `at` passes."""
        while at < len(text):
            if self._closing is not None:
                ended, at = self._skip(text, at)
                begin = at
                if not ended:
                    break
                events.append(self._note())
            elif not self._starts:
                at = text.find("\n", at) + 1 or len(text)
                self._starts = text[at - 1] == "\n"
            elif not over and self._holds(text, at):
                break
            else:
                self._starts = False
                self._closing = self._mark(text, at)
                if self._closing is not None and at > begin:
                    events.append(core.TextPiece(text[begin:at]))
        if at > begin:
            events.append(core.TextPiece(text[begin:at]))
        self._buffer = text[at:]
        return events

    def _holds(self, text: str, at: int) -> bool:
        """Whether more text has to arrive before the beginning of the line is clear."""
        if _TAG.match(text, at) or (self._called and _WORD.match(text, at)):
            return False
        begun = _ANY_BEGUN if self._called else _TAG_BEGUN
        if begun.fullmatch(text, at):
            return True
        return bool(self._called and _JSON.match(text, at)) and len(text) - at < MAX_LINE and text.find("\n", at) < 0

    def _mark(self, text: str, at: int) -> str | None:
        """Return the end mark of the result that begins here, or None if no result begins here."""
        if tag := _TAG.match(text, at):
            return _TAGS[(tag.lastindex or 1) - 1][1]
        if not self._called:
            return None
        if _WORD.match(text, at):
            return ""
        if _JSON.match(text, at):
            line = text[at : at + MAX_LINE].partition("\n")[0]
            return "" if all(key.search(line) for key in _KEYS) else None
        return None

    def _skip(self, text: str, at: int) -> tuple[bool, int]:
        """Return whether the result has ended, and where the cut ends."""
        closing = self._closing or ""
        match = _CLOSINGS[closing].search(text, at) if closing else None
        end = match.end() if match else max(at, len(text) - max(0, len(closing) - 1))
        self._excerpt = (self._excerpt + text[at : min(end, at + EXCERPT)])[:EXCERPT]
        if match:
            self._closing, self._starts = None, True
        return match is not None, end

    def _note(self) -> core.Note:
        excerpt, self._excerpt = self._excerpt, ""
        text = f"the model wrote a result itself, and it was cut: {excerpt}"
        return core.Note("alert", text, code="hallucinated_result")

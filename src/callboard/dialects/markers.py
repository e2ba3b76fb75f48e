"""The markers of a dialect, indexed by the character that they begin with, so that text without one is skipped fast."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from functools import lru_cache
from typing import Literal, NamedTuple

from callboard.dialects.dialect import CallFrame, Dialect, Fence
from callboard.dialects.text_buffer import MAX_RUN, EndOfText, Reading, TextBuffer


class MarkerKind(Enum):
    CALL = auto()
    REASONING_START = auto()
    REASONING_END = auto()
    CLOSE = auto()
    IGNORED = auto()


DialectFrame = tuple[Dialect, CallFrame]


class Marker(NamedTuple):
    """`frames` may open here; `read` says that the marker is not part of their body."""

    text: str
    kind: MarkerKind
    frames: tuple[DialectFrame, ...] = ()
    is_opener: bool = True
    closes: str = ""
    identifies: Dialect | None = None
    """The one dialect that has such a marker: where it stands, that is spoken."""

    @property
    def is_control_token(self) -> bool:
        """Whether the marker is a token that no prose holds."""
        return self.text.startswith(("<|", "<｜", "["))


class Markers:
    """Some markers, to be looked for at a position."""

    def __init__(self, markers: Iterable[Marker]) -> None:
        self._by_text = {marker.text: marker for marker in markers}
        self.first_chars = "".join(sorted({text[0] for text in self._by_text}))
        self.start_pattern = re.compile(f"[{_char_class(self.first_chars)}]" if self.first_chars else r"(?!)")
        self._longest = max(map(len, self._by_text), default=0)
        self._prefixes = frozenset({text[:end] for text in self._by_text for end in range(1, len(text))})
        """What a marker may be cut to."""
        longest_first = sorted(self._by_text, key=len, reverse=True)
        self._patterns: Mapping[str, re.Pattern[str]] = {
            first: re.compile("|".join([re.escape(text) for text in longest_first if text[0] == first]))
            for first in self.first_chars
        }

    def beginnings(self) -> Iterator[tuple[str, list[str]]]:
        """The characters that a marker begins with, each with what may follow it: two more characters."""
        for first in self.first_chars:
            yield first, sorted({re.escape(text[1:3]) for text in self._by_text if text[0] == first})

    def is_prefix(self, text: str) -> bool:
        """Whether the text is the beginning of a marker."""
        return text in self._prefixes or text in self._by_text

    def find(self, text: str, at: int, *, whole: bool = False) -> Marker | Literal[False] | None:
        """The longest marker at that position; False where more of the text has to be known, unless it is `whole`."""
        pattern = self._patterns.get(text[at : at + 1])
        if pattern is None:
            return False if at == len(text) and not whole else None
        if not whole and len(text) - at < self._longest and text[at:] in self._prefixes:
            return False
        match = pattern.match(text, at)
        return self._by_text[match[0]] if match else None

    def match_at(self, buffer: TextBuffer, *, emit: bool = False) -> Reading[Marker | None]:
        """The longest marker at the buffer's position. With `emit`, text before it is emitted, not held, while it waits."""
        while (marker := self.find(buffer.text, buffer.at)) is False:
            if emit:
                buffer.emit()
            try:
                yield
            except EndOfText:
                marker = self.find(buffer.text, buffer.at, whole=True)
                if not marker:
                    raise
                break
        return marker


_FEW = 8


class DialectMarkers:
    """A dialect's markers: those that stand anywhere, and those that a line may begin with.

    Only its own frames' closers are among them: of dialects that it may turn out to be, they mean nothing yet.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        anywhere: dict[str, Marker] = {}
        at_line_start: dict[str, Marker] = {}
        for owner, frame in dialect.all_frames():
            for text, read in _openings(frame):
                where = at_line_start if frame.at_line_start else anywhere
                known = where.get(text)
                frames = (*(known.frames if known else ()), (owner, frame))
                where[text] = Marker(text, MarkerKind.CALL, frames, read)
        deciding = dict(_deciding(dialect))
        call_markers = [marker for marker in anywhere.values() if marker.kind is MarkerKind.CALL]
        reasoning_ends = [
            Marker(each.closes, MarkerKind.REASONING_END, identifies=deciding.get(each.closes))
            for each in dialect.reasoning
        ]
        ignored = [Marker(token, MarkerKind.IGNORED) for token in dialect.ignored]
        ignored += [
            Marker(token, MarkerKind.IGNORED, identifies=each)
            for token, each in deciding.items()
            if token in each.ignored
        ]
        answers = {token for each in (dialect, *dialect.alternatives) for token in each.answer_markers}
        others = [
            *(
                Marker(each.opens, MarkerKind.REASONING_START, closes=each.closes, identifies=deciding.get(each.opens))
                for each in dialect.reasoning
            ),
            *reasoning_ends,
            *ignored,
            *(Marker(closer, MarkerKind.CLOSE) for frame in dialect.frames for closer in frame.closers),
        ]
        for marker in others:
            anywhere.setdefault(marker.text, marker)
        self.anywhere = Markers(anywhere.values())
        self.line = Markers((at_line_start | anywhere).values()) if at_line_start else self.anywhere
        self.in_reasoning = Markers(
            [*call_markers, *reasoning_ends, *(marker for marker in ignored if marker.text in answers)]
        )
        self.calls = Markers(call_markers)
        calls, begins = _char_class(self.calls.first_chars), "|".join(_begins(self.calls)) or "(?!)"
        self.code_pattern = re.compile(f"[`\n{calls}](?:(?<=[`\n])|{begins})", re.DOTALL)
        """What may mean something in inline code."""
        self.plain_code = re.compile(f"`(?:[^`\n{calls}]|[{calls or '`'}](?!{begins}))++`(?=[^`])", re.DOTALL)
        """Inline code in which no call is shown."""
        self.drops = {marker.text: marker for marker in ignored}
        self.prefilled = tuple(dialect.all_prefilled())
        grammars = [body for _, frame in self.prefilled for body in frame.grammars]
        firsts = frozenset([head.prefix[:1] for body in grammars for head in body.heads])
        self.prefilled_first_chars = frozenset() if "" in firsts else firsts
        """The characters that these frames may begin with; none if they may begin with any."""
        self.line_first_chars = frozenset(self.line.first_chars) | set("`~")
        self.start_pattern = _starts(self.anywhere, self.line_first_chars, "`")
        self.fence_pattern = _starts(self.calls, "`~")
        """What may mean something in a fence of another language."""
        self.reasoning_start_pattern = _starts(self.in_reasoning, self.line_first_chars)
        self.fences: dict[str, tuple[Dialect, Fence]] = {}
        for owner, fence in dialect.all_fences():
            for language in fence.languages:
                self.fences.setdefault(language, (owner, fence))


def _deciding(dialect: Dialect) -> Iterator[tuple[str, Dialect]]:
    """The tokens that only one of the dialects has that may be spoken, and no prose."""
    owners: dict[str, list[Dialect]] = {}
    for each in dialect.alternatives:
        marked = (text for reasoning in each.reasoning for text in (reasoning.opens, reasoning.closes))
        for text in dict.fromkeys((*marked, *each.ignored)):
            owners.setdefault(text, []).append(each)
    for text, dialects in owners.items():
        if len(dialects) == 1 and Marker(text, MarkerKind.IGNORED).is_control_token:
            yield text, dialects[0]


def _starts(markers: Markers, line_firsts: Iterable[str], others: str = "") -> re.Pattern[str]:
    """A character that may begin something, or a newline before one that may begin a line.

    The characters come first, in a class, which is what makes the search fast; then what follows is looked at.
    """
    line = rf"(?<=\n)(?=[ \t]{{0,{MAX_RUN}}}+(?:[{_char_class(line_firsts)}]|\Z))"
    kinds = [line, *_begins(markers), *(f"(?<={other})" for other in others)]
    return re.compile(f"[{_char_class(markers.first_chars + others)}\n](?:{'|'.join(kinds)})", re.DOTALL)


def _begins(markers: Markers) -> list[str]:
    """Patterns after the first character of a marker: what may follow it, or the end of the text."""
    begins = dict(markers.beginnings())
    # Fewer alternatives are faster; that what follows one character may then follow another finds no sign there.
    few = [first for first, more in begins.items() if len(more) < _FEW]
    groups = [(first, more) for first, more in begins.items() if first not in few]
    if few:
        groups.append(("".join(few), sorted({each for first in few for each in begins[first]})))
    return [f"(?<=[{_char_class(firsts)}])(?={'|'.join(more)}|.?\\Z)" for firsts, more in groups]


def _char_class(chars: Iterable[str]) -> str:
    return re.escape("".join(sorted(chars)))


def _openings(frame: CallFrame) -> list[tuple[str, bool]]:
    """What opens the frame, and whether that is its own marker or the body's beginning."""
    if frame.openers:
        return [(opener, True) for opener in frame.openers]
    return [(head.prefix, False) for body in frame.grammars for head in body.heads]


@lru_cache(maxsize=256)
def markers_of(dialect: Dialect) -> DialectMarkers:
    """The markers of a dialect, arranged once."""
    return DialectMarkers(dialect)


@lru_cache(maxsize=1024)
def markers_that_open(frames: tuple[DialectFrame, ...]) -> Markers:
    """The markers of these frames that may still open them."""
    markers: dict[str, Marker] = {}
    for framed in frames:
        for opener in framed[1].openers:
            known = markers.get(opener)
            markers[opener] = Marker(opener, MarkerKind.CALL, (*(known.frames if known else ()), framed))
    return Markers(markers.values())


@lru_cache(maxsize=256)
def markers_after_call(framed: DialectFrame) -> Markers:
    """What may stand behind a call in its frame."""
    dialect, frame = framed
    markers = [Marker(opener, MarkerKind.CALL, (framed,)) for opener in frame.openers]
    markers += [Marker(closer, MarkerKind.CLOSE) for closer in frame.closers]
    heads = {text for each in dialect.frames for text, _ in _openings(each)}
    markers += [Marker(token, MarkerKind.IGNORED) for token in dialect.ignored if token not in heads]
    return Markers(markers)

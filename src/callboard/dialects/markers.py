"""The markers of a dialect, indexed by their first character, so that text without markers is skipped fast."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

from callboard.dialects.dialect import CallFrame, Dialect
from callboard.dialects.text_buffer import MAX_RUN, EndOfText, Reading, TextBuffer


class MarkerKind(Enum):
    CALL = auto()
    REASONING_START = auto()
    REASONING_END = auto()
    CLOSE = auto()
    IGNORED = auto()


DialectFrame = tuple[Dialect, CallFrame]


class Marker(NamedTuple):
    """A marker. `frames` may open here. If `read` is True, the marker is not part of their body."""

    text: str
    kind: MarkerKind
    frames: tuple[DialectFrame, ...] = ()
    is_opener: bool = True
    closes: str = ""
    identifies: Dialect | None = None
    """The dialect that the marker identifies, because no other dialect has it."""

    @property
    def is_control_token(self) -> bool:
        """Whether the marker is a token that does not occur in prose."""
        return self.text.startswith(("<|", "<｜", "["))


_BEGINNING = 4
"""Number of characters of a marker that a search looks at."""


class Markers:
    """A set of markers that can be searched for at a position."""

    def __init__(self, markers: Iterable[Marker]) -> None:
        self._by_text = {marker.text: marker for marker in markers}
        self.first_chars = "".join(sorted({text[0] for text in self._by_text}))
        self.start_pattern = re.compile(f"[{_char_class(self.first_chars)}]" if self.first_chars else r"(?!)")
        self._longest = max(map(len, self._by_text), default=0)
        self._prefixes = frozenset({text[:end] for text in self._by_text for end in range(1, len(text))})
        """All beginnings of markers."""
        longest_first = sorted(self._by_text, key=len, reverse=True)
        self._patterns: Mapping[str, re.Pattern[str]] = {
            first: re.compile("|".join([re.escape(text) for text in longest_first if text[0] == first]))
            for first in self.first_chars
        }

    @cached_property
    def beginnings(self) -> list[str]:
        """Patterns for the beginnings of markers, one for each first character."""
        return _trie({text[:_BEGINNING] for text in self._by_text})

    def is_prefix(self, text: str) -> bool:
        """Whether the text is the beginning of a marker."""
        return text in self._prefixes or text in self._by_text

    def find(self, text: str, at: int, *, whole: bool = False) -> Marker | Literal[False] | None:
        """Return the longest marker at that position; False if more text is needed, unless the text is `whole`."""
        pattern = self._patterns.get(text[at : at + 1])
        if pattern is None:
            return False if at == len(text) and not whole else None
        if not whole and len(text) - at < self._longest and text[at:] in self._prefixes:
            return False
        match = pattern.match(text, at)
        return self._by_text[match[0]] if match else None

    def match_at(self, buffer: TextBuffer, *, emit: bool = False) -> Reading[Marker | None]:
        """Return the longest marker at the buffer's position. With `emit`, emit the text before it while waiting."""
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


class DialectMarkers:
    """A dialect's markers: those that are valid anywhere, and those that are valid at the beginning of a line.

    Only its own frames' closers are included. The closers of possible other dialects mean nothing yet.
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
        calls, begins = _char_class(self.calls.first_chars), "|".join(self.calls.beginnings) or "(?!)"
        self.code_pattern = re.compile(f"`|\n|{begins}")
        """Matches text that may have a meaning in inline code."""
        self.plain_code = re.compile(f"`(?:[^`\n{calls}]++|(?!{begins})[^`\n])++`(?=[^`])")
        """Matches inline code without calls."""
        self.drops = {marker.text: marker for marker in ignored}
        self.prefilled = tuple(dialect.all_prefilled())
        grammars = [body for _, frame in self.prefilled for body in frame.grammars]
        firsts = frozenset([head.prefix[:1] for body in grammars for head in body.heads])
        self.prefilled_first_chars = frozenset() if "" in firsts else firsts
        """Characters that these frames may begin with; empty if they may begin with any."""
        self.line_first_chars = frozenset(self.line.first_chars) | set("`~")
        self.start_pattern = _starts(self.anywhere, self.line)
        """Matches text that may have a meaning outside of inline code."""
        self.start_or_code_pattern = _starts(self.anywhere, self.line, "`")
        self.fence_pattern = _starts(self.calls)
        """Matches text that may have a meaning in a fence of another language."""
        self.reasoning_start_pattern = _starts(self.in_reasoning, self.line, fences="[`~]")
        self.fences: dict[str, DialectFrame] = {}
        """By label, the frames of calls in fences."""
        for owner, fence in dialect.all_fences():
            for language in fence.languages:
                self.fences.setdefault(language, (owner, fence.frame))


def _deciding(dialect: Dialect) -> Iterator[tuple[str, Dialect]]:
    """Yield the tokens that only one of the possible dialects has, and that do not occur in prose."""
    owners: dict[str, list[Dialect]] = {}
    for each in dialect.alternatives:
        marked = (text for reasoning in each.reasoning for text in (reasoning.opens, reasoning.closes))
        for text in dict.fromkeys((*marked, *each.ignored)):
            owners.setdefault(text, []).append(each)
    for text, dialects in owners.items():
        if len(dialects) == 1 and Marker(text, MarkerKind.IGNORED).is_control_token:
            yield text, dialects[0]


_FENCE = r"```|~~~|``?\Z|~~?\Z"


def _starts(
    anywhere: Markers, at_line_start: Markers | None = None, others: str = "", fences: str = _FENCE
) -> re.Pattern[str]:
    """Return a pattern for text that may begin something, or for a newline before such a line.

    Each alternative begins with one character, so that the search skips to the next of these characters.
    """
    line = "|".join([*(at_line_start.beginnings if at_line_start else ()), fences, r"\Z"])
    plain = _char_class(f"{at_line_start.first_chars if at_line_start else ''}`~ \t")
    begins = [rf"\n(?![^{plain}])(?=[ \t]{{0,{MAX_RUN}}}+(?:{line}))", *anywhere.beginnings, *map(re.escape, others)]
    return re.compile("|".join(begins))


def _trie(words: set[str]) -> list[str]:
    """Return patterns for these words, one for each first character. The end of the text may cut a word."""
    tails = {first: {word[1:] for word in words if word[0] == first} for first in sorted({word[0] for word in words})}
    return [
        re.escape(first) + (f"(?:{'|'.join(_trie(rest))}|\\Z)" if "" not in rest else "")
        for first, rest in tails.items()
    ]


def _char_class(chars: Iterable[str]) -> str:
    return re.escape("".join(sorted(chars)))


def _openings(frame: CallFrame) -> list[tuple[str, bool]]:
    """Return the openings of the frame, and whether they are its own markers or beginnings of the body."""
    if frame.openers:
        return [(opener, True) for opener in frame.openers]
    return [(head.prefix, False) for body in frame.grammars for head in body.heads]


@lru_cache(maxsize=256)
def markers_of(dialect: Dialect) -> DialectMarkers:
    """Return the markers of a dialect. They are arranged once."""
    return DialectMarkers(dialect)


@lru_cache(maxsize=1024)
def markers_that_open(frames: tuple[DialectFrame, ...]) -> Markers:
    """Return the markers of these frames that can still open them."""
    markers: dict[str, Marker] = {}
    for framed in frames:
        for opener in framed[1].openers:
            known = markers.get(opener)
            markers[opener] = Marker(opener, MarkerKind.CALL, (*(known.frames if known else ()), framed))
    return Markers(markers.values())


@lru_cache(maxsize=256)
def markers_after_call(framed: DialectFrame) -> Markers:
    """Return the markers that may follow a call in its frame."""
    dialect, frame = framed
    markers = [Marker(opener, MarkerKind.CALL, (framed,)) for opener in frame.openers]
    markers += [Marker(closer, MarkerKind.CLOSE) for closer in frame.closers]
    heads = {text for each in dialect.frames for text, _ in _openings(each)}
    markers += [Marker(token, MarkerKind.IGNORED) for token in dialect.ignored if token not in heads]
    return Markers(markers)

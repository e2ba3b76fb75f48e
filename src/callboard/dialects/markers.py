"""The markers of a dialect, by the character that they begin with.

Owns what may stand in a text and mean something, and how it is found fast. Knows nothing of what follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from functools import lru_cache
from typing import Literal, NamedTuple

from callboard.dialects.dialect import Dialect, Fence, Frame
from callboard.dialects.fence_end import MOST
from callboard.dialects.text_buffer import Over, Reader, Reading


class Kind(Enum):
    CALL = auto()
    THINK = auto()
    UNTHINK = auto()
    CLOSE = auto()
    DROP = auto()


Framed = tuple[Dialect, Frame]


class Sign(NamedTuple):
    """`frames` may open here; `read` says that the marker is not part of their body."""

    text: str
    kind: Kind
    frames: tuple[Framed, ...] = ()
    read: bool = True
    closes: str = ""
    decides: Dialect | None = None
    """The one dialect that has such a marker: where it stands, that is spoken."""

    @property
    def control(self) -> bool:
        """Whether the marker is a token that no prose holds."""
        return self.text.startswith(("<|", "<｜", "["))


class Signs:
    """Some markers, to be looked for at a position."""

    def __init__(self, signs: Iterable[Sign]) -> None:
        self._by_text = {sign.text: sign for sign in signs}
        self.firsts = "".join(sorted({text[0] for text in self._by_text}))
        self.starts = re.compile(f"[{_class(self.firsts)}]" if self.firsts else r"(?!)")
        self._longest = max(map(len, self._by_text), default=0)
        self._begun = frozenset({text[:end] for text in self._by_text for end in range(1, len(text))})
        """What a marker may be cut to."""
        self._patterns: Mapping[str, re.Pattern[str]] = {
            first: _longest_of([text for text in self._by_text if text[0] == first]) for first in self.firsts
        }

    def beginnings(self) -> Iterator[tuple[str, list[str]]]:
        """The characters that a marker begins with, each with what may follow it: two more characters."""
        for first in self.firsts:
            yield first, sorted({re.escape(text[1:3]) for text in self._by_text if text[0] == first})

    def begun(self, text: str) -> bool:
        """Whether the text is the beginning of a marker."""
        return text in self._begun or text in self._by_text

    def find(self, text: str, at: int, *, whole: bool = False) -> Sign | Literal[False] | None:
        """The longest marker at that position; False where more of the text has to be known, unless it is `whole`."""
        found = self._patterns.get(text[at : at + 1])
        if found is None:
            return False if at == len(text) and not whole else None
        if not whole and len(text) - at < self._longest and text[at:] in self._begun:
            return False
        match = found.match(text, at)
        return self._by_text[match[0]] if match else None

    def at(self, reader: Reader, *, said: bool = False) -> Reading[Sign | None]:
        """The longest marker at the reader's position. With `said`, what was read before is said rather than held."""
        while (sign := self.find(reader.text, reader.at)) is False:
            if said:
                reader.say()
            try:
                yield
            except Over:
                sign = self.find(reader.text, reader.at, whole=True)
                if not sign:
                    raise
                break
        return sign


def _longest_of(texts: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))))


_FEW = 8
_TAG = re.compile(r"</?([A-Za-z][\w.:-]*)")
_WRAPPERS = frozenset({"answer", "response", "action", "actions", "tool_calls", "function_calls"})
"""Tags that models put around what they say and do."""


class Layout:
    """A dialect's markers: those that stand anywhere, and those that a line may begin with.

    Only its own frames' closers are among them: of dialects that it may turn out to be, they mean nothing yet.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        anywhere: dict[str, Sign] = {}
        line: dict[str, Sign] = {}
        for owner, frame in dialect.framed():
            for text, read in _openings(frame):
                where = line if frame.line else anywhere
                known = where.get(text)
                frames = (*(known.frames if known else ()), (owner, frame))
                where[text] = Sign(text, Kind.CALL, frames, read)
        deciding = dict(_deciding(dialect))
        called = [sign for sign in anywhere.values() if sign.kind is Kind.CALL]
        unthink = [Sign(each.closes, Kind.UNTHINK, decides=deciding.get(each.closes)) for each in dialect.reasoning]
        drops = [Sign(token, Kind.DROP) for token in dialect.drops]
        drops += [Sign(token, Kind.DROP, decides=each) for token, each in deciding.items() if token in each.drops]
        answers = {token for each in (dialect, *dialect.speaks) for token in each.answer}
        meant = [
            *(
                Sign(each.opens, Kind.THINK, closes=each.closes, decides=deciding.get(each.opens))
                for each in dialect.reasoning
            ),
            *unthink,
            *drops,
            *(Sign(closer, Kind.CLOSE) for frame in dialect.frames for closer in frame.closers),
        ]
        for sign in meant:
            anywhere.setdefault(sign.text, sign)
        self.anywhere = Signs(anywhere.values())
        self.line = Signs((line | anywhere).values()) if line else self.anywhere
        self.thinking = Signs([*called, *unthink, *(sign for sign in drops if sign.text in answers)])
        self.drops = {sign.text: sign for sign in drops}
        self.prompted = tuple(dialect.prompts())
        self.prompted_firsts = _firsts(self.prompted)
        self.line_firsts = frozenset(self.line.firsts) | set("`~")
        self.starts = _starts(self.anywhere, self.line_firsts, "`")
        self.thinking_starts = _starts(self.thinking, self.line_firsts)
        heads = [head.prefix for _, frame in dialect.framed() for body in frame.bodies for head in body.heads]
        marked = [text for _, frame in dialect.framed() for text in (*frame.openers, *frame.closers)]
        self.tags = _WRAPPERS | {
            found[1].lower() for text in (*anywhere, *line, *heads, *marked) if (found := _TAG.match(text))
        }
        """The tags that are the dialect's own."""
        self.fences: dict[str, tuple[Dialect, Fence]] = {}
        for owner, fence in dialect.fenced():
            for language in fence.languages:
                self.fences.setdefault(language, (owner, fence))


def _firsts(frames: Iterable[Framed]) -> frozenset[str]:
    """The characters that these frames may begin with; none where they may begin with any."""
    heads = [head.prefix[:1] for _, frame in frames for body in frame.bodies for head in body.heads]
    return frozenset(heads) if all(heads) else frozenset()


def _deciding(dialect: Dialect) -> Iterator[tuple[str, Dialect]]:
    """The tokens that only one of the dialects has that may be spoken, and no prose."""
    owners: dict[str, list[Dialect]] = {}
    for each in dialect.speaks:
        marked = (text for reasoning in each.reasoning for text in (reasoning.opens, reasoning.closes))
        for text in dict.fromkeys((*marked, *each.drops)):
            owners.setdefault(text, []).append(each)
    for text, found in owners.items():
        if len(found) == 1 and Sign(text, Kind.DROP).control:
            yield text, found[0]


def _starts(signs: Signs, line_firsts: Iterable[str], others: str = "") -> re.Pattern[str]:
    """A character that may begin something, or a newline before one that may begin a line.

    The characters come first, in a class, which is what makes the search fast; then what follows is looked at.
    """
    line = rf"(?<=\n)(?=[ \t]{{0,{MOST}}}+(?:[{_class(line_firsts)}]|\Z))"
    begins = dict(signs.beginnings())
    # Fewer alternatives are faster; that what follows one character may then follow another finds no sign there.
    few = [first for first, more in begins.items() if len(more) < _FEW]
    groups = [(first, more) for first, more in begins.items() if first not in few]
    if few:
        groups.append(("".join(few), sorted({each for first in few for each in begins[first]})))
    kinds = [line, *(f"(?<=[{_class(firsts)}])(?={'|'.join(more)}|.?\\Z)" for firsts, more in groups)]
    kinds += [f"(?<={other})" for other in others]
    return re.compile(f"[{_class(signs.firsts + others)}\n](?:{'|'.join(kinds)})", re.DOTALL)


def _class(chars: Iterable[str]) -> str:
    return re.escape("".join(sorted(chars)))


def _openings(frame: Frame) -> list[tuple[str, bool]]:
    """What opens the frame, and whether that is its own marker or the body's beginning."""
    if frame.openers:
        return [(opener, True) for opener in frame.openers]
    return [(head.prefix, False) for body in frame.bodies for head in body.heads]


@lru_cache(maxsize=256)
def layout(dialect: Dialect) -> Layout:
    """The markers of a dialect, arranged once."""
    return Layout(dialect)


@lru_cache(maxsize=1024)
def openers(frames: tuple[Framed, ...]) -> Signs:
    """The markers of these frames that may still open them."""
    signs: dict[str, Sign] = {}
    for framed in frames:
        for opener in framed[1].openers:
            known = signs.get(opener)
            signs[opener] = Sign(opener, Kind.CALL, (*(known.frames if known else ()), framed))
    return Signs(signs.values())


@lru_cache(maxsize=256)
def following(framed: Framed) -> Signs:
    """What may stand behind a call in its frame."""
    dialect, frame = framed
    signs = [Sign(opener, Kind.CALL, (framed,)) for opener in frame.openers]
    signs += [Sign(closer, Kind.CLOSE) for closer in frame.closers]
    heads = {text for each in dialect.frames for text, _ in _openings(each)}
    signs += [Sign(token, Kind.DROP) for token in dialect.drops if token not in heads]
    return Signs(signs)

"""Match templates such as `<function={name}>` in text whose end may not have come yet.

Law: a marker is bounded, and so is what waiting for its end holds back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from string import Formatter
from typing import NamedTuple

MAX_NAME = 1024
"""Maximum characters of a name."""
MAX_BLANK = 64
"""Characters of white space inside a marker."""

_BLANK = rf"\s{{0,{MAX_BLANK}}}+"
_FIELDS = {
    "name": rf"[^\s<>\"'`(){{}}\[\],;=|｜\\]{{1,{MAX_NAME}}}+",
    "attribute": rf"[^\s<>\"'|｜]{{1,{MAX_NAME}}}+",
    "key": r"[^<>\"'\n|｜]{1,256}+",
    "id": rf"[^\s<>\"'`|｜\[\]]{{0,{MAX_NAME}}}+",
    "variable": r"[^\W\d]\w{0,255}+",
    "_": _BLANK,
}
_ATTRIBUTE = r"[^<>\"'\s|｜\[\]]{0,256}+"
_SPACE = {" ": rf"\s{{1,{MAX_BLANK}}}+", "\n": _BLANK}
_LOOSE = {"<": ("<", _BLANK), "=": (_BLANK, "=", _BLANK), ">": (_BLANK, ">")}
_QUOTE = "[\"']?"


class Match(NamedTuple):
    """A match: `end` is the position after the marker, `fields` its field values; `cut`: the text ends there."""

    end: int
    fields: Mapping[str, str]
    cut: bool = False


class MarkerPattern:
    """The pattern of a template: its characters, `{name}` and other fields, and white space.

    A newline in the template matches any white space or none, a space matches some. `{_}` matches white space
    that is never written. A template with fields also matches white space inside the tags, and attributes
    with other quotes or none. One of the templates in `then` must follow; it is not part of the marker.
    """

    def __init__(self, template: str, then: Iterable[str] = ()) -> None:
        self.template = template
        self.prefix = next(iter(Formatter().parse(template)), ("",))[0]
        """The characters before the first field."""
        self._then = then

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        # Compiled at the first use: all markers take 14 ms, which is 8 % of `import callboard`.
        return re.compile(self.source())

    def source(self, *, named: bool = True) -> str:
        """Return the pattern's regular expression, with or without groups."""
        tails = [_partial(_atoms(tail, named=False), f"(?P<done{at}>)" * named) for at, tail in enumerate(self._then)]
        done = "(?P<end>)" * named + (f"{_BLANK}(?:\\Z|{'|'.join(tails)})" if tails else "(?P<done>)" * named)
        return _partial(_atoms(self.template, named=named), done)

    def match(self, text: str, at: int) -> Match | bool | None:
        """Return the match at that position; None for none; True where the text ends too early to say."""
        match = self._pattern.match(text, at)
        if match is None:
            return None
        return _match(match) if (match.lastgroup or "").startswith("done") else True

    def match_end(self, text: str, at: int) -> Match | None:
        """Return the match where the text is at its end: what has to follow may then be cut off."""
        match = self._pattern.match(text, at)
        return None if match is None or match["end"] is None else _match(match, cut=True)


def _match(match: re.Match[str], *, cut: bool = False) -> Match:
    fields = {key: value.strip() for key, value in match.groupdict().items() if value is not None}
    return Match(match.start("end"), fields, cut)


@lru_cache(maxsize=4096)
def compile_marker(template: str, then: tuple[str, ...] = ()) -> MarkerPattern:
    """Return the marker of a template, compiled once as long as it is in use."""
    return MarkerPattern(template, then)


def _atoms(template: str, *, named: bool = True) -> list[str]:
    parts = list(Formatter().parse(template))
    loose = any(field for _, field, _, _ in parts)
    atoms: list[str] = []
    for literal, field, _, _ in parts:
        quoted = '="' if field else ""
        for at, char in enumerate(literal):
            if char in " \n":
                atoms.append(_SPACE[char])
            elif loose and char == '"' and ((literal.endswith(quoted) and at == len(literal) - 1) or at == 0):
                atoms.append(_QUOTE)
            elif loose and char in "<=>" and literal[at : at + 2] != "<|" and literal[at - 1 : at + 1] != "|>":
                atoms += _LOOSE[char]
            else:
                atoms.append(re.escape(char))
        if field == "_":
            atoms.append(_BLANK)
        elif field == "line":
            atoms += [r"[ \t]{0,64}+", "\n"]
        elif field is not None:
            chars = _FIELDS.get(field, _ATTRIBUTE)
            atoms.append(f"(?P<{field}>{chars})" if named else chars)
    return atoms


def _partial(atoms: list[str], done: str) -> str:
    """Matches the atoms and then `done`, or as many of them as there are before the text's end."""
    pattern = done
    for atom in reversed(atoms):
        pattern = f"(?:\\Z|{atom}{pattern})" if pattern else f"(?:\\Z|{atom})"
    return pattern

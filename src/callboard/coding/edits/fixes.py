"""Make fixes: copies of faulty code with one small change each, which often repairs such code.

Theory: most faults are of a few kinds, such as a list that is shared, a call without `await`, or a rounding of the wrong
sort. `fix_patterns` has what such code looks like and what it becomes. For a wrong name or a missing call, the other
names of the file are tried.

Laws: a fix differs from the text in one range, which begins in its line. The same text gives the same fixes, the likely ones first.
The work is linear in the text, and in the number of lines.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Final

from callboard.coding.edits.fix_patterns import (
    BUILTINS,
    CHANGES,
    IDIOMS,
    IMPORTED,
    NO_VALUE,
    OTHERS,
    RARE,
    REGULAR_EXPRESSIONS,
    TEXTS,
    UNDONE,
    VALUE,
    Row,
)
from callboard.coding.edits.mutants import MAX_TEXT, CodeToken, Edit, Mutant, find_edits, make_mutant, tokenize
from callboard.coding.outlines.languages import find_language

MAX_NAMES: Final = 6
"""Names that stand for one name, and functions that are put around one value."""
MAX_NEAR: Final = 200
"""Names before and after a line of which the nearest are taken."""
MAX_LINE: Final = 160
"""Characters of the longest line that is fixed. Some patterns take time that grows with the square of a line."""
MAX_AFTER: Final = 1000
"""Characters after a line that a pattern of several lines may use."""
MAX_UNDONE: Final = 600
"""Characters before a line in which a call is sought that nothing undoes."""
MAX_LINES: Final = 40
"""Lines that have all fixes. The lines after them have only those of usual faults, which are few."""
MAX_EDITS: Final = 100
"""Fixes of one line."""

USUAL, _CHANGE, _CALL, _NAMED = range(4)
"""Ranks: the fix of a usual fault, another small change, a function around a value, another name."""
_TARGET: Final = re.compile(rf"(?<=[(,\[{{ ])(?=({VALUE})(?:[),\]}};]|$))", re.MULTILINE)
"""A value that a function may be put around."""
_PAIR: Final = re.compile(rf"(?=\(({VALUE}), ({VALUE})\))")
_REGULAR: Final = re.compile(r"\\[bdswBDSW.]|\[\^|\(\?[:=!<P]|[\].)][*+]")
"""Signs of a regular expression in a line."""
_DEFINITION: Final = re.compile(
    r"\s*(?:export |default |async )*(?:def|class|func|function|type|package|import|from)\b"
)
_DEFINED: Final = re.compile(
    r"^(?:from .+ |)import ([^\n]+)|^(?:export |async )*(?:def|function|func|const) (\w+)(?= ?\(| = (?:async )?\()",
    re.MULTILINE,
)
"""The imports of a file, and the functions that the file defines."""
_CALLED: Final = re.compile(r"(?<![.\w])([^\W\d]\w*)\(")
_SEVERAL: Final = re.compile(rf"\(({VALUE}(?:, {VALUE})+)\)")
_FACTOR: Final = re.compile(r"(?<![\w.])(?:10|12|24|60|100|1000|1_000|1024|3600)\b")
"""Numbers by which units differ."""
_ANY_NAME: Final = re.compile(r"[^\W\d]\w{2,}")
_PART: Final = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{3,}")
"""A word in a name."""
_ATTRIBUTE: Final = re.compile(r"(?<=\w\.)[^\W\d]\w*")
_DONE: Final = re.compile(rf"\b([\w.]+)\.({'|'.join(UNDONE)})\(")
_LITERAL: Final = re.compile(r"\b(\w+)\{")
_MAP_FIELD: Final = re.compile(r"^type (\w+) struct \{\n(?:(?!\}).*\n){0,40}?\t(\w+) +(map\[\S+)", re.MULTILINE)
"""Structs of Go that have a map. The number of lines keeps the work linear where no struct ends."""
_RETURN: Final = re.compile(r"^[ \t]*(return (?:.*\W)?err\b.*)$", re.MULTILINE)
"""How functions of Go return an error."""
_ERROR: Final = re.compile(r"\b[A-Z]\w*(?:Error|Exception)\b")
_WORDS: Final = (re.compile(r"(?<![\w.])[^\W\d]\w*(?![\w(])"), re.compile(r"(?<=\w\.)[^\W\d]\w*(?![\w(])"))
"""Names of values, and of attributes."""


def make_fixes(text: str, path: str, lines: Sequence[int], others: Iterable[str] = ()) -> Iterator[Mutant]:
    """Make the fixes of these lines, from 1, sorted by rank, then by the order of the lines.

    `others` are the texts of other files that the code uses. There are none for a language that is not known here.
    """
    language = find_language(path)
    if language is None or language.name not in IDIOMS or len(text) > MAX_TEXT:
        return
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    order = {number: index for index, number in reversed([*enumerate(lines)]) if 0 < number <= len(starts)}
    tokens = tokenize(text, language.name)
    edits: list[tuple[int, Edit]] = []
    for edit in find_edits(tokens, text, language.name):
        number = bisect_right(starts, edit.start)
        if (
            number in order
            and "\n" not in text[edit.start : edit.end]
            and not _DEFINITION.match(text, starts[number - 1])
        ):
            edits.append((order[number], edit._replace(rank=_CHANGE)))
    places = [each.start for each in tokens]
    fixer = _Fixer(text, language.name, "\n".join(others)[:MAX_TEXT])
    for number, index in order.items():
        start = starts[number - 1]
        end = starts[number] - 1 if number < len(starts) else len(text)
        if end - start <= MAX_LINE:
            first = max(bisect_left(places, start) - 1, 0)  # a text of several lines may begin before the line
            line_edits = fixer.fix_line(start, end, tokens[first : bisect_left(places, end)])
            edits += [(index, each) for each in islice(line_edits, MAX_EDITS)]
    edits = sorted(
        (each for each in edits if each[0] < MAX_LINES or each[1].rank == USUAL),
        key=lambda each: (each[1].rank, each[0]),
    )
    seen: set[tuple[int, str]] = set()
    for index, edit in edits:
        mutant = make_mutant(text, lines[index], edit)
        if mutant.new != mutant.old and (mutant.line, mutant.new) not in seen:
            seen.add((mutant.line, mutant.new))
            yield mutant


class _Fixer:
    """Finds the edits of lines of one text."""

    def __init__(self, text: str, language: str, others: str) -> None:
        self._text = text
        self._language = language
        self._others = {*_ANY_NAME.findall(others)}
        self._by_part: dict[str, list[str]] = {}
        """The first names of other files that have a word."""
        for name in dict.fromkeys(_ANY_NAME.findall(others)):
            for part in _PART.findall(name):
                names = self._by_part.setdefault(part.lower(), [])
                if name not in names and len(names) <= MAX_NAMES:
                    names.append(name)
        names = [match[1] or match[2] for match in _DEFINED.finditer(text)]
        self._functions = [
            name for each in names for name in re.findall(r"\w+" if language == "go" else r"\b[a-z]\w*", each)
        ]
        self._code = {
            "ERROR": [*dict.fromkeys(_ERROR.findall(text))][:MAX_NAMES],
            "RETURN": [*dict.fromkeys([*_RETURN.findall(text), "return err"])][:MAX_NAMES],
        }
        self._maps = {match[1]: f"{match[2]}: {match[3]}{{}}" for match in _MAP_FIELD.finditer(text)}
        numbers = dict.fromkeys([*_FACTOR.findall(text), "1000"])
        self._factors = [f"{sign} {number}" for number in numbers for sign in "/*"]
        self._names = [[(match.start(), match[0]) for match in pattern.finditer(text)] for pattern in _WORDS]
        self._words = {*re.findall(r"\w+", text)}

    def fix_line(self, start: int, end: int, tokens: Sequence[CodeToken]) -> Iterator[Edit]:
        """Return the edits of the line between these places, whose tokens these are."""
        text, groups = self._text, _groups(self._language)
        strings = [range(each.start, each.end) for each in tokens if each.kind == "other"]

        def is_code(place: int) -> bool:
            return not any(place in each for each in strings)

        yield from self._apply(IDIOMS[self._language], USUAL, start, end, is_code)
        for match in _LITERAL.finditer(text, start, end):
            if field := self._maps.get(match[1]):
                comma = "" if text.startswith("}", match.end()) else ", "
                yield Edit(USUAL, match.end(), match.end(), field + comma)
        yield from self._apply(CHANGES, _CHANGE, start, end, is_code)
        yield from self._apply(RARE[self._language], _CALL, start, end, is_code)
        if _DEFINITION.match(text, start, end):
            return
        if _REGULAR.search(text, start, end):
            yield from self._apply(REGULAR_EXPRESSIONS, _CHANGE, start, end, lambda _: True)
        for token in tokens:
            if token.start < start:
                continue
            if token.kind == "number" and token.text.isdecimal() and token.text != "0":
                yield Edit(_CHANGE, token.start, token.end, str(int(token.text) - 1))
            for other in groups.get(token.text, ()) if token.kind == "word" else ():
                yield Edit(_CHANGE, token.start, token.end, other)
        yield from self._call(start, end)
        yield from self._undo(start, end)
        for match in _ATTRIBUTE.finditer(text, start, end):
            parts = [part.lower() for part in _PART.findall(match[0])]
            similar = dict.fromkeys([name for part in parts for name in self._by_part.get(part, ())])
            rank = _NAMED if match[0] in self._others else _CHANGE
            names = [each for each in similar if each != match[0]][:MAX_NAMES]
            yield from (Edit(rank, match.start(), match.end(), each) for each in names)
        for pattern, known in zip(_WORDS, self._names, strict=True):
            at = bisect_left(known, (start, ""))
            near = known[max(0, at - MAX_NEAR) : at + MAX_NEAR]
            nearest = sorted(near, key=lambda each: abs(each[0] - start))
            names = [*dict.fromkeys(name for _, name in nearest if not NO_VALUE.match(name))][: MAX_NAMES + 1]
            for match in pattern.finditer(text, start, end):
                if not NO_VALUE.match(match[0]) and is_code(match.start()):
                    yield from (Edit(_NAMED, match.start(), match.end(), each) for each in names if each != match[0])
            for match in _SEVERAL.finditer(text, start, end):
                yield from (Edit(_NAMED, match.end(1), match.end(1), f", {each}") for each in names)

    def _apply(
        self, rows: Sequence[Row], rank: int, start: int, end: int, is_code: Callable[[int], bool]
    ) -> Iterator[Edit]:
        for pattern, replacements in _compile(rows):
            matches: list[re.Match[str]] = []
            for match in pattern.finditer(self._text, start, end + MAX_AFTER):
                if match.start() > end:
                    break
                if is_code(match.start()) or match[0] in TEXTS:
                    matches.append(match)
            if len(matches) > 1 and matches[-1].end() <= end and pattern.groups:
                yield from self._replace_all(matches, replacements, rank)
            for match in matches:
                for each in replacements:
                    if self._has_names_of(each):
                        new = match.expand(each)
                        word = next((word for word in self._code if word in each), "")
                        for code in self._code.get(word, [""]):
                            yield Edit(rank, match.start(), match.end(), new.replace(word, code) if word else new)

    def _has_names_of(self, replacement: str) -> bool:
        """Return whether the file has the names that the replacement needs."""
        needs_async = "await " in replacement or "async " in replacement
        return self._words.issuperset([*IMPORTED.findall(replacement), *(["async"] if needs_async else [])])

    def _replace_all(self, matches: Sequence[re.Match[str]], replacements: Sequence[str], rank: int) -> Iterator[Edit]:
        """Change all places of a line in which a fault is: `a == null || b == null`."""
        for each in replacements:
            if self._code.keys().isdisjoint(re.findall(r"[A-Z]+", each)) and self._has_names_of(each):
                at, new = matches[0].start(), ""
                for match in matches:
                    new += self._text[at : match.start()] + match.expand(each)
                    at = match.end()
                yield Edit(rank, matches[0].start(), at, new)

    def _undo(self, start: int, end: int) -> Iterator[Edit]:
        """Insert the call that undoes one of the lines before, if the file has no such call."""
        line = self._text[start:end]
        indent = line[: len(line) - len(line.lstrip())]
        first = max(self._text.rfind("\n", 0, max(0, start - MAX_UNDONE)), 0)
        for match in _DONE.finditer(self._text, first, start):
            undo = f"{match[1]}.{UNDONE[match[2]]}"
            if undo not in self._text and indent:
                yield Edit(_CALL, start, start, f"{indent}{undo}{';' * (self._language == 'javascript')}\n")

    def _call(self, start: int, end: int) -> Iterator[Edit]:
        """Put functions around values: those that the line calls, then others of the file."""
        near = _CALLED.findall(self._text, start, end)
        for name in [*dict.fromkeys([*near, *self._functions, *BUILTINS[self._language]])][:MAX_NAMES]:
            rank = _CHANGE if name in near else _CALL
            if NO_VALUE.match(name):
                continue
            for match in _TARGET.finditer(self._text, start, end):
                if not NO_VALUE.match(match[1]):
                    yield Edit(rank, match.start(1), match.end(1), f"{name}({match[1]})")
            for match in _PAIR.finditer(self._text, start, end):
                yield Edit(rank, match.start(1), match.end(2), f"{name}({match[1]}), {name}({match[2]})")
        for match in _TARGET.finditer(self._text, start, end):
            if not NO_VALUE.match(match[1]):
                yield from (Edit(_CALL, match.end(1), match.end(1), each) for each in (" + 1", " - 1"))
                yield from (Edit(_NAMED, match.end(1), match.end(1), f" {each}") for each in self._factors)


@cache
def _compile(rows: Sequence[Row]) -> Sequence[tuple[re.Pattern[str], Sequence[str]]]:
    return [(re.compile(row[0], re.MULTILINE), row[1:]) for row in rows]


@cache
def _groups(language: str) -> Mapping[str, Sequence[str]]:
    """Return the names that are taken for each name."""
    others: dict[str, dict[str, None]] = {}
    for group in OTHERS[language].split(";"):
        names = group.split()
        for name in names:
            others.setdefault(name, {}).update(dict.fromkeys(each for each in names if each != name))
    return {name: (*each,) for name, each in others.items()}

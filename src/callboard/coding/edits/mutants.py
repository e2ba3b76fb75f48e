"""Make mutants of code: copies that have one small mistake each, which good tests notice.

Theory: a text is a row of tokens. Strings and comments are tokens too, so nothing in them is changed. A rule names a
token and what it becomes. Conditions and returned values are whole ranges of tokens.

Laws: a mutant differs from the text in one range of one line; making mutants is linear in the text; the same text
gives the same mutants. No mutant has a syntax error.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Final, NamedTuple

from callboard.coding.outlines import find_syntax_error
from callboard.coding.outlines.languages import find_language

MAX_TEXT: Final = 200_000
"""Characters of the largest text that is mutated."""
MAX_CANDIDATES: Final = 200
"""Mutants of one text that are considered."""

_CHANGES: Final[Sequence[Mapping[str, str]]] = [
    {pair.partition(" ")[0]: pair.partition(" ")[2] for pair in pairs}
    for pairs in (
        ("< <=", "<= <", "> >=", ">= >", "== !=", "!= ==", "=== !==", "!== ===", "not ", "! "),
        ("+ -", "- +", "* +", "/ *", "// /", "% +", "+= -=", "-= +=", "&& ||", "|| &&", "and or", "or and"),
        ("True False", "False True", "true false", "false true"),
    )
]
"""Tokens and their replacements, in each language that has them. Few tests notice the first changes, most notice the last."""
_NUMBERS: Final = len(_CHANGES)
"""The rank of a changed number."""
_RANGES: Final = _NUMBERS + 1
"""The rank of a negated condition, of a changed returned value and of exchanged arguments."""


class _Syntax(NamedTuple):
    """How a language writes what is mutated."""

    comments: str
    """Pattern of its comments and of its strings that are not in quotes alone."""
    condition_end: str
    """The token after a condition; `)` if the condition is in brackets."""
    negation: str
    """A condition that is negated, with `{}` in its place."""
    nothing: str = ""
    """The value that is returned instead of another; "" if the types allow none."""


_QUOTED: Final = r"\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])*'?"
_SYNTAX: Final[Mapping[str, _Syntax]] = {
    "python": _Syntax(r"#[^\n]*|\"\"\"[\s\S]*?(?:\"\"\"|\Z)|'''[\s\S]*?(?:'''|\Z)", ":", "not ({})", "None"),
    "javascript": _Syntax(r"//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)|`(?:\\.|[^`\\])*`?", ")", "!({})", "null"),
    "go": _Syntax(r"//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)|`[^`]*`?", "{", "!({})"),
}
_CODE: Final = (
    r"(?P<word>[^\W\d]\w*)|(?P<number>\d[\w.]*)|(?P<operator>->|=>|:=|<-|\*\*=?|//=?|===|!==|&&|\|\||\+\+|--|[-+*/%<>=!&|^]=?"
    r"|[^\s\w])"
)
_TOKENS: Final = {name: re.compile(rf"(?P<other>{each.comments}|{_QUOTED})|{_CODE}") for name, each in _SYNTAX.items()}
_PREFIXES: Final = frozenset({"*", "+"})
"""Operators that mean something else before a value alone, such as a pointer or further arguments."""
_BEFORE_VALUE: Final = frozenset({"", "(", "[", "{", ",", "=", ":", ":=", "return", "]", "func"})
_KEYWORDS: Final = frozenset(
    {"and", "catch", "elif", "for", "func", "if", "in", "not", "of", "or", "return", "switch", "while", "yield"}
)
"""Words before a bracket that name no function."""
_DEFINE: Final = frozenset({"def", "func", "function", ")"})
"""Tokens before the name of a function in its definition."""
_MAX_CALL: Final = 60
"""Tokens of the longest call whose arguments are exchanged."""
_CONDITIONS: Final = frozenset({"if", "elif", "while"})
_OPEN: Final = frozenset("([{")
_CLOSE: Final = frozenset(")]}")


class Mutant(NamedTuple):
    """A text with one mistake."""

    line: int
    """The number of the line, from 1, that has the mistake."""
    old: str
    """The line before the change."""
    new: str
    """The line after it; several lines if it has become so many."""
    text: str
    """The whole text with the mistake."""
    rank: int
    """The rank of the kind of change: low ones come first."""


class CodeToken(NamedTuple):
    """A word, a number, an operator, or `other`: a text or a comment."""

    kind: str
    text: str
    start: int
    end: int


class Edit(NamedTuple):
    """New code for a range of the text."""

    rank: int
    start: int
    end: int
    new: str


def make_mutants(text: str, path: str, lines: Iterable[range], limit: int) -> list[Mutant]:
    """Return at most `limit` mutants of the code in these lines, from 1, spread over them.

    There are none for a language that is not known here.
    """
    language = find_language(path)
    syntax = _SYNTAX.get(language.name) if language is not None else None
    if language is None or syntax is None or len(text) > MAX_TEXT:
        return []
    line_numbers = {number for each in lines for number in each}
    tokens = tokenize(text, language.name)
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    by_line: dict[int, list[Edit]] = {}
    for edit in sorted(find_edits(tokens, text, language.name)):
        number = bisect_right(starts, edit.start)
        if number in line_numbers and "\n" not in text[edit.start : edit.end]:
            by_line.setdefault(number, []).append(edit)
    lines_in_order = [[(number, edit) for edit in by_line[number]] for number in sorted(by_line)]
    rounds = [each for row in zip_longest(*lines_in_order) for each in row if each is not None]
    mutants = (make_mutant(text, number, edit) for number, edit in rounds[:MAX_CANDIDATES])
    return [*islice((each for each in mutants if find_syntax_error(each.text, path) is None), limit)]


def find_code_lines(text: str, path: str) -> list[int]:
    """Return the numbers of the lines, from 1, that have a word of code; none if the language is not known here."""
    language = find_language(path)
    pattern = _TOKENS.get(language.name) if language is not None else None
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    words = [each for each in pattern.finditer(text) if each.lastgroup == "word"] if pattern is not None else []
    return sorted({bisect_right(starts, each.start()) for each in words})


def tokenize(text: str, language: str) -> list[CodeToken]:
    """Return the tokens of a text in a language of `_SYNTAX`; strings and comments are of the kind `other`."""
    matches = _TOKENS[language].finditer(text)
    return [CodeToken(match.lastgroup or "", match[0], match.start(), match.end()) for match in matches]


def find_edits(tokens: Sequence[CodeToken], text: str, language: str) -> list[Edit]:
    """Return the edits of a text that make its mutants."""
    return [*_edit_tokens(tokens), *_edit_ranges(tokens, text, _SYNTAX[language]), *_exchange(tokens, text)]


def describe_mutant(mutant: Mutant) -> str:
    """Return the change of a mutant for a prompt."""
    return f"line {mutant.line}: `{mutant.old}` -> `{mutant.new}`"


def make_mutant(text: str, number: int, edit: Edit) -> Mutant:
    """Return the text with an edit, which begins in the line `number`."""
    changed = text[: edit.start] + edit.new + text[edit.end :]
    start = text.rfind("\n", 0, edit.start) + 1
    rest = text[edit.end :].partition("\n")[0]
    old, new = text[start : edit.end] + rest, text[start : edit.start] + edit.new + rest
    return Mutant(number, old.strip(), new.strip(), changed, edit.rank)


def _edit_tokens(tokens: Sequence[CodeToken]) -> Iterator[Edit]:
    """Change operators, words and numbers, one at a time."""
    before = ""
    for token in tokens:
        if token.kind == "number" and token.text.isdecimal():
            yield Edit(_NUMBERS, token.start, token.end, str(int(token.text) + 1))
        elif (change := _find_change(token)) is not None and not (token.text in _PREFIXES and before in _BEFORE_VALUE):
            yield Edit(change[0], token.start, token.end, change[1])
        before = token.text


def _find_change(token: CodeToken) -> tuple[int, str] | None:
    """Return the rank of the change of a token and what the token becomes, None if it stays."""
    return next(((rank, row[token.text]) for rank, row in enumerate(_CHANGES) if token.text in row), None)


def _edit_ranges(tokens: Sequence[CodeToken], text: str, syntax: _Syntax) -> Iterator[Edit]:
    """Negate conditions that have no operator, and return nothing instead of a value."""
    for at, token in enumerate(tokens):
        if token.kind != "word":
            continue
        if token.text in _CONDITIONS:
            start, end = _find_condition(tokens, at + 1, syntax.condition_end)
            if start < end and not any(map(_find_change, tokens[start:end])):
                first, last = tokens[start].start, tokens[end - 1].end
                yield Edit(_RANGES, first, last, syntax.negation.format(text[first:last]))
        elif token.text == "return" and syntax.nothing:
            value = text[token.end :].partition("\n")[0].rstrip().rstrip(";").rstrip()
            if value.strip() not in ("", syntax.nothing):
                yield Edit(_RANGES, token.end, token.end + len(value), f" {syntax.nothing}")


def _exchange(tokens: Sequence[CodeToken], text: str) -> Iterator[Edit]:
    """Exchange the arguments of calls that have two."""
    for at in range(1, len(tokens) - 1):
        before, name = tokens[at - 2].text if at > 1 else "", tokens[at - 1]
        if tokens[at].text != "(" or name.kind != "word" or name.text in _KEYWORDS or before in _DEFINE:
            continue
        depth, commas = 0, list[int]()
        for end in range(at, min(len(tokens), at + _MAX_CALL)):
            token = tokens[end]
            if token.kind != "other":
                depth += (token.text in _OPEN) - (token.text in _CLOSE)
                commas += [end] if depth == 1 and token.text in (",", "=") else []
            if depth == 0:
                break
        if depth == 0 and len(commas) == 1 and tokens[commas[0]].text == "," and at + 1 < commas[0] < end - 1:
            start, stop = tokens[at + 1].start, tokens[end - 1].end
            first, second = text[start : tokens[commas[0] - 1].end], text[tokens[commas[0] + 1].start : stop]
            if first != second:
                yield Edit(_RANGES, start, stop, f"{second}, {first}")


def _find_condition(tokens: Sequence[CodeToken], start: int, ending: str) -> tuple[int, int]:
    """Return the range of the tokens of a condition; an empty range if there is none."""
    depth = 0
    inner = ending == ")"
    if inner and (start >= len(tokens) or tokens[start].text != "("):
        return start, start
    for at in range(start, len(tokens)):
        token = tokens[at]
        if token.kind != "other":
            depth += (token.text in _OPEN) - (token.text in _CLOSE)
        if inner and depth == 0:
            return start + 1, at
        if not inner and token.text == ending and depth == (ending == "{"):
            return start, at
        if token.text == ";" and depth == 0:
            start = at + 1
        if depth < 0:
            break
    return start, start

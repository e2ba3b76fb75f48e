"""Split a shell command line into words, if it is one simple command.

A simple command runs one program: it has no operator, substitution, variable, assignment, comment, brace or second
line, and its redirections read and write no file. For everything else the result is None. These rules help people to
express permissions. They are not a security boundary: the parser cannot know what a program does. The sandbox is.

Law: sh and bash start at most one program for such a command, the first word, with these words. Linear time.

Why not shlex: it reads a quoted operator like a bare one, and the end of a line like a blank.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MAX_LENGTH: Final = 16 * 1024
"""Maximum characters of a simple command."""


class Word(NamedTuple):
    """A word as the program gets it. A word that is not `certain`, such as `*.py` or `~`, may become any words."""

    text: str
    certain: bool = True


_WORD: Final = re.compile(r"""(?:[\w@%+=:,./^*?\[\]~-]|\\[ -~]|'[^']*+'|"(?:[^"\\$`]|\\[^\n])*+")++""")
_PIECE: Final = re.compile(
    r"""(?P<plain>[\w@%+=:,./^*?\[\]~-]++)|\\(?P<escaped>.)|'(?P<single>[^']*+)'|"(?P<double>(?:[^"\\]|\\.)*+)\"""",
    re.DOTALL,
)
_ESCAPED: Final = re.compile(r'\\(["\\$`])')
_WILD: Final = re.compile(r"[*?\[\]]|(?:^|[:=])~")
_BLANK: Final = re.compile(r"[ \t]++")
_HARMLESS: Final = re.compile(r"[0-9]?(?:(?:>|>>|>\||<|<>)/dev/null|[<>]&[0-9-])(?=[ \t]|\Z)")
"""A redirection that bash and dash read alike, and that reads and writes no file."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_RESERVED: Final = frozenset(
    {"if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for", "select", "function",
     "coproc", "time", "!", "[["}
)  # fmt: skip
"""Words that a shell does not run as a program if nothing in them is quoted."""


def split_command(text: str) -> tuple[Word, ...] | None:
    """Return the words of a simple command, or None for any other text."""
    text = text.strip(" \t\n")
    if not text or len(text) > MAX_LENGTH or _CONTROL.search(text):
        return None
    words: list[Word] = []
    at = 0
    while at < len(text):
        if redirection := _HARMLESS.match(text, at):
            end = redirection.end()
        elif match := _WORD.match(text, at):
            end = match.end()
            # A shell does not run an assignment or a reserved word as a program.
            if not words and ("=" in re.split(r"[\\'\"]", match[0], maxsplit=1)[0] or match[0] in _RESERVED):
                return None
            words.append(_unquote(match[0]))
        else:
            return None
        blank = _BLANK.match(text, end)
        if blank is None and end < len(text):
            return None
        at = blank.end() if blank else end
    return tuple(words) if words and words[0].certain and words[0].text else None


def _unquote(word: str) -> Word:
    parts: list[str] = []
    certain = True
    for piece in _PIECE.finditer(word):
        certain = certain and not (piece["plain"] and _WILD.search(piece["plain"]))
        kind = piece.lastgroup or ""
        parts.append(_ESCAPED.sub(r"\1", piece[kind]) if kind == "double" else piece[kind])
    return Word("".join(parts), certain)

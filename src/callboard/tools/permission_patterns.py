"""Compare the pattern of a permission rule with a path or a command.

Law: `yes` and `no` are certain; everything else is `maybe`.

A name may differ from a pattern only in upper and lower case, composed accents or invisible characters. The answer is
then `maybe`, because some file systems treat such names as equal (APFS, NTFS, ext4 directories that ignore case).
The file system itself is not asked. Links are not followed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal, NamedTuple, TypeAlias

from callboard.errors import CallerError
from callboard.tools.shell_parser import Word

Answer: TypeAlias = Literal["yes", "maybe", "no"]
Parts: TypeAlias = tuple[str | None, ...]
"""Patterns of words or of names. None matches any number of them."""

_WILD: Final = re.compile(r"[*?\[]")
_NAME: Final = re.compile(r"[\w.@+*?-]+")
"""A possible name of a program, or a word after it, in the text of a word."""
_QUOTES: Final = dict.fromkeys(map(ord, "'\"\\"))
_MAX_STARTS: Final = 16
"""Maximum places in a command where a denied program may be named."""
_READERS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "eval", "source", "."})
"""Programs that read a command line, so quotes and variables in it count again."""
_PLACES: Final = frozenset(
    f"{root}/{name}" for root in ("", "/usr", "/usr/local", "/opt/homebrew") for name in ("bin", "sbin")
)
"""Directories in which a program is what its name says."""


class Path(NamedTuple):
    """A path without `.` and `..`. `relative` is None if it leaves the root, `absolute` if the root is unknown."""

    relative: tuple[str, ...] | None
    absolute: tuple[str, ...] | None
    names: tuple[str, ...]
    """The names that are certainly in the path, whatever precedes them."""


def read_path(text: str, root: str = "") -> Path:
    """Return the path of a text. `root` is the absolute path that relative paths start from, if it is known."""
    base = _names(root) if root.startswith("/") else None
    names = _names(text)
    absolute: tuple[str, ...] | None = names
    if not text.startswith("/"):
        absolute = None if base is None else _names(f"{root}/{text}")
    if absolute is not None and base is not None:
        is_inside = absolute[: len(base)] == base
        return Path(absolute[len(base) :] if is_inside else None, absolute, absolute)
    outside = text.startswith("/") or names[:1] == ("..",)
    return Path(None if outside else names, absolute, tuple([name for name in names if name != ".."]))


def _names(path: str) -> tuple[str, ...]:
    """Return the names of a path, with the `..` that lead out of its start."""
    names: list[str] = []
    for name in path.split("/"):
        if name == ".." and names and names[-1] != "..":
            names.pop()
        elif name == ".." and path.startswith("/"):
            continue
        elif name not in {"", "."}:
            names.append(name)
    return tuple(names)


class Pattern:
    """The pattern in `tool(pattern)`. Raises CallerError if it is invalid."""

    def __init__(self, text: str) -> None:
        if not text.strip() or ".." in text.split("/"):
            hint = "a path beneath the root, or the words of a command: file(src/**), bash(git status*)"
            raise CallerError("no pattern of a path or a command", path=f"({text})", hint=hint)
        self._rooted = text.startswith("/")
        self._names: Parts = tuple(
            [None if name == "**" else name for name in text.split("/") if name not in {"", "."}]
        )
        self._folded: Parts = tuple([None if name is None else fold_name(name) for name in self._names])
        words = text.split()
        self._words: Parts = tuple([None if word == "*" else word for word in words])
        if words[-1].endswith("*"):
            self._words += (None,)
        self._begins: Parts = (*self._words, None)

    @property
    def place(self) -> str:
        """The only relative path that the pattern matches, with or without its contents; "" if it matches several."""
        names = self._names[:-1] if self._names[-1:] == (None,) else self._names
        if self._rooted or not all(name and not _WILD.search(name) for name in names):
            return ""
        return "/".join([name for name in names if name])

    def answer_for_path(self, path: Path) -> Answer:
        names = path.absolute if self._rooted else path.relative
        if names is not None:
            if _matches(self._names, names):
                return "yes"
            return "maybe" if _matches(self._folded, map(fold_name, names)) else "no"
        if self._rooted:
            return "maybe"
        # The path may lead back in.
        return "maybe" if _matches((None, *self._folded), map(fold_name, path.names)) else "no"

    def allows_path(self, path: Path) -> bool:
        return self.answer_for_path(path) == "yes"

    def allows_command(self, words: Sequence[Word]) -> bool:
        """True if the command has exactly these words."""
        first, *rest = words
        directory, _, name = first.text.rpartition("/")
        names = (first.text, name) if directory in _PLACES else (first.text,)
        return any(_matches(self._words, [Word(each), *rest]) for each in names)

    def answer_for_command(self, words: Sequence[Word]) -> Answer:
        """Say whether the command begins with these words, in any directory and with any options between them.

        The answer is "maybe" if the program is named later in the command, because many programs run other programs,
        and if a shell reads the words again.
        """
        name = words[0].text.rpartition("/")[2]
        rest = words[1:]
        if any(_matches(self._begins, [Word(each), *rest]) for each in (words[0].text, name)):
            return "yes"
        if name in _READERS or any(_may_match(self._begins, [Word(each), *rest]) for each in (words[0].text, name)):
            return "maybe"
        program = self._words[0]
        if program is None:
            return "no"
        later = [Word(each) for word in rest for each in _NAME.findall(word.text.translate(_QUOTES))]
        starts = [
            (at, each)
            for at, word in enumerate(later)
            for each in {word.text, word.text[2 if word.text[0] == "-" else 0 :]}
            if fnmatchcase(each, program)
        ]
        if len(starts) > _MAX_STARTS:
            return "maybe"
        begins = self._begins
        return "maybe" if any(_may_match(begins, [Word(each), *later[at + 1 :]]) for at, each in starts) else "no"


def fold_name(name: str) -> str:
    """Return the name in the form that case-insensitive or normalizing file systems compare."""
    if name.isascii():
        return name.lower()
    seen = "".join([char for char in unicodedata.normalize("NFKD", name) if unicodedata.category(char) != "Cf"])
    return unicodedata.normalize("NFKD", seen.casefold())


def _matches(pattern: Parts, parts: Iterable[str | Word]) -> bool:
    """Match parts with a pattern. The time for each part is linear in the pattern."""
    at = _with_skipped({0}, pattern)
    for part in parts:
        text, certain = (part.text, part.certain) if isinstance(part, Word) else (part, True)
        after: set[int] = set()
        for place in at:
            if place < len(pattern):
                expected = pattern[place]
                if expected is None:
                    after.add(place)
                elif certain and fnmatchcase(text, expected):
                    after.add(place + 1)
        at = _with_skipped(after, pattern)
        if not at:
            return False
    return len(pattern) in at


def _may_match(pattern: Parts, words: Sequence[Word]) -> bool:
    """Match with doubts: an uncertain word may be any words, and an option and its value may be left out."""
    at = _with_skipped({0}, pattern)
    skipped: set[int] = set()
    """Positions in the pattern after an omitted value."""
    for number, word in enumerate(words):
        if not word.certain:
            at = set(range(min(at), len(pattern) + 1))
            continue
        after: set[int] = set(skipped)
        skipped = set()
        for place in at:
            part = pattern[place] if place < len(pattern) else ""
            if part is None:
                after.add(place)
            elif place < len(pattern) and fnmatchcase(word.text, part):
                after.add(place + 1)
            if number and word.text.startswith("-"):
                after.add(place)
                skipped.add(place)
        at = _with_skipped(after, pattern)
        if not at:
            return False
    return len(pattern) in at


def _with_skipped(at: set[int], pattern: Parts) -> set[int]:
    """Return the positions, and those after any number of parts that may be missing."""
    for place in sorted(at):
        while place < len(pattern) and pattern[place] is None:
            place += 1  # noqa: PLW2901  # the place itself is already included
            at.add(place)
    return at

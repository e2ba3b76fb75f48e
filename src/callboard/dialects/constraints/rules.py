"""The rules of one grammar, and how text is written in them.

What is written here is read alike by llama.cpp (GBNF) and by xgrammar (EBNF): literals, classes of characters,
repetitions, alternatives and names of rules.

Law: the same text of a rule is one rule, so that what many tools have in common stands there once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

_NO_NAME = re.compile(r"[^a-z0-9]+")
_ESCAPES: Mapping[str, str] = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_CLASS_ESCAPES: Mapping[str, str] = {**_ESCAPES, "]": "\\]", "[": "\\[", "^": "\\x5E", "-": "\\x2D", '"': '"'}
_MAX_HINT = 24
NOTHING = '""'

SPACE = '"" | " " | "\\n" "\\n"? [ \\t]{0,20}'
"""White space where it means nothing: as much as models write, but no end of it."""


class TooLarge(Exception):  # it says what it is
    """The grammar has grown beyond its limit."""


class GrammarRules:
    """Rules by their names."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._size = 0
        self._limit: int | None = None

    def add(self, hint: str, body: str) -> str:
        """The name of a rule with that text; `hint` is what it is called if it is new."""
        name = self._names.get(body)
        if name is None:
            name = self.reserve(hint)
            self.define(name, body)
            self._names[body] = name
        return name

    def reserve(self, hint: str) -> str:
        """A name whose rule is defined later, because its text refers to itself."""
        stem = _NO_NAME.sub("-", hint.lower()).strip("-")[:_MAX_HINT].rstrip("-") or "r"
        name, count = stem, len(self._bodies)
        while name in self._bodies:
            name, count = f"{stem}-{count}", count + 1
        self._bodies[name] = NOTHING
        return name

    def define(self, name: str, body: str) -> None:
        self._size += len(name) + len(body)
        if self._limit is not None and self._size > self._limit:
            raise TooLarge
        self._bodies[name] = body

    def find(self, name: str, make: Callable[[], str]) -> str:
        """The rule of exactly that name, made if there is none."""
        if name not in self._bodies:
            self._bodies[name] = NOTHING
            self.define(name, make())
        return name

    @contextmanager
    def attempt(self, limit: int) -> Iterator[None]:
        """Raises TooLarge where all rules together become larger; what was added inside is then forgotten."""
        before = dict(self._bodies), dict(self._names), self._size
        self._limit = limit
        try:
            yield
        except TooLarge:
            self._bodies, self._names, self._size = before
            raise
        finally:
            self._limit = None

    def text(self, root: str) -> str:
        """The grammar whose root is that expression; rules that it does not lead to are left out."""
        used: dict[str, None] = {}
        waiting = [root]
        while waiting:
            for name in _names_in(waiting.pop()):
                if name not in used:
                    used[name] = None
                    waiting.append(self._bodies[name])
        lines = [f"root ::= {root}", *(f"{name} ::= {self._bodies[name]}" for name in self._bodies if name in used)]
        return "\n".join(lines) + "\n"


_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|\{[\d,]*\}|([a-z0-9-]+)')


def _names_in(body: str) -> list[str]:
    """The names of rules in an expression."""
    return [match[1] for match in _TOKEN.finditer(body) if match[1]]


def literal(text: str) -> str:
    """The expression of exactly that text."""
    return '"' + "".join([_ESCAPES.get(char) or _plain(char) for char in text]) + '"'


def characters(chars: Iterable[str], *, other: bool = False) -> str:
    """The expression of one of the characters, or with `other` of one that is none of them."""
    escaped = "".join([_CLASS_ESCAPES.get(char) or _plain(char) for char in sorted(set(chars))])
    return f"[{'^' * other}{escaped}]" if escaped else "[^\\x00]"


def sequence(parts: Iterable[str]) -> str:
    """The expressions one behind the other."""
    return " ".join([part for part in parts if part != NOTHING]) or NOTHING


def _plain(char: str) -> str:
    return f"\\x{ord(char):02X}" if ord(char) < 0x20 or ord(char) == 0x7F else char

"""What is searched for: a regular expression, or a text where the pattern is none, as in `foo(`."""

from __future__ import annotations

import re
import warnings

import msgspec


class Query(msgspec.Struct, frozen=True):
    """`fixed`: the pattern is a text, not an expression."""

    pattern: str
    ignore_case: bool = False
    fixed: bool = False

    @property
    def source(self) -> str:
        """The pattern as an expression of Python."""
        return re.escape(self.pattern) if self.fixed else self.pattern

    @property
    def text(self) -> str:
        """A text that every matching line contains, "" if none is known."""
        plain = self.fixed or not re.search(r"[^\w\s\"'`:;,=<>/%&!@~-]", self.pattern)
        return self.pattern if plain and not self.ignore_case and self.pattern.isprintable() else ""


def parse_query(pattern: str, *, ignore_case: bool = False) -> Query:
    """Parse a pattern; one that is no regular expression, as `foo(`, is searched for as a text."""
    with warnings.catch_warnings():
        # Of expressions that will mean something else one day.
        warnings.simplefilter("ignore")
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError):
            return Query(pattern, ignore_case, fixed=True)
    return Query(pattern, ignore_case)

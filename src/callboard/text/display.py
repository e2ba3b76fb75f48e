"""Make untrusted text safe to show: in a log, in a terminal, in a message, in a header.

A client, a model, a backend or the name of a file must not end a line, move the cursor, change its colour or turn the
direction of writing. A character is visible if Python's `str.isprintable` says so: that excludes Unicode's categories
C and Z, except the space. Choose the function by the part of the text to keep: `display` keeps one bounded line,
`escape` the whole text, `replace_invisible` the length, `strip_controls` the lines, `collapse` the words. If a person
decides on a text, use `make_visible`. It is stricter: it also escapes characters that no font draws, even those in
ordinary texts, such as the variation selector after a heart.

Law: the result of `display` has no control character (C0, C1), no line or paragraph separator, no bidirectional
override and no other character that `str.isprintable` refuses. It is never longer than its limit.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from callboard.text.truncate import truncate, truncate_line

LONGEST: Final = 1000
"""Default limit of `display`, in characters."""
_CONTROLS: Final = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)])
_BLANKS: Final = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that Unicode has for letters, marks and symbols, and that no font draws: fillers, variation selectors."""


def display(text: str, longest: int = LONGEST) -> str:
    r"""Return the text on one line, with invisible characters escaped, such as `\n` or `\u202e`.

    Args:
        text: Untrusted text.
        longest: Maximum characters to return; a longer text is cut and ends in `...`.
    """
    # An escape is longer than its character, so this beginning is always enough.
    return truncate(escape(text[: longest + 1]), longest)


def escape(text: str, keep: str = "") -> str:
    """Return the text with each invisible character escaped, except the characters in `keep`."""
    if text.isprintable():
        return text
    return "".join([char if char.isprintable() or char in keep else _spell(char) for char in text])


def make_visible(text: str, keep: str = "\n\t") -> str:
    """Return a text that a person decides on: nothing in it is invisible or turns the direction of writing, but `keep`."""
    return _BLANKS.sub(lambda match: _spell(match[0]), escape(text, keep))


def replace_invisible(text: str, by: str = "?") -> str:
    """Replace each invisible character of the text by `by`."""
    return text if text.isprintable() else "".join([char if char.isprintable() else by for char in text])


def strip_controls(text: str) -> str:
    """Return the text without the control characters (C0, C1) that a terminal obeys, except line breaks and tabs."""
    return text.translate(_CONTROLS)


def collapse(text: str, longest: int = 120) -> str:
    """Return the text's words on one line: a run of whitespace and invisible characters becomes one space.

    A cut text ends with its full length in characters.
    """
    begin = replace_invisible(text[: 4 * longest + 1], " ")
    return truncate_line(begin, longest, f" ... ({len(text)} characters)")


def display_names(names: Collection[str], most: int = 5) -> str:
    """Return the first `most` names on one line, escaped, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join([escape(name) for name in list(names)[:most]]) + more


def _spell(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")

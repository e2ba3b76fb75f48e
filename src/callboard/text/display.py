"""Make a text that somebody else chose safe to show on one line.

Owns which characters may be seen as they are. A line of a log or of a terminal must not end, move the cursor, change
its colour or its direction because of what a client, a model or a backend wrote into it.

Law: what `display` returns has no control character (C0, C1), no line or paragraph separator, no bidirectional
override and no other invisible character, and it is never longer than was asked for.
"""

from __future__ import annotations

from typing import Final

LONGEST: Final = 1000
"""Characters that are shown, unless somebody asks for another number."""


def display(text: str, longest: int = LONGEST) -> str:
    r"""Return the text on one line, with what cannot be seen spelled out, such as `\n` or `\u202e`.

    Args:
        text: What somebody else wrote.
        longest: The most characters that are returned; of a longer text the beginning is, and `...`.
    """
    # An escape is longer than its character, so this beginning is always enough.
    begin = text[: longest + 1]
    shown = begin if begin.isprintable() else "".join([_seen(char) for char in begin])
    return shown if len(shown) <= longest else f"{shown[: max(0, longest - 3)]}..."[:longest]


def _seen(char: str) -> str:
    """The character, or its escape; Python's idea of what is printable leaves out all of Unicode's C and Z but " "."""
    return char if char.isprintable() else char.encode("unicode_escape").decode("ascii")

"""Decode one JSON string that arrives in pieces; only an escape that is cut in two is held back.

Law: what was returned never changes; at most one escape, or one pair of surrogates, is held.
"""

from __future__ import annotations

import json
import re

_HELD = re.compile(r"(?:\\u[dD][89abAB][0-9a-fA-F]{2})?\\(?:u[0-9a-fA-F]{0,3})?$|\\u[dD][89abAB][0-9a-fA-F]{2}$")
_HELD_MAX = 11
_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.", re.DOTALL)
_LONE = re.compile("[\ud800-\udfff]")
"""Half a pair of surrogates: no character, and nothing that UTF-8 can carry."""


class JsonString:
    """Feed it the raw text between the quotes; it gives the characters that the text spells."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    @property
    def held_length(self) -> int:
        """How many raw characters are held."""
        return len(self._held)

    def feed(self, raw: str) -> str:
        raw = self._held + raw
        self._held = ""
        if "\\" not in raw:
            return raw if raw.isascii() else _LONE.sub("\ufffd", raw)
        cut = self._cut(raw)
        raw, self._held = raw[:cut], raw[cut:]
        return _decode(raw)

    def finish(self) -> str:
        """Return the rest of a string that ends here: an unfinished escape, unchanged."""
        held, self._held = self._held, ""
        return _decode(held)

    @staticmethod
    def _cut(raw: str) -> int:
        """Return the position of the unfinished escape."""
        tail = max(0, len(raw) - _HELD_MAX)
        # Backslashes pair up from the left of their run.
        while tail and raw[tail - 1] == "\\":
            tail -= 1
        at = tail
        while (at := raw.find("\\", at)) >= 0:
            rest = raw[at:]
            if _HELD.match(rest):
                return at
            at += 2
        return len(raw)


def _decode(raw: str) -> str:
    if "\\" not in raw:
        return _LONE.sub("\ufffd", raw)
    try:
        spelled: str = json.loads(f'"{raw}"', strict=False)
    except ValueError:
        spelled = _ESCAPE.sub(_each, raw)
    return _LONE.sub("\ufffd", spelled)


def _each(escape: re.Match[str]) -> str:
    """Decode one escape; return an unknown escape unchanged."""
    try:
        return str(json.loads(f'"{escape[0]}"', strict=False))
    except ValueError:
        return escape[0]

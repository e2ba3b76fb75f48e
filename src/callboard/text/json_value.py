"""Find the end of one JSON object or list that arrives in pieces: the bracket that closes its first one.

Whether it is valid is for its reader to decide once it is whole.

Law: each character is looked at once.
"""

from __future__ import annotations

import re

_NEXT = re.compile(r'["{}\[\]<]')
STRING_STOP = re.compile(r'["\\]')
"""Matches characters with a meaning in a string."""
STRING_TEXT = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)
"""Matches text in a string, with whole escapes."""
_MARKED = "|/｜"
"""Characters that make the previous character the start of a marker."""
_PARTNER = {"}": "{", "]": "["}


class Brackets:
    """`step(text, at)` continues from `at`, and returns whether the value is closed and the position after it.

    An unmatched closing bracket also ends the value, as does a marker such as `<|end|>` or `</tool_call>` outside of
    strings. Neither is read, and the value is `broken`. A character that may begin a marker waits for the next one.
    """

    __slots__ = ("_escaped", "_in_string", "_open", "broken")

    def __init__(self) -> None:
        self.broken = False
        self._open: list[str] = []
        self._in_string = False
        self._escaped = False

    @property
    def is_in_string(self) -> bool:
        """True if the next text belongs to a string, as far as it matches `STRING_TEXT`."""
        return self._in_string and not self._escaped

    def step(self, text: str, at: int) -> tuple[bool, int]:
        size = len(text)
        while True:
            if self._in_string:
                if self._escaped and at < size:
                    self._escaped = False
                    at += 1
                while (match := STRING_STOP.search(text, at)) is not None:
                    at = match.end()
                    if match[0] == '"':
                        self._in_string = False
                        break
                    if at == size:
                        self._escaped = True
                    at += 1
                else:
                    return False, size
            match = _NEXT.search(text, at)
            if match is None:
                return False, size
            at = match.end()
            char = match[0]
            if char == '"':
                self._in_string = True
            elif char == "<":
                if at == size:
                    return False, at - 1
                if text[at] in _MARKED:
                    self.broken = True
                    return True, at - 1
            elif char in "{[":
                self._open.append(char)
            elif self._open.pop() != _PARTNER[char]:
                self.broken = True
                return True, at - 1
            elif not self._open:
                return True, at

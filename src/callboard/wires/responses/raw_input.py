"""The text of a custom tool's call, out of the JSON that carries it.

Owns the way from `{"input": "…"}` in pieces to the text itself, while it arrives. Knows nothing of events.
Law: what was given never changes; each character is looked at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from callboard.core import CUSTOM_KEY
from callboard.text.json_string import JsonString

_HEAD = re.compile(rf'\s*\{{\s*"{CUSTOM_KEY}"\s*:\s*"')
_STRING = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_LONGEST_HEAD = 256
"""Characters after which what has not begun as it should is no longer waited for."""


class RawInput:
    """Feed it pieces of the arguments; it gives the pieces of the text."""

    def __init__(self) -> None:
        self._string = JsonString()
        self._held = ""
        self._inside = False
        self._over = False
        self._given: list[str] = []

    def feed(self, json: str) -> str:
        if self._over:
            return ""
        json = self._held + json
        self._held = ""
        if not self._inside:
            head = _HEAD.match(json)
            if head is None:
                self._over = len(json) > _LONGEST_HEAD
                self._held = json
                return ""
            self._inside = True
            json = json[head.end() :]
        string = _STRING.match(json)
        end = string.end() if string else 0
        self._over = json[end : end + 1] == '"'
        self._held = "" if self._over else json[end:]
        text = self._string.feed(json[:end])
        if self._over:
            text += self._string.finish()
        self._given.append(text)
        return text

    def finish(self, arguments: Mapping[str, Any] | None, raw: str) -> tuple[str, str]:
        """The text that is still to be given, and the whole. Without `input`, the one text that there is."""
        given = "".join(self._given)
        whole = _text(arguments, raw)
        if whole.startswith(given):
            return whole[len(given) :], whole
        return "", given

    @property
    def given(self) -> str:
        return "".join(self._given)


def _text(arguments: Mapping[str, Any] | None, raw: str) -> str:
    if arguments is None:
        return raw
    if isinstance(text := arguments.get(CUSTOM_KEY), str):
        return text
    texts = [value for value in arguments.values() if isinstance(value, str)]
    return texts[0] if len(texts) == 1 else raw

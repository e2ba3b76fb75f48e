"""The text of a custom tool's call, out of the JSON that carries it.

Owns the way from `{"input": "…"}` in pieces to the text itself, while it arrives, and from what models write in its
place: `{"patch": "…"}`, a list, or the text as it is. Knows nothing of events.
Law: what was given never changes; each character is looked at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.core import CUSTOM_KEY
from callboard.text.json_string import JsonString

_HEAD = re.compile(rf'\s*\{{\s*"{CUSTOM_KEY}"\s*:\s*"')
_STRING = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_LONGEST_HEAD = 256
"""Characters after which what has not begun as it should is no longer waited for."""
_MEANT = (CUSTOM_KEY, "arguments", "parameters", "patch", "diff", "code", "script", "command", "text", "content")
"""Members that models put the text into, the likeliest first; any other counts where it is the only text."""
_DEEPEST = 4
"""Objects in objects that are looked into."""


class CustomInput:
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
        """The text that is still to be given, and the whole. See `custom_text`."""
        given = "".join(self._given)
        whole = custom_text(arguments, raw)
        if whole.startswith(given):
            return whole[len(given) :], whole
        return "", given

    @property
    def given(self) -> str:
        return "".join(self._given)


def custom_text(arguments: Mapping[str, Any] | None, raw: str) -> str:
    """The text that a custom tool is called with, however the model spelled it.

    Args:
        arguments: The call's arguments; None where they are no JSON object.
        raw: The arguments as the model wrote them: they are the text itself where nothing better is found.
    """
    text = _text_in(_value(raw) if arguments is None else arguments)
    return raw if text is None else text


def _value(raw: str) -> Any:
    if not raw.lstrip().startswith(('"', "[")):
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def _text_in(value: Any, depth: int = 0) -> str | None:
    """A string, the last one of a list such as `["apply_patch", "..."]`, or the member that is meant."""
    match value:
        case str():
            return value
        case [*_, str() as last] if all(isinstance(each, str) for each in value):
            return last
        case Mapping() if depth < _DEEPEST:
            found = {name: text for name, each in value.items() if (text := _text_in(each, depth + 1)) is not None}
            named = [found[name] for name in _MEANT if name in found]
            return named[0] if named else next(iter(found.values())) if len(found) == 1 else None
    return None

"""The text of a custom tool's call, out of the JSON that carries it.

A custom tool takes a text. Models that know only functions call it with `{"input": "…"}`, and many write something
else: `{"patch": "…"}`, a list, or the text itself. `CustomInput` streams the text out of the first form.
Law: text that was sent never changes; each character is looked at once.
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
"""Characters of JSON after which streaming stops if the input has not started."""
_LIKELY_NAMES = (CUSTOM_KEY, "arguments", "parameters", "patch", "diff", "code", "script", "command", "text", "content")
"""Members that models put the text into, the likeliest first; another counts where it is the only text."""
_DEEPEST = 4
"""Objects in objects that are looked into."""


class CustomInput:
    """Pieces of the arguments in, pieces of the text out."""

    def __init__(self) -> None:
        self._string = JsonString()
        self._rest = ""
        self._is_inside = False
        self._is_over = False
        self._sent: list[str] = []

    def feed(self, json: str) -> str:
        if self._is_over:
            return ""
        json = self._rest + json
        self._rest = ""
        if not self._is_inside:
            head = _HEAD.match(json)
            if head is None:
                self._is_over = len(json) > _LONGEST_HEAD
                self._rest = json
                return ""
            self._is_inside = True
            json = json[head.end() :]
        string = _STRING.match(json)
        end = string.end() if string else 0
        self._is_over = json[end : end + 1] == '"'
        self._rest = "" if self._is_over else json[end:]
        text = self._string.feed(json[:end])
        if self._is_over:
            text += self._string.finish()
        self._sent.append(text)
        return text

    def finish(self, arguments: Mapping[str, Any] | None, raw: str) -> tuple[str, str]:
        """The rest of the text, and the whole. See `custom_text`."""
        sent = "".join(self._sent)
        whole = custom_text(arguments, raw)
        if whole.startswith(sent):
            return whole[len(sent) :], whole
        return "", sent

    @property
    def sent_text(self) -> str:
        return "".join(self._sent)


def custom_text(arguments: Mapping[str, Any] | None, raw: str) -> str:
    """The text that a custom tool is called with, however the model spelled it.

    Args:
        arguments: The call's arguments; None if they are not a JSON object.
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
    """A string, the last one of a list such as `["apply_patch", "..."]`, or the likeliest member."""
    match value:
        case str():
            return value
        case [*_, str() as last] if all(isinstance(each, str) for each in value):
            return last
        case Mapping() if depth < _DEEPEST:
            texts = {name: text for name, each in value.items() if (text := _text_in(each, depth + 1)) is not None}
            named = [texts[name] for name in _LIKELY_NAMES if name in texts]
            return named[0] if named else next(iter(texts.values())) if len(texts) == 1 else None
    return None

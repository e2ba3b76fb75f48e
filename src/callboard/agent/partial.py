"""The value of an output while it is written.

`PartialObject` reads a JSON object from the text of a reply; text before and behind it is skipped. Its members are what
the model wrote: whether the value is of the output's type is checked when the reply is whole.
Law: each character is looked at once. Only the string that is being written is put together when the value is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from callboard.text.json_string import JsonString

_SPACE: Final = re.compile(r"\s*")
_QUOTE: Final = re.compile(r'["\\]')
_SCALAR: Final = re.compile(r"[^,}\]\s]*")
_BETWEEN: Final = frozenset({"opened", "member", "colon", "value", "after"})
"""The states in which white space says nothing."""
_CLOSES: Final = {dict: "}", list: "]"}


class PartialObject:
    """Feed it the pieces of a text; `value` is the first JSON object in it, as far as it came, None before it begins.

    The value is one and the same object while it grows.
    """

    def __init__(self) -> None:
        self._root: dict[str, Any] | None = None
        self._open: list[dict[str, Any] | list[Any]] = []
        self._key = ""
        self._state = "outside"
        self._parts: list[str] = []
        self._string = JsonString()
        self._escaped = False

    @property
    def value(self) -> dict[str, Any] | None:
        """What has come. A number, true, false and null are in it when they are whole, strings as far as they go."""
        if self._state == "string":
            self._put("".join(self._parts), begun=True)
        return self._root

    def feed(self, text: str) -> None:
        """Go on with the next piece."""
        at = 0
        while at < len(text):
            if self._state in _BETWEEN:
                at = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches everywhere
                if at == len(text):
                    return
            at = self._STEPS[self._state](self, text, at)

    def _outside(self, text: str, at: int) -> int:
        at = text.find("{", at)
        if at < 0:
            return len(text)
        self._root, self._state = {}, "opened"
        self._open = [self._root]
        return at + 1

    def _over(self, text: str, _: int) -> int:
        return len(text)

    def _member(self, text: str, at: int) -> int:
        """A key, or the end of an object that has no member yet."""
        if text[at] == '"':
            self._begin_string("key")
            return at + 1
        return self._after(text, at) if self._state == "opened" and text[at] == "}" else self._break(at)

    def _colon(self, text: str, at: int) -> int:
        if text[at] != ":":
            return self._break(at)
        self._state = "value"
        return at + 1

    def _value(self, text: str, at: int) -> int:
        char = text[at]
        if char == '"':
            self._put("")
            self._begin_string("string")
        elif char in "{[":
            inner: dict[str, Any] | list[Any] = {} if char == "{" else []
            self._put(inner)
            self._open.append(inner)
            self._state = "opened" if char == "{" else "value"
        elif char == "]" and self._open[-1] == []:
            return self._after(text, at)
        elif char in "-0123456789tfn":
            self._state = "scalar"
            return at
        else:
            return self._break(at)
        return at + 1

    def _after(self, text: str, at: int) -> int:
        """Behind a value: a comma, or the end of what it is in."""
        inside = self._open[-1]
        if text[at] == ",":
            self._state = "member" if isinstance(inside, dict) else "value"
        elif text[at] == _CLOSES[type(inside)]:
            self._open.pop()
            self._state = "after" if self._open else "over"
        else:
            return self._break(at)
        return at + 1

    def _scalar(self, text: str, at: int) -> int:
        end = _SCALAR.match(text, at).end()  # type: ignore[union-attr]  # it matches everywhere
        self._parts.append(text[at:end])
        if end < len(text):
            try:
                self._put(json.loads("".join(self._parts)))
            except ValueError:
                return self._break(end)
            self._parts, self._state = [], "after"
        return end

    def _in_string(self, text: str, at: int) -> int:
        begin = at
        while at < len(text):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            match = _QUOTE.search(text, at)
            if match is None:
                break
            at = match.end()
            self._escaped = match[0] == "\\"
            if not self._escaped:
                self._parts += [self._string.feed(text[begin : at - 1]), self._string.finish()]
                self._end_string("".join(self._parts))
                return at
        self._parts.append(self._string.feed(text[begin:]))
        return len(text)

    def _begin_string(self, state: str) -> None:
        self._parts, self._string, self._state = [], JsonString(), state

    def _end_string(self, text: str) -> None:
        if self._state == "key":
            self._key, self._state = text, "colon"
        else:
            self._put(text, begun=True)
            self._state = "after"
        self._parts = []

    def _put(self, value: Any, *, begun: bool = False) -> None:
        inside = self._open[-1]
        if isinstance(inside, dict):
            inside[self._key] = value
        elif begun:
            inside[-1] = value
        else:
            inside.append(value)

    def _break(self, at: int) -> int:
        """What looked like an object was none."""
        self._root, self._parts, self._state = None, [], "outside"
        return at

    _STEPS: ClassVar[Mapping[str, Callable[[PartialObject, str, int], int]]] = {
        "outside": _outside,
        "opened": _member,
        "member": _member,
        "key": _in_string,
        "colon": _colon,
        "value": _value,
        "string": _in_string,
        "scalar": _scalar,
        "after": _after,
        "over": _over,
    }

"""A summary of rounds that are no longer shown: calls, failures, changed files, and the beginnings of what was said."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from callboard.core import AssistantCanister, Canister, InvocationCanister, ResultCanister, UserCanister
from callboard.loop.truncation import size_of
from callboard.text.truncate import truncate, truncate_line
from callboard.tools import Invoker

MAX_SAID: Final = 200
"""Characters of a round's text."""
_MAX_VALUE: Final = 100
_MAX_CALLS: Final = 20
"""Calls of a round that are listed."""
MAX_LINE: Final = 1000
"""Characters of a round's line."""

_TOLD: Final = frozenset(
    {"action", "command", "directory", "file", "glob", "name", "path", "pattern", "query", "symbol", "url"}
)
"""Arguments that say what a call was about, besides those that its tool calls its subjects."""


class RoundSummary:
    """Takes rounds from the oldest on; `text` tells them in short."""

    def __init__(self) -> None:
        self.rounds = 0
        self._lines: deque[str] = deque()
        self._size = 0
        self._left_out = 0
        self._changed: dict[str, None] = {}
        self._last_user_message: UserCanister | None = None

    def take(self, canisters: Sequence[Canister], invokers: Mapping[str, Invoker]) -> int:
        """One round. How large it was."""
        self.rounds += 1
        failed = {each.invocation_id for each in canisters if isinstance(each, ResultCanister) and each.error}
        text = "".join([each.text for each in canisters if isinstance(each, AssistantCanister)])
        calls: list[str] = []
        size = 0
        for each in canisters:
            size += size_of(each)
            if isinstance(each, InvocationCanister):
                calls.append(_call(each, invokers.get(each.name), failed=each.identifier in failed))
                if each.identifier not in failed:
                    self._change(each, invokers.get(each.name))
        self._line(f"round {self.rounds}: {_describe_round(text, calls)}")
        for each in canisters:
            if isinstance(each, UserCanister):
                self._last_user_message = each
                self._line(f'the user then said: "{truncate_line(each.text, MAX_SAID)}"')
        return size

    def text(self, most: int, pinned: str, *, said_since: bool) -> str:
        """What was taken, in about `most` characters; whole are `pinned`, and what the user said last if nothing was since."""
        while self._size > most and self._lines:
            self._size -= len(self._lines.popleft())
            self._left_out += 1
        parts = [f"Rounds 1 to {self.rounds} of the work so far, in short; they are not shown any more."]
        if self._left_out:
            parts.append(f"({self._left_out} lines from the beginning are left out.)")
        parts += [f"- {line}" for line in self._lines]
        if self._changed:
            parts.append(f"Files that were changed: {_join_names(self._changed, most)}")
        if pinned:
            parts.append(f"\n{pinned}")
        if self._last_user_message is not None and not said_since:
            parts.append(f"\nIn these rounds the user said last:\n{self._last_user_message.text}")
        return "\n".join(parts)

    def _line(self, line: str) -> None:
        line = truncate(line, MAX_LINE)
        self._lines.append(line)
        self._size += len(line)

    def _change(self, call: InvocationCanister, invoker: Invoker | None) -> None:
        if invoker is None or call.arguments is None or invoker.is_idempotent(call.arguments):
            return
        arguments = invoker.coerce(call.arguments)
        for name, subject in invoker.subjects.items():
            value = arguments.get(name)
            if subject == "path" and value is not None:
                files = value if isinstance(value, (list, tuple)) else [value]
                self._changed.update(dict.fromkeys([truncate_line(str(each), _MAX_VALUE) for each in files]))


def _join_names(names: Collection[str], most: int) -> str:
    names_text = ""
    for number, name in enumerate(names):
        if len(names_text) + len(name) > most:
            return f"{names_text} and {len(names) - number} more".strip()
        names_text = f"{names_text}, {name}" if names_text else name
    return names_text


def _describe_round(text: str, calls: Sequence[str]) -> str:
    more = [f"{len(calls) - _MAX_CALLS} more calls"] if len(calls) > _MAX_CALLS else []
    spoken = [f'"{truncate_line(text, MAX_SAID)}"'] if text.strip() else []
    return "; ".join([*spoken, *calls[:_MAX_CALLS], *more])


def _call(call: InvocationCanister, invoker: Invoker | None, *, failed: bool) -> str:
    about = _TOLD | (invoker.subjects.keys() if invoker else frozenset())
    values = call.arguments or {}
    arguments = [f"{name} {truncate_line(_text(values[name]), _MAX_VALUE)}" for name in values if name in about]
    return f"{call.name} {', '.join(arguments)}".strip() + (" (failed)" if failed else "")


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)

"""Shorten what a model sees: estimate the size of canisters, cut them, and summarize rounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from callboard import core
from callboard.text.truncate import truncate, truncate_line, truncate_middle
from callboard.tools import Invoker

PICTURE: Final = 4000
"""Characters that a picture counts as."""
_FRAME: Final = 16
"""Characters that each canister adds."""

MAX_SAID: Final = 200
"""Maximum characters of a round's text."""
_MAX_VALUE: Final = 100
_MAX_CALLS: Final = 20
"""Maximum calls of a round in the summary."""
MAX_LINE: Final = 1000
"""Maximum characters of a round's line."""

_TOLD: Final = frozenset(
    {"action", "command", "directory", "file", "glob", "name", "path", "pattern", "query", "symbol", "url"}
)
"""Arguments that say what a call was about, besides the subjects of its tool."""

_encode = msgspec.json.Encoder(enc_hook=str).encode


def size_of(canister: core.Canister) -> int:
    """Return the estimated size in characters."""
    if isinstance(canister, core.InvocationCanister):
        return len(canister.name) + len(canister.raw or _encode(canister.arguments)) + _FRAME
    size = _FRAME
    for part in canister.content:
        size += _size_of_part(part)
    return size


def _size_of_part(part: core.Content) -> int:
    if isinstance(part, core.PictureContent):
        return PICTURE
    return len(part.data) if isinstance(part, core.FileContent) else len(part.text)


def share_room(sizes: Iterable[int], room: int) -> int:
    """Return the maximum size of each item so that all of them fit into the room."""
    ordered = sorted(sizes)
    for at, size in enumerate(ordered):
        share = room // (len(ordered) - at)
        if size > share:
            return share
        room -= size
    return ordered[-1] if ordered else 0


def cut_to(canister: core.Canister, most: int) -> core.Canister:
    """Return the canister with about that many characters: the beginning and the end of each text."""
    if size_of(canister) <= most:
        return canister
    if isinstance(canister, core.InvocationCanister):
        return _cut_call(canister, most)
    if isinstance(canister, core.ResultCanister):
        others = sum(not isinstance(part, core.TextualContent) for part in canister.content)
        note = f"\n[{others} pictures or files are not shown]" if others else ""
        text = truncate_middle(canister.text, most - _FRAME - len(note))
        return replace(canister, content=(core.TextualContent(f"{text}{note}"),))
    if isinstance(canister, core.AssistantCanister):
        other_parts = tuple([part for part in canister.content if not isinstance(part, core.TextualContent)])
        text = truncate_middle(canister.text, most - _FRAME - sum(map(_size_of_part, other_parts)))
        return replace(canister, content=(*other_parts, core.TextualContent(text)) if text else other_parts)
    return canister


def _cut_call(call: core.InvocationCanister, most: int) -> core.InvocationCanister:
    original = call.arguments
    if original is None:
        return replace(call, raw=truncate_middle(call.raw, most - _FRAME - len(call.name)))
    sizes = {name: len(value) for name, value in original.items() if isinstance(value, str)}
    fixed = size_of(call) - sum(sizes.values())
    share = share_room(sizes.values(), max(0, most - fixed))
    shorter = call
    # Text may be up to six times longer when it is escaped in JSON.
    for each in (share, share // 2, share // 6):
        arguments = {
            name: truncate_middle(value, each) if isinstance(value, str) else value for name, value in original.items()
        }
        shorter = replace(call, arguments=arguments, raw=_encode(arguments).decode())
        if size_of(shorter) <= most:
            break
    return shorter


class RoundSummary:
    """A summary of rounds. Add the rounds from the oldest; `text` returns the summary."""

    def __init__(self) -> None:
        self.rounds = 0
        self._lines: deque[str] = deque()
        self._size = 0
        self._left_out = 0
        self._changed: dict[str, None] = {}
        self._last_user_message: core.UserCanister | None = None

    def take(self, canisters: Sequence[core.Canister], invokers: Mapping[str, Invoker]) -> int:
        """Add one round, and return its size."""
        self.rounds += 1
        failed = {each.invocation_id for each in canisters if isinstance(each, core.ResultCanister) and each.error}
        text = "".join([each.text for each in canisters if isinstance(each, core.AssistantCanister)])
        calls: list[str] = []
        size = 0
        for each in canisters:
            size += size_of(each)
            if isinstance(each, core.InvocationCanister):
                calls.append(_call(each, invokers.get(each.name), failed=each.identifier in failed))
                if each.identifier not in failed:
                    self._change(each, invokers.get(each.name))
        more = [f"{len(calls) - _MAX_CALLS} more calls"] if len(calls) > _MAX_CALLS else []
        quote = [f'"{truncate_line(text, MAX_SAID)}"'] if text.strip() else []
        self._line(f"round {self.rounds}: {'; '.join([*quote, *calls[:_MAX_CALLS], *more])}")
        for each in canisters:
            if isinstance(each, core.UserCanister):
                self._last_user_message = each
                self._line(f'the user then said: "{truncate_line(each.text, MAX_SAID)}"')
        return size

    def text(self, most: int, pinned: str, *, said_since: bool) -> str:
        """Return about `most` characters, plus `pinned` and, unless `said_since`, the user's last message."""
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

    def _change(self, call: core.InvocationCanister, invoker: Invoker | None) -> None:
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


def _call(call: core.InvocationCanister, invoker: Invoker | None, *, failed: bool) -> str:
    about = _TOLD | (invoker.subjects.keys() if invoker else frozenset())
    values = call.arguments or {}
    texts = {
        name: ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        for name, value in values.items()
        if name in about
    }
    arguments = [f"{name} {truncate_line(text, _MAX_VALUE)}" for name, text in texts.items()]
    return f"{call.name} {', '.join(arguments)}".strip() + (" (failed)" if failed else "")

"""Tool names that a wire accepts.

Owns the way from declared names to safe ones, and back from those that a reply calls. Knows no wire.
Law: a tool's safe name follows from the declared tools alone, so that it stays the same in a conversation.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import ClassVar

from callboard.core import Canister, Event, InvocationCanister, InvocationStarted, NamedTool, Note, Request

LONGEST = 64
_SAFE = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")
_LETTERED = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_NO_LETTERS = frozenset("-0123456789")
_LEAKED = re.compile(r"functions\.(.+?)(?::\d+)?")
"""A name in the namespace that the templates of gpt-oss and Kimi put functions in, Kimi's with the call's number."""


class Naming:
    """The names of one request: `on_wire` of each declared name, `reverse` where the two differ.

    `called` are the names that were called, by default those of the request's canisters.
    """

    safe: ClassVar = _SAFE

    def __init__(self, request: Request, called: Iterable[str] | None = None) -> None:
        self._wire: dict[str, str] = {}
        self._taken: set[str] = set()
        tools = [tool.name for tool in request.tools]
        self.add(name for name in tools if self.safe.fullmatch(name))
        self.add(tools)
        if isinstance(request.tool_choice, NamedTool):
            self.add([request.tool_choice.name])
        self.add(called_names(request.canisters) if called is None else called)

    def on_wire(self, name: str) -> str:
        return self._wire[name]

    @property
    def reverse(self) -> dict[str, str]:
        return {wire: name for name, wire in self._wire.items() if wire != name}

    def add(self, names: Iterable[str]) -> None:
        """Names that are called after all others."""
        for name in names:
            if name not in self._wire:
                self._wire[name] = wire = self._free(name)
                self._taken.add(wire)

    def _spelled(self, name: str) -> str:
        return _UNSAFE.sub("_", name)

    def _free(self, name: str) -> str:
        safe = self._spelled(name)
        wire, salt = safe, 0
        while wire in self._taken or not 0 < len(wire) <= LONGEST:
            digest = hashlib.sha256(f"{name}\0{salt}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
            wire = f"{safe[: LONGEST - 9]}_{digest}"
            salt += 1
        return wire


class LetteredNaming(Naming):
    """Names that begin with a letter or `_`, as Gemini's do."""

    safe: ClassVar = _LETTERED

    def _spelled(self, name: str) -> str:
        spelled = super()._spelled(name)
        return f"_{spelled}" if spelled[:1] in _NO_LETTERS else spelled


def called_names(canisters: Iterable[Canister]) -> Iterable[str]:
    return (canister.name for canister in canisters if isinstance(canister, InvocationCanister))


def undescribed(namespaces: Iterable[str]) -> list[str]:
    """What is dropped with namespaces, whose tools go by their whole names."""
    return [f"description of the namespace {name}" for name in namespaces]


class Callees:
    """The tools that a reply calls, by their names in it; `names` and `declared` as of `chat.StreamDecoder`.

    A name that is not declared and leaks a model's template (`functions.f:0`) is that of the declared `f`.
    """

    def __init__(self, names: Mapping[str, str], declared: frozenset[str] | None) -> None:
        self._names = names
        self._declared = declared

    def named(self, wire: str) -> str:
        """The declared name; the name itself where there is none."""
        name = self._names.get(wire, wire)
        if not self._knows(name) and (leaked := _LEAKED.fullmatch(wire)):
            inner = self._names.get(leaked[1], leaked[1])
            return inner if self._knows(inner) else name
        return name

    def begin(self, index: int, identifier: str, wire: str) -> list[Event]:
        """A call's beginning, behind a note where its name had to be repaired."""
        name = self.named(wire)
        begun = InvocationStarted(index, identifier, name, self._knows(name))
        if name == self._names.get(wire, wire):
            return [begun]
        return [Note("repaired", f"{name}, called as {wire}"), begun]

    def _knows(self, name: str) -> bool:
        return self._declared is None or name in self._declared

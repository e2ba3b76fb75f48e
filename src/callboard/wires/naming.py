"""Tool names that a wire accepts.

Owns the way from declared names to safe ones and its reverse. Knows no wire.
Law: a tool's safe name follows from the declared tools alone, so that it stays the same in a conversation.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from callboard.core import Canister, InvocationCanister, NamedTool, Request

LONGEST = 64
_SAFE = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")


class Naming:
    """The names of one request: `on_wire` of each declared name, `reverse` where the two differ.

    `called` are the names that were called, by default those of the request's canisters.
    """

    def __init__(self, request: Request, called: Iterable[str] | None = None) -> None:
        self._wire: dict[str, str] = {}
        self._taken: set[str] = set()
        tools = [tool.name for tool in request.tools]
        self.add(name for name in tools if _SAFE.fullmatch(name))
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

    def _free(self, name: str) -> str:
        safe = _UNSAFE.sub("_", name)
        wire, salt = safe, 0
        while wire in self._taken or not 0 < len(wire) <= LONGEST:
            digest = hashlib.sha256(f"{name}\0{salt}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
            wire = f"{safe[: LONGEST - 9]}_{digest}"
            salt += 1
        return wire


def called_names(canisters: Iterable[Canister]) -> Iterable[str]:
    return (canister.name for canister in canisters if isinstance(canister, InvocationCanister))

"""What the log tells of tool calls at the level DEBUG.

Owns seed 002's lines. Knows nothing of how calls are read: it looks on while request, payloads and events pass by.
Laws: it is made only where somebody wants its lines; of arguments it tells the size alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from callboard.core import Event, InvocationCanister, InvocationEnded, InvocationStarted, Request, ResultCanister
from callboard.text.display import display

log = logging.getLogger("callboard.gateway")

_LONGEST = 100


def tool_call_logger() -> ToolCallLogger | None:
    """None where nobody reads it."""
    return ToolCallLogger() if log.isEnabledFor(logging.DEBUG) else None


class ToolCallLogger:
    """Looks on at one reply."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._held: dict[Any, int] = {}
        """Bytes of arguments that came before the name, by the index on the wire."""

    def asked(self, request: Request) -> None:
        for canister in request.canisters:
            match canister:
                case InvocationCanister(name=name):
                    log.debug(
                        "INPUT: Found function_call (%s) - will attach to assistant message", display(name, _LONGEST)
                    )
                case ResultCanister(invocation_id=identifier):
                    log.debug("INPUT: Added function_call_output (call_id: %s)", display(identifier, _LONGEST))
                case _:
                    pass

    def payload(self, data: str) -> None:
        """A frame's data; only a Chat Completions backend sends arguments before their name."""
        try:
            chunk = msgspec.json.decode(data, type=_Chunk)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            return
        for call in [call for choice in chunk.choices for call in choice.delta.tool_calls or ()]:
            name, size = call.function.name or "", len((call.function.arguments or "").encode())
            known = self._names.get(call.index, "")
            if name and not known:
                self._names[call.index] = name
                if held := self._held.pop(call.index, 0):
                    log.debug("Replaying %d buffered argument bytes for %s", held, display(name, _LONGEST))
            elif size and not known:
                self._held[call.index] = self._held.get(call.index, 0) + size
                log.debug("Buffering %d argument bytes for tool index %s (name not yet received)", size, call.index)

    def events(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case InvocationStarted(index=index, name=name):
                    log.debug("Tool call started: %s (index %d)", display(name, _LONGEST), index)
                case InvocationEnded(name=name, raw=raw):
                    log.debug("Tool call complete: %s - %d bytes of args", display(name, _LONGEST), len(raw.encode()))
                case _:
                    pass


class _Function(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct, frozen=True):
    index: int | str | None = None
    function: _Function = _Function()


class _Delta(msgspec.Struct, frozen=True):
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta = _Delta()


class _Chunk(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []

"""The gateway's log: the lines about tool calls.

Law: no argument of a call is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from callboard.core import (
    Event,
    InvocationCanister,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Request,
    ResultCanister,
)
from callboard.text.display import display

log = logging.getLogger("callboard.gateway")

_MAX_NAME: Final = 100


def log_malformed_arguments(backend_name: str, call: InvocationEnded | InvocationIncomplete) -> None:
    """Log that arguments are not a JSON object: where the fault is, and not what stands there."""
    try:
        msgspec.json.decode(call.raw)
        fault = "it is another JSON value"
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        fault = str(error) if isinstance(error, msgspec.DecodeError) else "it cannot be read"
    what = "%s: the arguments of a call of %s are not a JSON object, and are passed on as they are: %s"
    log.warning(what, backend_name, display(call.name, _MAX_NAME), fault)


def describe_cost(cost: float | None) -> str:
    return "cost unknown" if cost is None else f"${cost:.6f}"


def tool_call_logger(request: Request) -> ToolCallLogger | None:
    """Log the calls in a request; what logs those of its reply. None unless the level is DEBUG."""
    if not log.isEnabledFor(logging.DEBUG):
        return None
    for canister in request.canisters:
        if isinstance(canister, InvocationCanister):
            name = display(canister.name, _MAX_NAME)
            log.debug("INPUT: Found function_call (%s) - will attach to assistant message", name)
        elif isinstance(canister, ResultCanister):
            identifier = display(canister.invocation_id, _MAX_NAME)
            log.debug("INPUT: Added function_call_output (call_id: %s)", identifier)
    return ToolCallLogger()


class ToolCallLogger:
    """Logs the tool calls of one reply at the level DEBUG; of arguments only their size."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._held: dict[Any, int] = {}
        """Bytes of arguments that came before the name, by the index on the wire."""

    def log_frame(self, data: str) -> None:
        """Log arguments that came before their name, which only Chat Completions backends send."""
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
                    log.debug("Replaying %d buffered argument bytes for %s", held, display(name, _MAX_NAME))
            elif size and not known:
                self._held[call.index] = self._held.get(call.index, 0) + size
                log.debug("Buffering %d argument bytes for tool index %s (name not yet received)", size, call.index)

    def log_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, InvocationStarted):
                log.debug("Tool call started: %s (index %d)", display(event.name, _MAX_NAME), event.index)
            elif isinstance(event, InvocationEnded):
                size = len(event.raw.encode())
                log.debug("Tool call complete: %s - %d bytes of args", display(event.name, _MAX_NAME), size)


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

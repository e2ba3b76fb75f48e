"""Convert calls back to their declared tools, if the model was shown another schema.

Remove nulls that a strict schema requires for optional arguments, and restore names that a provider refuses.
Law: a call of another tool, or with nothing to restore, passes unchanged; restored arguments come in one piece, when
they are whole. For a prompt only tools whose names the dialect cannot spell, such as names with spaces, get other names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from callboard import core
from callboard.dialects import Dialect, NotSpellable, render_calls
from callboard.wires.common.encoded_request import EncodedRequest
from callboard.wires.common.tool_declarations import ToolNames


class ArgumentRestorer:
    """A Stage: events in, events out. `lowered` is what the request became."""

    def __init__(self, lowered: EncodedRequest) -> None:
        self._lowered = lowered
        self._rewritten = lowered.rewritten
        self._held: dict[int, list[core.ArgumentsPiece]] = {}

    def feed(self, event: core.Event, /) -> list[core.Event]:
        match event:
            case core.InvocationStarted(index=index, name=name) if name in self._rewritten:
                self._held[index] = []
            case core.ArgumentsPiece(index=index) if index in self._held:
                self._held[index].append(event)
                return []
            case core.InvocationIncomplete(index=index) if index in self._held:
                return [*_piece(self._held.pop(index)), event]
            case core.InvocationEnded(index=index) if index in self._held:
                return self._end_call(event, self._held.pop(index))
            case _:
                pass
        return [event]

    def finish(self, why: core.Why = "stop", /) -> list[core.Event]:
        return []

    def _end_call(self, call: core.InvocationEnded, held: list[core.ArgumentsPiece]) -> list[core.Event]:
        if call.arguments is None:
            return [*_piece(held), call]
        arguments = dict(self._lowered.restore(call.name, call.arguments))
        if arguments == call.arguments:
            return [*_piece(held), call]
        raw = msgspec.json.encode(arguments).decode()
        return [*_piece(held, raw), msgspec.structs.replace(call, arguments=arguments, raw=raw)]


def _piece(held: list[core.ArgumentsPiece], json: str = "") -> list[core.Event]:
    """One piece of other JSON, or of all pieces joined; none where there was none."""
    if not held:
        return []
    first, last = held[0].offsets, held[-1].offsets
    offsets: core.Offsets | None = None if first is None or last is None else (first[0], last[1])
    return [core.ArgumentsPiece(held[0].index, json or "".join([piece.json for piece in held]), offsets)]


_PLAIN: Final = re.compile(r"[\w.:/-]+")
"""Names that every dialect can spell."""


def spell_names(request: core.Request, dialect: Dialect) -> tuple[core.Request, Mapping[str, str]]:
    """Return the request with names that the prompt can spell, and a map from them to the declared names."""
    odd = [
        tool.name for tool in request.tools if not _PLAIN.fullmatch(tool.name) and not _can_spell(dialect, tool.name)
    ]
    if not odd:
        return request, {}
    safe = ToolNames(request)
    names = {name: safe.on_wire(name) for name in odd}
    choice = request.tool_choice
    if isinstance(choice, core.NamedTool):
        choice = core.NamedTool(names.get(choice.name, choice.name))
    spelled = replace(
        request,
        tools=tuple([replace(tool, name=names.get(tool.name, tool.name)) for tool in request.tools]),
        tool_choice=choice,
        canisters=tuple(
            [
                replace(each, name=names[each.name])
                if isinstance(each, core.InvocationCanister) and each.name in names
                else each
                for each in request.canisters
            ]
        ),
    )
    return spelled, {sent: name for name, sent in names.items()}


def _can_spell(dialect: Dialect, name: str) -> bool:
    try:
        render_calls(dialect, [core.InvocationCanister("", name, {})])
    except NotSpellable:
        return False
    return True

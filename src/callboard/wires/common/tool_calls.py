"""The calls of a reply, on every wire: declared names, identifiers, arguments, and whether a call is complete."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

from callboard import core
from callboard.text.string_builder import StringBuilder

if TYPE_CHECKING:
    from callboard.wires.common.reply_stream import DecodeContext

Completeness: TypeAlias = Literal["all", "objects", "none"]
"""Which open calls are complete when a reply ends: all that were not cut off, those with a JSON object, or none."""
_CUT_REASONS: Mapping[str, str] = {"stop": "length", "invocations": "length"}
"""Why a call of a reply that claims to be whole is incomplete: backends also say `stop` where a limit cut the reply."""
_LEAKED = re.compile(r"functions\.(.+?)(?::\d+)?")
"""A name in the namespace that the templates of gpt-oss and Kimi put functions in; Kimi's ends in the call's number."""
_encode = msgspec.json.Encoder().encode
_objects = msgspec.json.Decoder(dict[str, Any])
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+("?)|[{}\[\]]', re.DOTALL)


class CalledTools:
    """The tools that a reply calls.

    A name that is not declared and leaks a model's template (`functions.f:0`) means the declared `f`.
    """

    def __init__(self, context: DecodeContext) -> None:
        self._names = context.names
        self._declared = context.declared
        self._identify = context.identify
        self._identifiers: set[str] = set()

    def declared_name(self, wire_name: str) -> str:
        """The declared name of the tool; `wire_name` itself where no tool is declared for it."""
        name = self._names.get(wire_name, wire_name)
        if not self._is_known(name) and (leaked := _LEAKED.fullmatch(wire_name)):
            inner = self._names.get(leaked[1], leaked[1])
            return inner if self._is_known(inner) else name
        return name

    def identifier(self, index: int, identifier: str, wire_name: str) -> str:
        """The identifier of a new call: the backend's own, or another where that is missing or was used before."""
        if not identifier or identifier in self._identifiers:
            identifier = self._identify(index, self.declared_name(wire_name))
        while identifier in self._identifiers:  # the backend has used this identifier
            identifier += "_"
        self._identifiers.add(identifier)
        return identifier

    def start(self, index: int, identifier: str, wire_name: str) -> list[core.Event]:
        """The start of a call, after a note where its name had to be repaired."""
        name = self.declared_name(wire_name)
        started = core.InvocationStarted(index, identifier, name, self._is_known(name))
        if name == self._names.get(wire_name, wire_name):
            return [started]
        return [core.Note("repaired", f"{name}, called as {wire_name}"), started]

    def close(
        self, index: int, identifier: str, wire_name: str, raw: str, *, completeness: Completeness, why: str
    ) -> core.InvocationEnded | core.InvocationIncomplete:
        """The end of a call when the reply ends; `why` is for one that is incomplete."""
        if not wire_name:
            return core.InvocationIncomplete(index, identifier, "", raw, "no name")
        name, arguments = self.declared_name(wire_name), parse_arguments(raw)
        if is_complete(raw, arguments, completeness):
            return core.InvocationEnded(index, identifier, name, arguments, raw)
        return core.InvocationIncomplete(index, identifier, name, raw, _CUT_REASONS.get(why, why))

    def _is_known(self, name: str) -> bool:
        return self._declared is None or name in self._declared


class OpenCall:
    """A call of a reply that has not ended; `id` is the backend's identifier, `identifier` ours.

    The index is None until the call is announced, which takes its name.
    """

    __slots__ = ("closed", "id", "identifier", "index", "name", "pieces")

    def __init__(self, wire_id: str = "", name: str = "") -> None:
        self.id = wire_id
        self.identifier = ""
        self.name = name
        self.index: int | None = None
        self.pieces = StringBuilder()
        self.closed = False

    def spell(self, text: str, *, is_first: bool) -> str:
        """A piece as a part of the arguments' JSON."""
        return text

    @property
    def raw(self) -> str:
        """The arguments so far, joined."""
        text = self.pieces.build()
        return self.spell(text, is_first=True) if text else ""


CallT = TypeVar("CallT", bound=OpenCall)


class CallTable(Generic[CallT]):
    """The calls of one reply. A wire finds the call that a delta belongs to.

    Laws: a call is announced before its arguments and closed once; constant work a piece, arguments are joined once.
    """

    def __init__(self, context: DecodeContext) -> None:
        self._tools = CalledTools(context)
        self._open: dict[int, CallT] = {}
        self._next_index = 0
        self.count = 0
        """How many calls began."""

    def add(self, call: CallT) -> CallT:
        self._open[id(call)] = call
        self.count += 1
        return call

    def announce(self, call: CallT) -> list[core.Event]:
        """The start of a call whose name is known, with the pieces that waited for it."""
        index = self._number(call)
        events = self._tools.start(index, call.identifier, call.name)
        if call.pieces:
            events.append(core.ArgumentsPiece(index, call.raw))
        return events

    def grow(self, call: CallT, text: str) -> list[core.Event]:
        """The next piece of a call's arguments."""
        is_first = not call.pieces
        call.pieces.append(text)
        return [] if call.index is None else [core.ArgumentsPiece(call.index, call.spell(text, is_first=is_first))]

    def remove(self, call: CallT) -> None:
        """The call has ended."""
        call.closed = True
        call.pieces = StringBuilder()
        self._open.pop(id(call), None)

    def close(self, completeness: Completeness, why: str) -> list[core.Event]:
        """The ends of all open calls in the order of their indices, nameless ones last; `why` is for the incomplete."""
        calls = [*self._open.values()]
        events: list[core.Event] = [
            event for call in calls if call.name and call.index is None for event in self.announce(call)
        ]
        for call in sorted(calls, key=lambda call: (call.index is None, call.index or 0)):
            index = self._number(call) if call.index is None else call.index
            events += self.close_call(call, index, completeness, why)
            self.remove(call)
        return events

    def close_call(self, call: CallT, index: int, completeness: Completeness, why: str) -> list[core.Event]:
        """The end of a call when the reply ends."""
        return [self._tools.close(index, call.identifier, call.name, call.raw, completeness=completeness, why=why)]

    def _number(self, call: CallT) -> int:
        call.index = index = self._next_index
        self._next_index += 1
        call.identifier = self._tools.identifier(index, call.id, call.name)
        return index


def is_complete(raw: str, arguments: object, completeness: Completeness) -> bool:
    """Whether the end of a reply completes a call; `arguments` is what was parsed of `raw`, None for no object."""
    if completeness == "all":
        return arguments is not None or not is_cut_off(raw)
    return completeness == "objects" and arguments is not None and bool(raw) and not raw.isspace()


def parse_arguments(raw: str) -> dict[str, Any] | None:
    """Return the arguments: {} for an empty text, None if the text is not a JSON object."""
    if not raw or raw.isspace():
        return {}
    try:
        return _objects.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def is_cut_off(raw: str) -> bool:
    """Whether arguments are the beginning of an object that was cut, and not something that a model wrote wrong."""
    if not raw.lstrip().startswith("{"):
        return False
    depth = 0
    for token in _TOKEN.finditer(raw):
        opener = token[0][0]
        if opener == '"':
            if not token[1]:
                return depth > 0
        elif opener in "{[":
            depth += 1
        elif (depth := depth - 1) <= 0:
            return False
    return depth > 0


def arguments_text(arguments: Any, *, missing: str = "") -> str:
    """The arguments as JSON text: some backends send the text, others the value itself."""
    if isinstance(arguments, str):
        return arguments
    if arguments is None:
        return missing
    try:
        return _encode(arguments).decode()
    except (RecursionError, UnicodeError):
        return "null"  # nested too deep to encode: not usable as an object


def ended_arguments(call: core.InvocationEnded) -> str:
    """The arguments of a call that came without pieces. Never empty: clients parse them."""
    return call.raw or "{}" if call.arguments is None else _encode(call.arguments).decode()


def past_arguments(call: core.InvocationCanister) -> str:
    """The arguments of a past call as the JSON of an object. See `arguments_object`."""
    return _encode(arguments_object(None, call.raw) if call.arguments is None else call.arguments).decode()


def arguments_object(arguments: Mapping[str, Any] | None, raw: str) -> dict[str, Any]:
    """The arguments of a past call as an object, whatever the model wrote.

    Servers parse the arguments of past calls for their chat templates and answer 400 to anything else, which
    would end the conversation. So the text that the model wrote is wrapped in an object, where the model can read it.
    """
    if arguments is not None:
        return dict(arguments)
    return {"raw": raw} if raw and not raw.isspace() else {}

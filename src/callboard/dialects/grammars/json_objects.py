"""Calls as JSON objects, one by one or in a list.

Theory of operation. `_Object` reads one object with `text.json_object.JsonObject`, a tokenizer that reports keys and
the beginnings and ends of values without decoding them. Each key has a `Role` (name, arguments, identifier, wrapper,
list of calls, answer ...). The role decides what happens to its value (`_value`):

- *captured* until it is whole (`_capture`): a name, an identifier, arguments before the name;
- *streamed* into the call as it arrives (`_stream`): arguments after the name;
- *held* (`_hold`): arguments in an object that is judged strictly, until its last member is known;
- *emitted* as text or reasoning (`_say`), *entered* (a wrapper), or read as a list of calls (`_calls`);
- skipped, if the key has no role.

If no marker says that an object is a call, the object is judged *strictly*: it has to name a declared tool and have
arguments that are not a schema. If it has other members (`reason`, `thought`, but also the members of a record), its
arguments have to fit the tool's schema. The last member may decide, so such an object is held until it closes. If it is
not a call, it is read to its end, so that nothing inside it counts as a call.

Law: nothing is emitted before the object is decided. After that no emitted event changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Any, NoReturn

from callboard.core import InvocationCanister, ReasoningPiece, TextPiece
from callboard.dialects.call_builder import OpenCall, parse_object, quote_json
from callboard.dialects.grammar import Grammar, arguments_json
from callboard.dialects.grammars.typed_values import keys_of
from callboard.dialects.parse_state import ParseState
from callboard.dialects.text_buffer import EndOfText, NotACall, Reading
from callboard.text.json_object import JsonObject, Token
from callboard.text.json_string import JsonString
from callboard.text.json_value import STRING_TEXT, Brackets
from callboard.text.marker_pattern import MarkerPattern, Match, compile_marker


class Role(Enum):
    """The role of a member in a call object."""

    NAME = "name"
    ARGUMENTS = "arguments"
    IDENTIFIER = "identifier"
    TEXT = "text"
    REASONING = "reasoning"
    WRAPPER = "wrapper"
    """An object whose members count as the call's own. A string here is the name."""
    CALLS = "calls"
    """A list of call objects."""
    THOUGHTS = "thoughts"
    """Reasoning, if calls follow."""
    ONLY = "only"
    """The key is the name, the value the arguments."""
    KIND = "kind"
    """The kind of the object: one of CALL_KINDS."""


CALL_KEYS: Mapping[str, Role] = MappingProxyType(
    {
        "name": Role.NAME,
        "tool": Role.NAME,
        "tool_name": Role.NAME,
        "function": Role.WRAPPER,
        "arguments": Role.ARGUMENTS,
        "args": Role.ARGUMENTS,
        "parameters": Role.ARGUMENTS,
        "input": Role.ARGUMENTS,
        "id": Role.IDENTIFIER,
        "tool_call_id": Role.IDENTIFIER,
        "thoughts": Role.THOUGHTS,
        "tool_calls": Role.CALLS,
        "type": Role.KIND,
    }
)
CALL_KINDS = frozenset({"function", "function_call", "tool_call", "tool_use"})
"""Types of call objects in the formats of OpenAI and Anthropic, which models imitate."""

_SAYING = (Role.TEXT, Role.REASONING)
_NAMING = (Role.NAME, Role.WRAPPER)
_CAPTURED = (*_NAMING, Role.IDENTIFIER, Role.THOUGHTS)
_NO_SEPARATOR = re.compile(r"[^\s,;]")
_DOUBLED = "{{"
_HEADS = (compile_marker("{{{{"), compile_marker("{{"), compile_marker("[{_}{{"))


class JsonObjects(Grammar, frozen=True, eq=False, dict=True):
    """`keys` has the roles of the members; without them the key is the name. `call` is the template for writing."""

    keys: Mapping[str, Role] = CALL_KEYS
    call: str = '{{"name": {name}, "arguments": {arguments}}}'
    header: str = ""
    """The text before the object. The object repeats its `{name}`."""

    @cached_property
    def heads(self) -> Sequence[MarkerPattern]:
        return [compile_marker(f"{self.header}{{{{")] if self.header else _HEADS

    @property
    def only_if_named(self) -> bool:
        return self.keys is CALL_KEYS and not self.header

    def read(self, state: ParseState, head: Match, *, declared: bool) -> Reading[None]:
        buffer = state.buffer
        if self.header:
            buffer.at = head.end - 1
        if buffer.text[buffer.at] == "{":
            doubled = buffer.text.startswith(_DOUBLED, buffer.at)
            buffer.at += doubled
            yield from _Object(self, state, declared, doubled=doubled).read()
            if doubled:
                yield from _close_doubled(state)
            return
        buffer.at = head.end - 1
        yield from _list(self, state, declared)

    def render(self, call: InvocationCanister, index: int = 0) -> str:
        return self.call.format(
            name=quote_json(call.name), arguments=arguments_json(call), identifier=quote_json(call.identifier)
        )


def _list(body: JsonObjects, state: ParseState, declared: bool, *, inner: bool = False) -> Reading[bool]:
    """Read a list from its first object. Return whether it was closed; if not, its rest is not a call."""
    buffer = state.buffer
    while True:
        each = _Object(body, state, declared, inner=inner)
        try:
            yield from each.read()
        except NotACall:
            if each.closed:
                yield from _leave_list(state)
            raise
        while (match := _NO_SEPARATOR.search(buffer.text, buffer.at)) is None:
            buffer.at = len(buffer.text)
            yield
        buffer.at = match.start()
        if match[0] == "]":
            buffer.at += 1
            buffer.drop()
            return True
        if match[0] != "{":
            return False
        buffer.hold()


def _close_doubled(state: ParseState) -> Reading[None]:
    """Read the second brace of an object in two braces: Qwen2.5-Coder's template has such an example."""
    buffer = state.buffer
    try:
        yield from buffer.skip_blank()
    except EndOfText:
        buffer.drop()
        raise
    buffer.at += buffer.text[buffer.at] == "}"
    buffer.drop()


def _leave_list(state: ParseState) -> Reading[None]:
    """Skip a list to its end. If one of its objects is not a call, the others are not calls either."""
    buffer, brackets = state.buffer, Brackets()
    brackets.step("[", 0)
    closed = False
    while not closed:
        closed, buffer.at = brackets.step(buffer.text, buffer.at)
        if not closed:
            yield


def _is_schema(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    """Whether the object describes the arguments of a tool with that schema instead of giving them."""
    if any(key in arguments for key in keys_of(schema)):
        return False
    reference = arguments.get("$ref")
    described = isinstance(arguments.get("properties"), dict) or (isinstance(reference, str) and reference[:1] == "#")
    return described or arguments.get("type") == "object"


class _Object:
    """A reader of one object, whose opening brace is the next character."""

    def __init__(
        self, body: JsonObjects, state: ParseState, declared: bool, *, inner: bool = False, doubled: bool = False
    ) -> None:
        self._keys = body.keys
        self._body = body
        self._state = state
        self._buffer = state.buffer
        self._declared = declared
        self._inner = inner
        """True if the object is an item of a list of calls, and so contains no list."""
        self._doubled = doubled
        """True if the object has two pairs of braces; its arguments may have them as well."""
        self._members = JsonObject()
        self._role: Role | None = None
        self._has_emitted = False
        self._name: str | None = None
        self._identifier = ""
        self._arguments: str | None = None
        self._from = self._to = 0
        """Offsets of the arguments, or where it is known to which call they belong."""
        self._called = False
        self._refused = False
        """True if a member says that the object is not a call."""
        self._has_extras = False
        """True if the object has members that no call has."""
        self._is_described = False
        """True if one of these is a description, as tools have it."""
        self.closed = False

    @property
    def _strict(self) -> bool:
        """Whether only the object's members say that it is a call."""
        return self._declared and bool(self._keys)

    def read(self) -> Reading[None]:
        """Read the object. Raises NotACall if it produced no event."""
        buffer, members = self._buffer, self._members
        buffer.at += 1
        try:
            while True:
                if self._refused:
                    yield from self._leave()
                token, buffer.at = members.step(buffer.text, buffer.at)
                if self._has_emitted:
                    buffer.drop()
                match token:
                    case Token.MORE:
                        yield
                    case Token.KEY:
                        self._role = self._keys.get(members.key) if self._keys else Role.ONLY
                        self._has_extras = self._has_extras or self._role is None
                        self._is_described = self._is_described or members.key == "description"
                    case Token.BEGIN:
                        yield from self._value()
                    case Token.DONE:
                        self.closed = True
                        self._end()
                        return
                    case Token.BROKEN:
                        self._break()
                    case _:  # END of an unused value, or LEFT: the members of the outer object follow
                        pass
        except EndOfText:
            self._cut()
            raise
        except NotACall:
            self._state.pending_reasoning = []
            raise

    def _leave(self) -> Reading[None]:
        """Read the object to its end, so that nothing inside it counts as a call. Raises NotACall."""
        buffer, brackets = self._buffer, Brackets()
        brackets.step("{" * self._members.levels, 0)
        while True:
            self.closed, buffer.at = brackets.step(buffer.text, buffer.at)
            if self.closed:
                raise NotACall
            yield

    def _break(self) -> NoReturn:
        if self._has_emitted:
            self._end()
        raise NotACall

    def _end(self) -> None:
        if self._strict and not self._called:
            self._decide()
        if self._state.call is not None:
            self._state.close()
        elif self._has_emitted:
            self._buffer.drop()
        else:
            raise NotACall

    def _decide(self) -> None:
        """Open the call if all members together make one."""
        if self._refused or self._name is None or self._arguments is None:
            return
        arguments, calls = parse_object(self._arguments), self._state.calls
        if self._has_extras and not (calls.fits(self._name, arguments) and (arguments or not self._is_described)):
            is_call = False
        else:
            is_call = arguments is None or not _is_schema(arguments, calls.schema(self._name))
        if is_call:
            self._open(self._from).write(self._arguments, self._to)
        else:
            self._state.miss(self._name, self._from)

    def _cut(self) -> None:
        """Handle the end of the text inside the object."""
        state = self._state
        if self._strict and not self._called:
            self._decide()
        call = state.call
        if call is not None:
            if state.why == "stop" and call.is_whole:
                # Only the closing brace is missing.
                self._buffer.at = len(self._buffer.text)
                state.close()
            else:
                state.abandon()
        elif self._has_emitted:
            if self._role is Role.CALLS and (cut := self._buffer.pending_words.strip(",[]")):
                begin, self._buffer.at = self._buffer.pending_offset, len(self._buffer.text)
                self._buffer.note("dropped", f"the text ends where a call begins: {cut.strip()}", begin)
            self._buffer.drop()
        elif self._name is not None and not self._declared:
            state.open(self._name, self._identifier)
            state.abandon()

    def _value(self) -> Reading[None]:
        """Decide what to do with the value that begins here."""
        opener, role = self._members.opener, self._role
        if role is Role.WRAPPER and opener == "{":
            self._members.enter()
            self._buffer.at += 1
        elif role is Role.CALLS and opener == "[" and not self._inner:
            yield from self._calls()
        elif role in _SAYING:
            yield from self._say()
        elif role in _CAPTURED and not self._called and not (role in _NAMING and self._name is not None):
            yield from self._capture()
        elif role is Role.ONLY and opener == "{" and not self._called:
            self._name = self._members.key
            yield from self._stream()
        elif role is Role.ARGUMENTS and not self._called and self._arguments is None:
            if opener not in '{"':
                self._refused = self._strict
            elif self._name is not None and opener == "{":
                yield from self._hold() if self._strict or self._doubled else self._stream()
            else:
                yield from self._capture()
        elif role is Role.KIND and self._strict:
            yield from self._capture()

    def _raw(self) -> Reading[str]:
        """Return the raw text of the value."""
        buffer, members = self._buffer, self._members
        pieces: list[str] = []
        while True:
            begin = buffer.at
            token, buffer.at = members.step(buffer.text, begin)
            pieces.append(buffer.text[begin : buffer.at])
            if token is Token.END:
                return "".join(pieces)
            if token is Token.BROKEN:
                raise NotACall
            yield

    def _capture(self) -> Reading[None]:
        begin = self._buffer.offset
        raw = yield from self._raw()
        role, text = self._role, _unquote(raw)
        if raw == "null":
            return
        match role:
            case Role.ARGUMENTS:
                if raw.startswith('"'):
                    raw = text or ""
                    if parse_object(raw) is None:
                        self._refuse()
                        return
                self._arguments = raw
            case Role.IDENTIFIER:
                self._identifier = text or (raw if raw.isdigit() else "")
            case Role.THOUGHTS:
                if text:
                    self._state.pending_reasoning.append(ReasoningPiece(text, offsets=(begin, self._buffer.offset)))
            case Role.KIND:
                self._refused = text not in CALL_KINDS
            case _:
                if text is None or (self._declared and not self._state.calls.is_declared(text)):
                    self._refuse()
                    return
                self._name = text
        if self._name is None or self._arguments is None or self._called:
            return
        if self._strict:
            self._from = self._to = self._to or self._buffer.offset
        else:
            call = self._open()
            call.write(self._arguments, self._buffer.offset)

    def _refuse(self) -> None:
        """Refuse the object as a call. A strictly judged object is read to its end, so that its contents do not count."""
        if not self._strict:
            raise NotACall
        self._refused = True

    def _hold(self) -> Reading[None]:
        """Hold the arguments until the object is closed, or until they exceed the limit of held text."""
        buffer, members = self._buffer, self._members
        pieces: list[str] = []
        self._from = buffer.offset
        while True:
            begin = buffer.at
            token, buffer.at = members.step(buffer.text, begin)
            pieces.append(buffer.text[begin : buffer.at])
            if token is Token.END:
                raw = "".join(pieces)
                if self._doubled and parse_object(raw) is None and parse_object(raw[1:-1]) is not None:
                    raw = raw[1:-1]
                self._arguments, self._to = raw, buffer.offset
                if not self._strict:
                    self._open(self._from).write(raw, self._to)
                return
            if token is Token.BROKEN:
                call = self._open(self._from)
                call.write("".join(pieces), buffer.offset)
                self._state.close()
                raise NotACall
            try:
                if members.is_in_string:
                    yield from buffer.write_plain(STRING_TEXT, lambda piece, _: pieces.append(piece))
                else:
                    yield
            except EndOfText:
                call = self._open(self._from)
                call.write("".join(pieces), buffer.offset)
                raise
            except NotACall:
                call = self._open(self._from)
                call.write("".join(pieces), buffer.offset)
                yield from self._go_on(call)
                return

    def _open(self, end: int | None = None) -> OpenCall:
        """Open the call. Its head ends at `end`, by default here."""
        call = self._state.open(self._name or "", self._identifier, declared=self._declared, end=end)
        self._called = self._has_emitted = True
        return call

    def _stream(self) -> Reading[None]:
        """Stream the arguments as they arrive."""
        yield from self._go_on(self._open())

    def _go_on(self, call: OpenCall) -> Reading[None]:
        buffer, members = self._buffer, self._members
        while True:
            begin = buffer.at
            token, buffer.at = members.step(buffer.text, begin)
            call.write(buffer.text[begin : buffer.at], buffer.offset)
            buffer.drop()
            if token is Token.END:
                return
            if token is Token.BROKEN:
                self._state.close()
                raise NotACall
            if members.is_in_string:
                yield from buffer.write_plain(STRING_TEXT, call.write)
            else:
                yield

    def _calls(self) -> Reading[None]:
        """Read a list of calls."""
        buffer = self._buffer
        before = self._state.calls.count
        buffer.at += 1
        yield from buffer.skip_blank()
        try:
            if buffer.text[buffer.at] == "{":
                closed = yield from _list(self._body, self._state, self._declared, inner=True)
            else:
                closed = buffer.text[buffer.at] == "]"
                buffer.at += closed
        finally:
            self._has_emitted = self._state.calls.count > before
        if not closed:
            raise NotACall
        self._members.skip_value()

    def _say(self) -> Reading[None]:
        """Emit an answer or a thought as it arrives."""
        buffer, members = self._buffer, self._members
        piece = ReasoningPiece if self._role is Role.REASONING else TextPiece
        if members.opener != '"':
            begin = buffer.offset
            raw = yield from self._raw()
            if raw != "null":
                self._has_emitted = True
                buffer.drop()
                buffer.release()
                self._state.emit(piece(raw, offsets=(begin, buffer.offset)))
            return
        self._has_emitted = True
        buffer.drop()
        buffer.release()
        string = JsonString()
        begin = buffer.at + 1
        emitted_to = buffer.base + begin
        try:
            while True:
                token, buffer.at = members.step(buffer.text, buffer.at)
                inside = buffer.at - (token is Token.END)
                text = string.feed(buffer.text[begin:inside])
                if token is Token.END:
                    text += string.finish()
                end = buffer.base + inside - string.held_length
                if text:
                    self._state.emit(piece(text, offsets=(emitted_to, end)))
                    emitted_to = end
                buffer.drop()
                if token is not Token.MORE:
                    return
                yield
                begin = buffer.at
        except EndOfText:
            if text := string.finish():
                self._state.emit(piece(text, offsets=(emitted_to, buffer.offset)))
            raise


def _unquote(raw: str) -> str | None:
    """Return the characters of a JSON string."""
    try:
        value = json.loads(raw, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, str) else None

"""A name, a separator, and the arguments as JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence

from callboard.core import InvocationCanister
from callboard.dialects.call_builder import escape_json, parse_object
from callboard.dialects.grammar import Grammar, arguments_json, read_arguments
from callboard.dialects.grammars.typed_values import accepts, only_string
from callboard.dialects.parse_state import ParseState
from callboard.dialects.text_buffer import EndOfText, NotACall, Reading
from callboard.text.json_value import Brackets
from callboard.text.marker_pattern import MarkerPattern, Match, compile_marker

_COUNTER = re.compile(r"\d+$")


class NameThenJson(Grammar, frozen=True, eq=False):
    """`headers` are the templates before the arguments, with `{name}` and `{id}`; the first is used for writing.

    `ends` may replace empty arguments. With `raw`, text that is not JSON is the argument of a tool that takes one
    string. It ends at one of the ends.
    """

    headers: tuple[str, ...]
    ends: tuple[str, ...] = ()
    tail: str = ""
    """The text after the arguments."""
    raw: bool = False
    name_from_id: bool = False
    """True if the name is the identifier without `functions.` and its counter."""

    @property
    def heads(self) -> Sequence[MarkerPattern]:
        follow = () if self.raw else ("{{", *self.ends)
        return [compile_marker(header, follow) for header in self.headers]

    def read(self, state: ParseState, head: Match, *, declared: bool) -> Reading[None]:
        buffer = state.buffer
        identifier = head.fields.get("id", "")
        name = named_identifier(identifier) if self.name_from_id else head.fields["name"]
        if self.name_from_id and name.isdigit() and not state.calls.takes_any and not state.calls.is_declared(name):
            buffer.at = head.end
            yield from _call_by_arguments(state, identifier)
            return
        if head.cut and not state.calls.is_declared(name):
            raise EndOfText  # the name may be incomplete
        buffer.at = head.end
        try:
            yield from buffer.skip_blank()
            empty = buffer.text[buffer.at] != "{" and (
                yield from buffer.match_first([compile_marker(end) for end in self.ends])
            )
        except EndOfText:
            if not declared or state.calls.is_declared(name):
                state.open(name, identifier)
                state.abandon()
            raise
        if buffer.text[buffer.at] == "{":
            call = state.open(name, identifier, declared=declared)
            yield from read_arguments(state, call)
        elif empty:
            call = state.open(name, identifier, declared=declared)
            call.write("{}", buffer.offset)
        elif self.raw and (key := only_string(state.calls.schema(name))):
            call = state.open(name, identifier, declared=declared)
            yield from read_text(state, key, self.ends)
        else:
            raise NotACall
        if self.tail:
            try:
                yield from buffer.skip_blank()
                if match := (yield from buffer.match_first([compile_marker(self.tail)])):
                    buffer.at = match[1].end
            except EndOfText:
                state.close()
                raise
        state.close()

    def render(self, call: InvocationCanister, index: int = 0) -> str:
        identifier = call.identifier
        if self.name_from_id and named_identifier(identifier) != call.name:
            counter = _COUNTER.search(identifier)
            identifier = f"functions.{call.name}:{counter[0] if counter else 0}"
        header = self.headers[0].format(name=call.name, id=identifier, line="\n", _="")
        return header + arguments_json(call) + self.tail.format()


def _call_by_arguments(state: ParseState, identifier: str) -> Reading[None]:
    """Read a call whose identifier is only a counter: it calls the only tool that accepts the arguments, if any."""
    buffer, brackets = state.buffer, Brackets()
    yield from buffer.skip_blank()
    if buffer.text[buffer.at] != "{":
        raise NotACall
    pieces: list[str] = []
    closed = False
    while not closed:
        begin = buffer.at
        closed, buffer.at = brackets.step(buffer.text, begin)
        pieces.append(buffer.text[begin : buffer.at])
        if not closed:
            yield
    raw = "".join(pieces)
    names = [name for name in state.calls.names if accepts(state.calls.schema(name), parse_object(raw))]
    state.open(names[0] if len(names) == 1 else identifier, identifier).write(raw, buffer.offset)
    state.close()


def read_text(state: ParseState, key: str, ends: Sequence[str]) -> Reading[None]:
    """Read the characters up to one of the ends, or to the end of the text, as the only argument."""
    buffer, call = state.buffer, state.call
    if call is None:
        raise AssertionError
    call.write(f'{{"{escape_json(key)}":"', buffer.offset)
    markers = [compile_marker(end) for end in ends]
    start = re.compile(f"[{re.escape(''.join({each.prefix[0] for each in markers}))}]" if markers else r"(?!)")
    try:
        while True:
            match = start.search(buffer.text, buffer.at)
            at = len(buffer.text) if match is None else match.start()
            call.write(escape_json(buffer.text[buffer.at : at]), buffer.base + at)
            buffer.at = at
            buffer.drop()
            if match is None:
                yield
            elif (yield from buffer.match_first(markers)):
                break
            else:
                buffer.at += 1
                call.write(escape_json(match[0]), buffer.offset)
    except EndOfText:
        if state.why != "stop":
            state.abandon()
            raise
        call.write(escape_json(buffer.text[buffer.at :]), buffer.base + len(buffer.text))
        buffer.at = len(buffer.text)
        call.write('"}', buffer.offset)
        state.close()
        raise
    call.write('"}', buffer.offset)


def named_identifier(identifier: str) -> str:
    """Return the name in an identifier: `get_time` for `functions.get_time:3`."""
    head, colon, counter = identifier.rpartition(":")
    name = head if colon and counter.isdigit() else identifier
    return name.removeprefix("functions.")

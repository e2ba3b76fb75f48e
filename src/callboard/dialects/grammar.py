"""The interface of a grammar: one way to write a call inside its frame.

A grammar is a frozen struct with the data of a format, and three methods that recognise, read and write calls. `read`
is a generator. It takes characters from `state.buffer` and yields when it needs more of them:

    def read(self, state, head, *, declared):
        buffer = state.buffer
        buffer.at = head.end                             # the head was matched, not read
        call = state.open(head.fields["name"], declared=declared)
        while (end := buffer.text.find(")", buffer.at)) < 0:
            call.write(buffer.text[buffer.at :], buffer.base + len(buffer.text))
            buffer.at = len(buffer.text)                 # all of it belongs to the arguments
            yield                                        # more text, or EndOfText is raised here
        ...
        state.close()

Three things may happen at a `yield`. More text has arrived. Or `EndOfText` is raised: the grammar closes or abandons
its call and lets the exception pass. Or `NotACall` is raised, because the text since the head is longer than the limit
and no call was opened. A grammar raises `NotACall` itself when it finds that there is no call. All text that was read
and not emitted then becomes text again. After `state.open` nothing is taken back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from callboard.core import InvocationCanister
from callboard.dialects.text_buffer import EndOfText, Reading
from callboard.text.json_value import STRING_TEXT, Brackets
from callboard.text.marker_pattern import MarkerPattern, Match

if TYPE_CHECKING:
    from callboard.dialects.call_builder import OpenCall
    from callboard.dialects.parse_state import ParseState


class NotSpellable(Exception):  # it says what it is
    """The dialect cannot spell these calls. `why` says which part."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Grammar(msgspec.Struct, frozen=True, eq=False):
    """One way to write a call inside its frame."""

    @property
    def heads(self) -> Sequence[MarkerPattern]:
        """The patterns that a call may begin with."""
        raise NotImplementedError

    @property
    def only_if_named(self) -> bool:
        """True if JSON without the name of a declared tool is not a call, if only declared tools may be called."""
        return False

    def read(self, state: ParseState, head: Match, *, declared: bool) -> Reading[None]:
        """Read a call.

        Args:
            state: Provides the text, and receives the call and its arguments.
            head: The head at the buffer's position. It is not read yet.
            declared: Only the name of a declared tool makes a call.

        Returns:
            A generator that reads from the state, and waits for more text.

        Raises:
            NotACall: There is no call. Raised only before a call was opened.
        """
        raise NotImplementedError

    def render(self, call: InvocationCanister, index: int = 0) -> str:
        """Return the text of `call`; `index` is its position in the reply. Raises NotSpellable."""
        raise NotImplementedError


def read_arguments(state: ParseState, call: OpenCall) -> Reading[None]:
    """Read from an opening brace to its closing bracket. Whether that is JSON is checked when the call ends."""
    buffer = state.buffer
    brackets = Brackets()
    try:
        while True:
            begin = buffer.at
            closed, buffer.at = brackets.step(buffer.text, begin)
            call.write(buffer.text[begin : buffer.at], buffer.offset)
            buffer.drop()
            if closed:
                return
            if brackets.is_in_string:
                yield from buffer.write_plain(STRING_TEXT, call.write)
            else:
                yield
    except EndOfText:
        state.abandon()
        raise


def arguments_json(call: InvocationCanister) -> str:
    """Return the call's arguments as JSON, or as the model wrote them if they are not an object."""
    return call.raw if call.arguments is None else to_json(call.arguments)


def arguments_of(call: InvocationCanister) -> dict[str, Any]:
    """Return the call's arguments. Raises NotSpellable if they are not an object."""
    if call.arguments is None:
        raise NotSpellable("its arguments are no object")
    return dict(call.arguments)


def to_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, UnicodeError, OverflowError):  # integers beyond 64 bits, lone surrogates
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"))

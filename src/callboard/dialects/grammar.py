"""What a grammar is: one way to write a call inside its frame.

A grammar is a frozen struct: data that says how calls are written, and three methods that recognise, read and write
them. `read` is a generator. It takes characters from `state.buffer` and yields where it needs more of them:

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

Three things may happen at a `yield`: more text has come; `EndOfText` is raised, and the grammar closes or abandons its
call and lets the exception go on; `NotACall` is raised, because what it read since the head, without having opened a
call, has grown longer than may be held. A grammar raises `NotACall` itself where it finds that there is no call: all
that was read and not emitted becomes text again. After `state.open` nothing is taken back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from callboard.core import InvocationCanister
from callboard.dialects.text_buffer import EndOfText, Reading
from callboard.text.json_value import Brackets
from callboard.text.marker_pattern import MarkerPattern, Match

if TYPE_CHECKING:
    from callboard.dialects.call_builder import OpenCall
    from callboard.dialects.parse_state import ParseState


class NotSpellable(Exception):  # it says what it is
    """The dialect has no spelling for these calls. `why` says what of them it cannot spell."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Grammar(msgspec.Struct, frozen=True, eq=False):
    """One way to write a call inside its frame."""

    @property
    def heads(self) -> Sequence[MarkerPattern]:
        """What a call begins with."""
        raise NotImplementedError

    def read(self, state: ParseState, head: Match, *, declared: bool) -> Reading[None]:
        """Reads a call.

        Args:
            state: Gives the text, takes the call and its arguments.
            head: The head that was found at the buffer's position; it is not read yet.
            declared: Only the name of a declared tool makes a call.

        Raises:
            NotACall: Before a call was opened, where there is none.
        """
        raise NotImplementedError

    def render(self, call: InvocationCanister, index: int = 0) -> str:
        """The text of a call; `index` counts the calls of its reply. Raises NotSpellable."""
        raise NotImplementedError


def read_arguments(state: ParseState, call: OpenCall) -> Reading[None]:
    """Reads from an opening brace up to the bracket that closes it; whether that is JSON shows when the call ends."""
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
            yield
    except EndOfText:
        state.abandon()
        raise


def arguments_json(call: InvocationCanister) -> str:
    """The call's arguments as JSON, or as the model wrote them where they are no object."""
    return call.raw if call.arguments is None else to_json(call.arguments)


def arguments_of(call: InvocationCanister) -> dict[str, Any]:
    """The call's arguments. Raises NotSpellable where they are no object."""
    if call.arguments is None:
        raise NotSpellable("its arguments are no object")
    return dict(call.arguments)


def to_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, UnicodeError, OverflowError):  # integers beyond 64 bits, half a pair of surrogates
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"))

"""A call's arguments as JSON: read as they arrive, and written.

Law: what was written to the call never changes.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from callboard.core import InvocationCanister
from callboard.dialects.call_builder import OpenCall
from callboard.dialects.grammar import NotSpellable
from callboard.dialects.parse_state import ParseState
from callboard.dialects.text_buffer import EndOfText, Reading
from callboard.text.json_value import Brackets


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

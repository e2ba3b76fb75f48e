"""The JSON of a call's arguments, as it arrives.

Owns how far it goes: to the bracket that closes it, wherever its strings are. Knows nothing of what is
around it. Law: what was written to the call never changes.
"""

from __future__ import annotations

from callboard.dialects.call_builder import OpenCall
from callboard.dialects.parse_state import Reply
from callboard.dialects.text_buffer import Over, Reading
from callboard.text.json_value import Brackets


def read_arguments(reply: Reply, call: OpenCall) -> Reading[None]:
    """From an opening brace up to what closes it. What goes wrong in between is for the call's reader to see."""
    reader = reply.reader
    brackets = Brackets()
    try:
        while True:
            begin = reader.at
            closed, reader.at = brackets.step(reader.text, begin)
            call.write(reader.text[begin : reader.at], reader.offset)
            reader.drop()
            if closed:
                return
            yield
    except Over:
        reply.abandon()
        raise

"""The Anthropic Messages wire, both halves: the client's, which talks to a backend, and the server's."""

from callboard.wires.messages.decode_stream import StreamDecoder
from callboard.wires.messages.encode_stream import StreamEncoder
from callboard.wires.messages.errors import decode_error, encode_error
from callboard.wires.messages.request import decode_request, encode_request
from callboard.wires.messages.response import decode_response, encode_response

__all__ = [
    "StreamDecoder",
    "StreamEncoder",
    "decode_error",
    "decode_request",
    "decode_response",
    "encode_error",
    "encode_request",
    "encode_response",
]

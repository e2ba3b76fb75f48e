"""The Chat Completions wire, both halves: the client's, which talks to a backend, and the server's."""

from callboard.wires.chat.chunks import StreamEncoder
from callboard.wires.chat.failure import decode_error, encode_error
from callboard.wires.chat.request import RequestEncoder, decode_request, encode_request
from callboard.wires.chat.response import decode_response, encode_response
from callboard.wires.chat.stream import StreamDecoder

__all__ = [
    "RequestEncoder",
    "StreamDecoder",
    "StreamEncoder",
    "decode_error",
    "decode_request",
    "decode_response",
    "encode_error",
    "encode_request",
    "encode_response",
]

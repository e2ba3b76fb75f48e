"""The Responses wire, both halves: the client's, which talks to a backend, and the server's."""

from callboard.wires.responses.decode_stream import StreamDecoder
from callboard.wires.responses.encode_stream import StreamEncoder
from callboard.wires.responses.errors import decode_error, encode_error
from callboard.wires.responses.request import (
    DecodedRequest,
    decode_request,
    encode_request,
    read_request,
)
from callboard.wires.responses.response import decode_response, encode_response

__all__ = [
    "DecodedRequest",
    "StreamDecoder",
    "StreamEncoder",
    "decode_error",
    "decode_request",
    "decode_response",
    "encode_error",
    "encode_request",
    "encode_response",
    "read_request",
]

"""The Anthropic Messages wire, both halves: the client's, which talks to a backend, and the server's."""

from callboard.wires.messages.decode_reply import StreamDecoder, decode_response
from callboard.wires.messages.encode_reply import StreamEncoder, encode_response
from callboard.wires.messages.errors import decode_error, encode_error
from callboard.wires.messages.request import decode_request, encode_request

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

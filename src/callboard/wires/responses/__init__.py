"""The Responses wire, both halves: the client's, which talks to a backend, and the server's."""

from callboard.wires.common.errors import decode_error
from callboard.wires.common.errors import encode_openai_error as encode_error
from callboard.wires.responses.decode_reply import StreamDecoder, decode_response
from callboard.wires.responses.encode_reply import StreamEncoder, encode_response
from callboard.wires.responses.request import DecodedRequest, decode_request, encode_request, read_request

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

"""Google's generateContent wire, both halves: the client's, which talks to a backend, and the server's.

The URL of a request has its model, and says if the reply is streamed: see `request_path` and `decode_request`.
"""

from callboard.wires.gemini.decode_reply import StreamDecoder, decode_response
from callboard.wires.gemini.encode_reply import ArrayEncoder, StreamEncoder, encode_response
from callboard.wires.gemini.errors import decode_error, encode_error
from callboard.wires.gemini.request import decode_request, encode_request, request_path
from callboard.wires.gemini.schema import decode_schema

__all__ = [
    "ArrayEncoder",
    "StreamDecoder",
    "StreamEncoder",
    "decode_error",
    "decode_request",
    "decode_response",
    "decode_schema",
    "encode_error",
    "encode_request",
    "encode_response",
    "request_path",
]

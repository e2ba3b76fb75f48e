"""The Chat Completions wire, both halves: the client's, which talks to a backend, and the server's."""

from callboard.wires.chat.decode_reply import StreamDecoder, decode_response
from callboard.wires.chat.encode_messages import encode_messages
from callboard.wires.chat.encode_reply import StreamEncoder, encode_response
from callboard.wires.chat.request import decode_request, encode_request
from callboard.wires.common.errors import decode_error
from callboard.wires.common.errors import encode_openai_error as encode_error

__all__ = [
    "StreamDecoder",
    "StreamEncoder",
    "decode_error",
    "decode_request",
    "decode_response",
    "encode_error",
    "encode_messages",
    "encode_request",
    "encode_response",
]

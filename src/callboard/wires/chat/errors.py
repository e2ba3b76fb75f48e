"""OpenAI's errors, as Chat Completions writes them in a body and in a stream."""

from callboard.wires.common.errors import decode_error, encode_openai_error, openai_error_body

__all__ = ["decode_error", "encode_error", "error_body"]

encode_error = encode_openai_error
error_body = openai_error_body

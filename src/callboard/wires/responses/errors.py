"""OpenAI's errors, as the Responses wire writes them in a body and in a response that failed."""

from callboard.core import ReplyFailed
from callboard.wires.common.errors import decode_error, encode_openai_error

__all__ = ["decode_error", "encode_error", "error_body"]

encode_error = encode_openai_error


def error_body(failure: ReplyFailed) -> dict[str, str]:
    """The `error` of a response that failed."""
    return {"code": failure.code or "server_error", "message": failure.message or failure.code}

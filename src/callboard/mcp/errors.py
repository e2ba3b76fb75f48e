"""Exceptions for failures of a server, from the SDK's errors and the protocol's error codes.

Law: each exception says which server failed, what it answered, and whether the request may have been carried out.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any, Final, Self

from callboard.core import Category
from callboard.errors import CallerError, NoSuchTool, ToolExecutionFailure
from callboard.text.truncate import truncate

CONNECTION_CLOSED: Final = -32000
REQUEST_TIMEOUT: Final = -32001
RESOURCE_NOT_FOUND: Final = -32002
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022
METHOD_NOT_FOUND: Final = -32601
"""Error code in JSON-RPC 2.0 and in the specifications of 2025-11-25 and 2026-07-28."""

STATUS_KEY: Final = "httpStatus"
"""Key in an error's data for the HTTP status that `http_transport` adds."""
_LOGIN_STATUSES: Final = frozenset({401, 403})
_HINTS: Final = {
    401: "check its headers, or log in: `callboard mcp login {name}`",
    403: "check its headers, or log in again: `callboard mcp login {name}` asks for the scope that was missing",
    405: "is it a URL of streamable HTTP? One of the older SSE transport refuses this",
}
_EXCERPT: Final = 500


class ServerFailure(ToolExecutionFailure):
    """A server did not carry out a request.

    `category` is the category of the tool result. `may_have_run` is True if the call was sent and its answer was lost.
    `permanent` errors remain until somebody changes something, so the call is not retried.
    """

    party = "server"
    category: Category = "execution"

    def __init__(
        self, message: str, *, path: str = "", hint: str = "", may_have_run: bool = False, permanent: bool = False
    ) -> None:
        super().__init__(message, path=path, hint=hint)
        self.may_have_run = may_have_run
        self.permanent = permanent

    def copy(self) -> Self:
        """Return a new exception with the same values, because waiting calls must not raise the same object."""
        same = {"may_have_run": self.may_have_run, "permanent": self.permanent}
        return type(self)(self.message, path=self.path, hint=self.hint, **same)


class ServerTimeout(ServerFailure, TimeoutError):
    """The server did not answer in time."""

    category: Category = "timeout"


class ServerUnreachable(ServerFailure, ConnectionError):
    """The connection is missing or was lost."""

    category: Category = "network"


class ServerItemNotFound(ServerFailure, NoSuchTool):
    """The server has no tool, resource or prompt with this name."""

    category: Category = "not_found"


_CLASS_BY_CODE: Final[dict[int, type[ServerFailure]]] = {
    CONNECTION_CLOSED: ServerUnreachable,
    REQUEST_TIMEOUT: ServerTimeout,
    RESOURCE_NOT_FOUND: ServerItemNotFound,
    METHOD_NOT_FOUND: ServerItemNotFound,
}


def to_failure(error: BaseException, path: str) -> ServerFailure:
    """Convert an exception of the SDK or of a program start. In a group, the first error with a reason counts."""
    for each in _leaves(error):
        if isinstance(each, ServerFailure):
            return each
        if isinstance(each, CallerError):
            return ServerFailure(each.message, path=each.path or path, hint=each.hint, permanent=True)
    first = next(_leaves(error))
    code: Any = getattr(first, "code", None)
    text = error_text(first) or type(first).__name__
    if isinstance(code, int):
        data: Any = getattr(first, "data", None)
        value: Any = data.get(STATUS_KEY) if isinstance(data, dict) else None
        status = value if isinstance(value, int) else 0
        refused = status in _LOGIN_STATUSES
        kind = _CLASS_BY_CODE.get(code, ServerFailure)
        hint = _HINTS.get(status, "").format(name=shlex.quote(path.removeprefix("mcp.")))
        return kind(text, path=path, hint=hint, permanent=refused or code == UNSUPPORTED_PROTOCOL_VERSION)
    if isinstance(first, TimeoutError):
        return ServerTimeout(text, path=path)
    if isinstance(first, OSError) or type(first).__module__.partition(".")[0] in {"anyio", "httpx2"}:
        return ServerUnreachable(text, path=path)
    return ServerFailure(text, path=path)


def is_lost(error: BaseException, *, closed: bool) -> bool:
    """True if an error means that the connection is gone. Servers also use its code for other errors."""
    if getattr(error, "code", None) != CONNECTION_CLOSED:
        return closed and not isinstance(error, ServerFailure) and not hasattr(error, "code")
    data: Any = getattr(error, "data", None)
    return closed or (isinstance(data, dict) and STATUS_KEY in data) or str(error).startswith("SSE stream ended")


def is_server_error(error: BaseException) -> bool:
    """True if the server answered with this error, False for an error of the connection."""
    first = next(_leaves(error))
    data: Any = getattr(first, "data", None)
    code: Any = getattr(first, "code", None)
    return isinstance(code, int) and code != CONNECTION_CLOSED and not (isinstance(data, dict) and STATUS_KEY in data)


def error_text(error: BaseException) -> str:
    """Return the message. For pydantic errors, return the first mistake without the link to pydantic's pages."""
    details: Any = getattr(error, "errors", None)
    if not callable(details):
        return excerpt(str(error))
    first = details(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    return excerpt(f"{place}: {first['msg']}" if place else first["msg"])


def excerpt(text: str, most: int = _EXCERPT) -> str:
    return truncate(text.strip(), most, "…")


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup) and error.exceptions:
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error

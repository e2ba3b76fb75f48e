"""What can go wrong with a server, as exceptions.

Owns the way from the SDK's errors and the protocol's codes to our categories. Knows nothing of connections.
Law: whoever reads one knows which server, what it said, and whether what was asked may have been done.
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
"""JSON-RPC 2.0 and the specifications of 2025-11-25 and 2026-07-28."""

STATUS: Final = "httpStatus"
"""The key in an error's data where web.py puts the status that it was made of."""
_REFUSED: Final = frozenset({401, 403})
_HINTS: Final = {
    401: "check its headers, or log in: `callboard mcp login {name}`",
    403: "check its headers, or log in again: `callboard mcp login {name}` asks for the scope that was missing",
    405: "is it a URL of streamable HTTP? One of the older SSE transport refuses this",
}
_EXCERPT: Final = 500


class ServerFailure(ToolExecutionFailure):
    """A server did not do what it was asked.

    `category` is one of a result's error. After `may_have_run` the call was sent and its answer lost. One that is
    `hopeless` comes again until somebody changes something, so it is not tried again by itself.
    """

    party = "server"
    category: Category = "execution"

    def __init__(
        self, message: str, *, path: str = "", hint: str = "", may_have_run: bool = False, hopeless: bool = False
    ) -> None:
        super().__init__(message, path=path, hint=hint)
        self.may_have_run = may_have_run
        self.hopeless = hopeless

    def again(self) -> Self:
        """The same for somebody else: an exception is raised once."""
        same = {"may_have_run": self.may_have_run, "hopeless": self.hopeless}
        return type(self)(self.message, path=self.path, hint=self.hint, **same)


class ServerTimeout(ServerFailure, TimeoutError):
    """It took too long."""

    category: Category = "timeout"


class ServerUnreachable(ServerFailure, ConnectionError):
    """There is no connection, or it was lost."""

    category: Category = "network"


class ServerLacks(ServerFailure, NoSuchTool):
    """It has nothing of that name."""

    category: Category = "not_found"


_OF_CODE: Final[dict[int, type[ServerFailure]]] = {
    CONNECTION_CLOSED: ServerUnreachable,
    REQUEST_TIMEOUT: ServerTimeout,
    RESOURCE_NOT_FOUND: ServerLacks,
    METHOD_NOT_FOUND: ServerLacks,
}


def failure_of(error: BaseException, path: str) -> ServerFailure:
    """An exception of the SDK, or of starting a program, as one of ours; of a group, the first that says why."""
    for each in _leaves(error):
        if isinstance(each, ServerFailure):
            return each
        if isinstance(each, CallerError):
            return ServerFailure(each.message, path=each.path or path, hint=each.hint, hopeless=True)
    first = next(_leaves(error))
    code: Any = getattr(first, "code", None)
    text = reason_of(first) or type(first).__name__
    if isinstance(code, int):
        data: Any = getattr(first, "data", None)
        given: Any = data.get(STATUS) if isinstance(data, dict) else None
        status = given if isinstance(given, int) else 0
        refused = status in _REFUSED
        kind = _OF_CODE.get(code, ServerFailure)
        hint = _HINTS.get(status, "").format(name=shlex.quote(path.removeprefix("mcp.")))
        return kind(text, path=path, hint=hint, hopeless=refused or code == UNSUPPORTED_PROTOCOL_VERSION)
    if isinstance(first, TimeoutError):
        return ServerTimeout(text, path=path)
    if isinstance(first, OSError) or type(first).__module__.partition(".")[0] in {"anyio", "httpx2"}:
        return ServerUnreachable(text, path=path)
    return ServerFailure(text, path=path)


def is_lost(error: BaseException, *, over: bool) -> bool:
    """Whether an error says that the connection is gone, given whether it is known to be over. Servers use the
    code for errors of their own too.
    """
    if getattr(error, "code", None) != CONNECTION_CLOSED:
        return over and not isinstance(error, ServerFailure) and not hasattr(error, "code")
    data: Any = getattr(error, "data", None)
    return over or (isinstance(data, dict) and STATUS in data) or str(error).startswith("SSE stream ended")


def is_an_answer(error: BaseException) -> bool:
    """Whether it is an error that the server answered with, and none of the connection's."""
    first = next(_leaves(error))
    data: Any = getattr(first, "data", None)
    code: Any = getattr(first, "code", None)
    return isinstance(code, int) and code != CONNECTION_CLOSED and not (isinstance(data, dict) and STATUS in data)


def reason_of(error: BaseException) -> str:
    """What it says; of pydantic's errors the first thing that is wrong, without its page on the web."""
    details: Any = getattr(error, "errors", None)
    if not callable(details):
        return cut(str(error))
    first = details(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    return cut(f"{place}: {first['msg']}" if place else first["msg"])


def cut(text: str, most: int = _EXCERPT) -> str:
    """Its beginning, where it is long."""
    return truncate(text.strip(), most, "…")


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup) and error.exceptions:
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error

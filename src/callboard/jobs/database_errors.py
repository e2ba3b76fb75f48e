"""What a database's failure means: whether to try again, and the sentence that the user reads.

Law: no password and no content of a row is in that sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from callboard.errors import CallboardError
from callboard.jobs.database_url import HINT, VARIABLE

_ANOTHER: Final = f"or name another database in {VARIABLE}"
_READ_ONLY: Final = ("it can be read only", f"give yourself the right to write it, {_ANOTHER}")
_FULL: Final = ("its disk is full", "make room; what was committed is not lost")
_LOCKED: Final = ("another process keeps it locked", "wait for that process, or end it")
_UNREACHABLE: Final = ("it cannot be reached", f"start it, {_ANOTHER}")
_REFUSED: Final = ("it refuses the user or the password", f"correct {VARIABLE}")

_SQLITE: Final[Mapping[int, tuple[str, str]]] = {
    3: _READ_ONLY,
    5: _LOCKED,
    6: _LOCKED,
    8: _READ_ONLY,
    10: ("its disk does not read or write", "look at the system's log for the disk"),
    11: ("the file is damaged", f"put a backup in its place, {_ANOTHER}"),
    13: _FULL,
    14: ("the file cannot be opened", f"look at its folder and the rights there, {_ANOTHER}"),
    26: ("the file is no database of SQLite", HINT),
}
"""By SQLite's primary result codes."""

_POSTGRESQL: Final[Mapping[str, tuple[str, str]]] = {
    "08": _UNREACHABLE,
    "25006": _READ_ONLY,
    "28": _REFUSED,
    "3D000": ("there is no database of this name", "create it, as in: createdb NAME"),
    "42501": ("the user may not use it", "grant the user the rights to create tables"),
    "53100": _FULL,
    "53300": ("it has too many connections", "raise its max_connections, or start fewer workers"),
    "57P": _UNREACHABLE,
}
"""By the beginnings of PostgreSQL's SQLSTATEs."""

_DAMAGED: Final = frozenset({11, 26})
_TRANSIENT_SQLITE: Final = frozenset({5, 6})
_TRANSIENT_POSTGRESQL: Final = ("08", "40", "53300", "55P03", "57P01", "57P02", "57P03")


class DatabaseUnavailable(CallboardError):
    """The database cannot be reached, read or written."""

    party = "database"


def is_transient(error: DBAPIError | PoolTimeout) -> bool:
    """Whether the same transaction may succeed later: the connection was lost, or another one was in the way."""
    if isinstance(error, PoolTimeout) or error.connection_invalidated:
        return True
    code = _code(error.orig)
    return code in _TRANSIENT_SQLITE if isinstance(code, int) else code.startswith(_TRANSIENT_POSTGRESQL)


def find_damage(error: BaseException | None) -> str:
    """Return what is wrong with a file that no later attempt can read, "" for other errors."""
    code = _code(error)
    return _SQLITE[code][0] if isinstance(code, int) and code in _DAMAGED else ""


def explain_failure(error: DBAPIError | PoolTimeout, place: str) -> DatabaseUnavailable:
    """What the user reads."""
    if isinstance(error, PoolTimeout):
        return DatabaseUnavailable("all of its connections are in use", path=place, hint="start fewer jobs at once")
    code = _code(error.orig)
    if isinstance(code, int):
        message, hint = _SQLITE.get(code, ("", ""))
    else:
        message, hint = next((_POSTGRESQL[begin] for begin in _POSTGRESQL if code.startswith(begin)), ("", ""))
    if not message:
        # The first line is the database's own; the others may hold what a row holds.
        message, hint = str(error.orig).strip().partition("\n")[0], HINT
    return DatabaseUnavailable(message, path=place, hint=hint)


def _code(error: Any) -> int | str:
    """SQLite's primary result code, or PostgreSQL's SQLSTATE; that of a connection that could not be made is 08000."""
    number = getattr(error, "sqlite_errorcode", None)
    if number is not None:
        return int(number) & 0xFF
    state = getattr(error, "sqlstate", None)
    if state is None and type(error).__name__ in {"OperationalError", "ConnectionTimeout"}:
        return _login_code(str(error))
    return state or ""


def _login_code(text: str) -> str:
    """Psycopg does not give the SQLSTATE of a connection that the server refused; the server's words tell it."""
    for words, code in (("authentication failed", "28P01"), ("does not exist", "3D000"), ("too many clients", "53300")):
        if words in text:
            return code
    return "08000"

"""Answer calls of tools with `cache` from results of earlier runs, in a SQLite file of this user.

Laws: only results of successful idempotent calls are kept. If the file fails, the call runs. A result answers calls of
the same function with the same source, schema, arguments, auxdata and directory, because another caller may have other
permissions. An expired result is never used. The oldest results are removed first.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from callboard.core import ResultCanister
from callboard.storage.directories import state_directory
from callboard.text.duration import parse_duration
from callboard.tools import Context, Invoker
from callboard.tools.wrappers import encode_call

MAX_BYTES: Final = 128 * 1024 * 1024
MAX_RESULT: Final = 1024 * 1024
"""Maximum bytes of a stored result."""
_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS results (key BLOB PRIMARY KEY, saved_at REAL, expires_at REAL, content BLOB)"
)
_OLDEST: Final = """DELETE FROM results WHERE expires_at <= ? OR key IN (SELECT key FROM (
    SELECT key, sum(length(content)) OVER (ORDER BY saved_at DESC, key) AS total FROM results) WHERE total > ?)"""
_log = logging.getLogger("callboard.execution")


def identify_call(invoker: Invoker, arguments: Mapping[str, Any], context: Context) -> bytes | None:
    """Return the key of a call, or None if its arguments or auxdata are not JSON: its result is not stored."""
    ensemble = invoker.ensemble.name if invoker.ensemble else ""
    try:
        directory = str(Path.cwd())
    except OSError:  # the directory was deleted
        return None
    tool = [ensemble, dict(invoker.arguments_schema), _describe_function(invoker.implementation), directory]
    encoded = encode_call(invoker.name, invoker.coerce(arguments), tool, dict(context.auxdata))
    return None if encoded is None else hashlib.sha256(encoded).digest()


async def answer_from_cache(
    invoker: Invoker,
    key: bytes,
    identifier: str,
    run: Callable[[], Awaitable[ResultCanister]],
    tell: Callable[[str], None] = _log.warning,
) -> ResultCanister:
    """Return the result of an equal call, otherwise of `run`. `tell` receives why a result is not stored."""
    seconds = parse_duration((invoker.cache or {})["ttl"]).total_seconds()
    try:
        earlier = await asyncio.to_thread(_find, key, seconds)
    except (sqlite3.Error, OSError) as error:
        tell(f"results of {invoker.name} are not kept: {error}")
        return await run()
    if earlier is not None:
        return ResultCanister(invocation_id=identifier, content=earlier.content)
    result = await run()
    # A command with an exit code has done something, even if its tool is marked idempotent.
    if result.error is None and result.exit_code is None:
        try:
            await asyncio.to_thread(_save, key, result, seconds)
        except (sqlite3.Error, OSError) as error:
            tell(f"a result of {invoker.name} was not kept: {error}")
    return result


def _open() -> sqlite3.Connection:
    path = state_directory() / "results.db"
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, timeout=10)
    connection.execute(_TABLE)
    return connection


def _find(key: bytes, seconds: float) -> ResultCanister | None:
    now = time.time()
    # If the clock was set back, results do not last longer.
    query = "SELECT content FROM results WHERE key = ? AND expires_at > ? AND saved_at > ? AND saved_at <= ?"
    with closing(_open()) as connection:
        row = connection.execute(query, (key, now, now - seconds, now)).fetchone()
    try:
        return None if row is None else msgspec.json.decode(row[0], type=ResultCanister)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _save(key: bytes, result: ResultCanister, seconds: float) -> None:
    content = msgspec.json.encode(result)
    if len(content) <= MAX_RESULT:
        now = time.time()
        with closing(_open()) as connection, connection:
            connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", (key, now, now + seconds, content))
            connection.execute(_OLDEST, (now, MAX_BYTES))


@lru_cache(1024)
def _describe_function(function: Callable[..., Any]) -> list[str]:
    """Return the identity and the source of a function: results of another version do not count."""
    plain: Any = inspect.unwrap(function)
    while hasattr(plain, "func"):  # a partial
        plain = plain.func
    code = getattr(plain, "__code__", None)
    try:
        source = inspect.getsource(plain)
    except (OSError, TypeError):
        source = getattr(code, "co_code", b"").hex()
    names = [str(getattr(plain, name, "")) for name in ("__module__", "__qualname__")]
    return [*names, str(getattr(code, "co_filename", "")), source]

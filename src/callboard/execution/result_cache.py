"""Answer calls of tools that ask for it (`cache`) with results that earlier runs left.

Laws: only a result of a call that succeeded is kept, and only of calls that are idempotent; where the cache fails, the
call is made. A result answers calls of the same function, as its source was, with the same schema, arguments and
auxdata, in the same directory, and no others: what one caller may see, another may not, and a path may be relative.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

from callboard.core import ResultCanister
from callboard.errors import CallboardError
from callboard.extras import require_extra
from callboard.text.duration import parse_duration
from callboard.tools import Context, Invoker
from callboard.tools.wrappers import encode_call

STORE: Final = "callboard.jobs.result_cache"
"""The module whose `open_results` gives the store. It stands above this one, with the database of durable jobs, so it is
named here, as a plug-in is, and nothing of it is imported unless a tool asks."""

_log = logging.getLogger("callboard.execution")


class StoredResults(Protocol):
    """Results by keys that tell everything that they depend on."""

    async def find(self, key: bytes, seconds: float) -> ResultCanister | None:
        """A result that was saved within the last `seconds`. Raises CallboardError."""
        ...

    async def save(self, key: bytes, result: ResultCanister, seconds: float) -> None:
        """Keep a result for so long. Raises CallboardError."""
        ...


def identify_call(invoker: Invoker, arguments: Mapping[str, Any], context: Context) -> bytes | None:
    """The key of a call; None for one whose arguments or auxdata JSON cannot say, whose result is not kept."""
    ensemble = invoker.ensemble.name if invoker.ensemble else ""
    try:
        directory = str(Path.cwd())
    except OSError:  # it was deleted
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
    """The result that is kept of an equal call, else that of `run`, which is kept if it succeeds.

    Args:
        invoker: The tool.
        key: Of `identify_call`.
        identifier: The invocation's.
        run: Makes the call.
        tell: Is told why nothing can be kept.
    """
    seconds = parse_duration((invoker.cache or {})["ttl"]).total_seconds()
    try:
        store: StoredResults | None = await asyncio.to_thread(_open_store)
        earlier = await store.find(key, seconds) if store else None
    except CallboardError as error:
        tell(f"results of {invoker.name} are not kept: {error}")
        store = earlier = None
    if earlier is not None:
        return ResultCanister(invocation_id=identifier, content=earlier.content)
    result = await run()
    # A command that ended with an exit code has done something, whatever its tool says of itself.
    if store is not None and result.error is None and result.exit_code is None:
        try:
            await store.save(key, result, seconds)
        except CallboardError as error:
            tell(f"a result of {invoker.name} was not kept: {error}")
    return result


def _open_store() -> StoredResults:
    require_extra("jobs")
    store: StoredResults = import_module(STORE).open_results()
    return store


@lru_cache(1024)
def _describe_function(function: Callable[..., Any]) -> list[str]:
    """Which function it is, and how it was written: a result is none of another version of it."""
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

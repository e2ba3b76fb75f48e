"""Which kind of failure an exception is.

Owns the one table from exceptions to categories. Knows nothing of what is done about them.
"""

from __future__ import annotations

import asyncio
import socket
import ssl

from callboard.core import Category
from callboard.errors import NoSuchTool
from callboard.schema import ArgumentsInvalid

_CATEGORIES: tuple[tuple[type[BaseException], Category], ...] = (
    (ArgumentsInvalid, "validation"),
    (NoSuchTool, "not_found"),
    (asyncio.CancelledError, "cancelled"),
    (TimeoutError, "timeout"),
    (PermissionError, "permission"),
    (ConnectionError, "network"),
    (socket.gaierror, "network"),
    (ssl.SSLError, "network"),
)

# The HTTP clients that tools use, by name: none of them is imported for this.
_NETWORK = frozenset(
    {
        "aiohttp.client_exceptions.ClientError",
        "httpx.TransportError",
        "httpx2.TransportError",
        "requests.exceptions.ConnectionError",
        "urllib.error.URLError",
    }
)


def category_of(error: BaseException) -> Category:
    """The category of an exception; what is in no row is `execution`."""
    for kind, category in _CATEGORIES:
        if isinstance(error, kind):
            return category
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    return "network" if names & _NETWORK else "execution"

"""The category of the failure that an exception means."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Mapping
from types import MappingProxyType

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

# What tools' own clients and processes raise, by name: none of these modules is imported for this.
_NAMED: Mapping[str, Category] = MappingProxyType(
    {
        "subprocess.TimeoutExpired": "timeout",
        "requests.exceptions.Timeout": "timeout",
        "urllib3.exceptions.TimeoutError": "timeout",
        "aiohttp.client_exceptions.ClientError": "network",
        "http.client.IncompleteRead": "network",
        "httpx.TransportError": "network",
        "httpx2.TransportError": "network",
        "requests.exceptions.ConnectionError": "network",
        "smtplib.SMTPServerDisconnected": "network",
        "urllib.error.URLError": "network",
        "urllib3.exceptions.MaxRetryError": "network",
        "urllib3.exceptions.ProtocolError": "network",
        "websockets.exceptions.ConnectionClosed": "network",
    }
)
_UNREACHABLE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})


def find_category(error: BaseException) -> Category:
    """The category of an exception, or of all in a group of them; what is in no row is `execution`."""
    if isinstance(error, BaseExceptionGroup):
        members = {find_category(each) for each in error.exceptions}
        return members.pop() if len(members) == 1 else "execution"
    for kind, category in _CATEGORIES:
        if isinstance(error, kind):
            return category
    if isinstance(error, OSError) and error.errno in _UNREACHABLE:
        return "network"
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]
    return next((_NAMED[each] for each in names if each in _NAMED), "execution")

from __future__ import annotations

import asyncio
import errno
import http.client
import smtplib
import socket
import ssl
import subprocess
import urllib.error

import aiohttp
import httpx2
from tests.tables import table

from callboard.errors import CallboardError, NoSuchTool
from callboard.execution.execute import find_category
from callboard.schema import ArgumentsInvalid

# Clients that are not installed here; they are known by their names alone.
Requests = type("ConnectionError", (OSError,), {"__module__": "requests.exceptions"})
ReadTimeout = type(
    "ReadTimeout", (type("Timeout", (OSError,), {"__module__": "requests.exceptions"}),), {"__module__": "requests"}
)
Httpx = type("ConnectError", (type("TransportError", (Exception,), {"__module__": "httpx"}),), {"__module__": "httpx"})


@table(
    ("error", "category"),
    [
        (ArgumentsInvalid([(("query",), "Field required")]), "validation"),
        (NoSuchTool("no tool 'x'"), "not_found"),
        (asyncio.CancelledError(), "cancelled"),
        (TimeoutError(), "timeout"),
        (aiohttp.ServerTimeoutError(), "timeout"),
        (PermissionError(13, "denied"), "permission"),
        (ConnectionError(), "network"),
        (ConnectionRefusedError(), "network"),
        (BrokenPipeError(), "network"),
        (socket.gaierror(-2, "Name or service not known"), "network"),
        (ssl.SSLError(), "network"),
        (ssl.SSLCertVerificationError(), "network"),
        (aiohttp.ClientPayloadError(), "network"),
        (httpx2.ConnectError("refused"), "network"),
        (Httpx("refused"), "network"),
        (urllib.error.URLError("refused"), "network"),
        (Requests(), "network"),
        (subprocess.TimeoutExpired("sleep", 1), "timeout"),
        (ReadTimeout(), "timeout"),
        (http.client.RemoteDisconnected(), "network"),
        (http.client.IncompleteRead(b""), "network"),
        (smtplib.SMTPServerDisconnected(), "network"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "network"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "network"),
        (ExceptionGroup("two", [ConnectionError(), ConnectionResetError()]), "network"),
        (ExceptionGroup("one", [ExceptionGroup("inner", [TimeoutError()])]), "timeout"),
        (ExceptionGroup("mixed", [ConnectionError(), ValueError()]), "execution"),
        (ExceptionGroup("mixed", [ConnectionError(), TimeoutError()]), "execution"),
        (ValueError("no"), "execution"),
        (LookupError("no"), "execution"),
        (OSError(28, "No space left on device"), "execution"),
        (FileNotFoundError(2, "No such file"), "execution"),
        (CallboardError("no"), "execution"),
        (Exception(), "execution"),
        (SystemExit(1), "execution"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_every_exception_has_a_category(error, category):
    assert find_category(error) == category

"""Decide whether a request is repeated, and when.

The statuses that another attempt may cure, the ways to get no answer, and the pauses. Nothing is asked here: what
happened, and the time, are arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import NamedTuple

RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504, 529})
"""The statuses that another attempt may cure; 529 is Anthropic's for an overload."""
OVERLOADED = frozenset({429, 503, 529})
"""The statuses with which a server says that it has too much to do."""
LONGEST_WAIT = 60.0
"""Seconds. A server that asks for more is not asked again: its answer is the caller's."""
_BACKOFFS = (0.5, 1.0, 2.0, 4.0, 8.0)


def backoff(attempt: int, jitter: float) -> float:
    """Seconds after the failed `attempt` (from 1): 0.5 doubled each time up to 8; `jitter` (0 to 1) takes up to half off."""
    return _BACKOFFS[min(attempt, len(_BACKOFFS)) - 1] * (1 - jitter / 2)


def retry_delay(
    attempt: int,
    status: int,
    headers: Mapping[str, str],
    now: datetime,
    jitter: float,
    *,
    statuses: Collection[int] = RETRIED_STATUSES,
) -> float | None:
    """Seconds until an answered request is repeated; None if the answer is final.

    `x-should-retry` (OpenAI and Anthropic send it) decides over the status.
    """
    should_retry = headers.get("x-should-retry")
    if should_retry == "false" or (status not in statuses and should_retry != "true"):
        return None
    delay = read_retry_after(headers, now)
    if not delay:
        return backoff(attempt, jitter)
    return delay if delay <= LONGEST_WAIT else None


def overload_delay(status: int, headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds after which a server that refused because it is overloaded wants to be asked again; None if it does not say."""
    if status not in OVERLOADED or headers.get("x-should-retry") == "false":
        return None
    return read_retry_after(headers, now) or None


def read_retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that an answer asks to wait (RFC 9110, 10.2.3; OpenAI's retry-after-ms first); None if it does not.

    A date that has passed is 0. An unreadable header counts as missing.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    header = headers.get("Retry-After", "")
    seconds = _number(header)
    if seconds is not None or not header:
        return seconds
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - costs 5 ms, on first use

    try:
        date = parsedate_to_datetime(header)
        return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - now).total_seconds())
    except (ValueError, OverflowError):
        return None


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text) if text.isascii() and text.replace(".", "", 1).isdecimal() else None


class Fault(NamedTuple):
    """A way to get no answer: aiohttp's exception, our code, message and hint, and whether another attempt may help."""

    kind: type[Exception]
    code: str
    message: str
    hint: str
    again: bool


def find_fault(error: Exception) -> Fault:
    """Return the meaning of an aiohttp `ClientError` that came instead of an answer."""
    return next(fault for fault in _faults() if isinstance(error, fault.kind))


def is_closed_unanswered(error: Exception) -> bool:
    """Whether the connection was closed before a byte of an answer came, or reset.

    After a reset nobody can say whether the beginning of a head had come; a whole head had not.
    """
    import aiohttp  # noqa: PLC0415 - costs 100 ms, on first use

    if isinstance(error, aiohttp.ServerDisconnectedError):
        return isinstance(error.message, str)  # otherwise it is the part of a head that came
    return isinstance(error, aiohttp.ClientOSError | aiohttp.ClientConnectionResetError)


@cache
def _faults() -> tuple[Fault, ...]:
    """The first row that fits is the one."""
    import aiohttp  # noqa: PLC0415 - costs 100 ms, on first use

    return (
        Fault(
            aiohttp.ClientConnectorCertificateError,
            "unreachable",
            "its certificate is not trusted",
            "SSL_CERT_FILE can name the authority that signed it",
            again=False,
        ),
        Fault(
            aiohttp.ClientSSLError,
            "unreachable",
            "TLS failed",
            "does the server speak https, or only http?",
            again=False,
        ),
        Fault(
            aiohttp.ClientProxyConnectionError,
            "unreachable",
            "cannot connect to the proxy: {reason}",
            "look at HTTP_PROXY, HTTPS_PROXY and NO_PROXY",
            again=True,
        ),
        Fault(
            aiohttp.ClientHttpProxyError,
            "unreachable",
            "the proxy refused the connection",
            "look at HTTPS_PROXY and NO_PROXY",
            again=False,
        ),
        Fault(
            aiohttp.ClientConnectorDNSError,
            "unreachable",
            "no address for this host's name",
            "is the name right, and is there a network?",
            again=True,
        ),
        Fault(
            aiohttp.ClientConnectorError,
            "unreachable",
            "cannot connect: {reason}",
            "is the server running?",
            again=True,
        ),
        Fault(
            aiohttp.ConnectionTimeoutError,
            "timeout",
            "no connection within {connect:g} s",
            "is the server running, and can this machine reach it?",
            again=True,
        ),
        Fault(
            aiohttp.ServerTimeoutError,
            "timeout",
            "no answer within {idle:g} s",
            "if the model needs longer, raise idle_timeout",
            again=False,
        ),
        Fault(
            aiohttp.ClientConnectionError,
            "unreachable",
            "the connection was closed without an answer",
            "look at the server's log",
            again=True,
        ),
        Fault(
            aiohttp.ClientError, "malformed", "the answer is not HTTP", "is another service on this port?", again=False
        ),
    )

"""HTTP for providers: connections, proxies, timeouts, retries, and which parts of a URL may be shown.

Law: leaving an answer, however it happens, closes its connection unless the body was read to its end;
that is how a cancellation reaches the server. A request is repeated only before the caller gets its answer. If a
kept connection closes before an answer begins, the request is sent again and that does not count as an attempt.
Errors contain no header values and no queries of URLs.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, closing, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import SplitResult, urlsplit
from weakref import WeakSet

from callboard.core import Clock
from callboard.errors import CallboardError, CallerError, ProviderError
from callboard.providers.idle_limit import IdleLimit
from callboard.providers.retries import (
    RETRIED_STATUSES,
    Fault,
    backoff,
    find_fault,
    is_closed_unanswered,
    overload_delay,
    retry_delay,
)

if TYPE_CHECKING:
    from asyncio import BaseProtocol

    from aiohttp import ClientResponse, ClientSession, TCPConnector
    from aiohttp.connector import Connection

OnRetry: TypeAlias = Callable[[int, str, float], None]
"""Told before each retry: the number of the attempt that failed, why it did, the seconds until the next."""

_EXCERPT = 500
_LEAST, _MOST = 2 * 1024, 16 * 1024
"""Maximum bytes of the first chunk and of later chunks. Small chunks let events leave and other tasks run."""
_WHOLE = 1024 * 1024
"""Bytes of a body beyond which aiohttp warns."""
_SIGNS_OF_LIFE = ("/health", "/api/version")
"""Paths that local servers answer with 200 while they read a prompt: llama.cpp, vLLM and SGLang; Ollama."""
_PROBE_SECONDS = 10.0
_IS_KEPT: Final[ContextVar[bool]] = ContextVar("is_kept", default=False)
"""True if the connection on which this task sent its last request has been used before."""


class HttpResponse:
    """A server's answer. `headers` ignore case. `content_type` is lower case, without parameters.

    The body is read once, by `next_chunk` or by `read`. Both raise ProviderError: `timeout` if no byte came
    for the transport's idle timeout, `cut` if the connection broke before the body's end.
    """

    def __init__(
        self, response: ClientResponse, where: str, idle_limit: IdleLimit, retry_after: float | None = None
    ) -> None:
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers
        self.content_type = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        self._response = response
        self.where = where
        """The URL that answered, without user, password and query."""
        self.retry_after = retry_after
        """Seconds after which a server that is overloaded wants to be asked again."""
        self.idle_limit = idle_limit
        self._received = b""
        self._position = 0
        """Start of the next chunk in the received bytes."""
        self._size = _LEAST

    def close(self) -> None:
        """Close the connection, unless the body was read to its end."""
        self._response.close()

    async def next_chunk(self) -> bytes:
        """The body's next bytes, decompressed; none at its end. Their sizes mean nothing."""
        if self._position < len(self._received):
            await asyncio.sleep(0)
        else:
            self._received, self._position = await self._receive(), 0
        chunk = self._received[self._position : self._position + self._size]
        self._position += self._size
        if chunk:
            self._size = min(2 * self._size, _MOST)
        return chunk

    async def read(self, limit: int) -> bytes:
        """The whole body. Raises ProviderError with the code `too_large` if it has more than `limit` bytes."""
        pieces: list[bytes] = []
        size = 0
        while chunk := await self._receive():
            pieces.append(chunk)
            size += len(chunk)
            if size > limit:
                start = b"".join(pieces)[:_EXCERPT].decode(errors="replace")
                raise ProviderError(
                    f"the answer has more than {limit} bytes", code="too_large", excerpt=start, path=self.where
                )
        return b"".join(pieces)

    async def _receive(self) -> bytes:
        import aiohttp  # noqa: PLC0415 - costs 100 ms, on first use

        content = self._response.content
        try:
            if (chunk := content.read_nowait()) or content.at_eof():
                return chunk
            # aiohttp has such a timer too, but forgets it, and this reader, when a chunk's size is malformed
            async with self.idle_limit.watch():
                return await content.readany()
        except TimeoutError:
            raise ProviderError(
                f"nothing came for {self.idle_limit.seconds:g} s in the middle of the answer",
                code="timeout",
                path=self.where,
                hint="if the model needs longer, raise idle_timeout",
            ) from None
        except (aiohttp.ClientError, OSError):
            raise ProviderError(
                "the connection broke in the middle of the answer", code="cut", path=self.where
            ) from None


class Transport:
    """Connections to servers, kept alive between requests; made on first use, closed by `aclose`.

    `connect_timeout` is the maximum seconds to open a connection (name, TCP and TLS). `idle_timeout` is the maximum
    seconds of silence before and within an answer; the whole answer has no limit. `retries` is the maximum number of
    repetitions. `statuses` are the statuses to retry, by default RETRIED_STATUSES; with an empty set, every answer is
    final. Tests replace `sleep`, `jitter` (a number from 0 to 1) and `clock`.

    The environment's HTTP_PROXY, HTTPS_PROXY and NO_PROXY are obeyed, except that a loopback address is
    never asked for through a proxy. netrc is not read: its password would take the place of an API key.
    Redirects are not followed, they would carry keys to another host. Cookies are not kept.
    """

    def __init__(
        self,
        *,
        connect_timeout: float = 10.0,
        idle_timeout: float = 300.0,
        retries: int = 3,
        statuses: Collection[int] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        self._connect_timeout = connect_timeout
        self._idle_timeout = idle_timeout
        self._retries = retries
        self._statuses = RETRIED_STATUSES if statuses is None else statuses
        self._sleep = sleep
        self._jitter = jitter
        self._clock = clock
        self._session: ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._proxies: dict[tuple[str, str], str | None] = {}

    @asynccontextmanager
    async def post(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        on_retry: OnRetry | None = None,
        server: str = "",
    ) -> AsyncIterator[HttpResponse]:
        """Return the answer to a POST, while the `async with` lasts. Raises as `ask` does.

        Args:
            url: The URL.
            headers: The headers.
            body: The body.
            on_retry: Called before each retry.
            server: See `ask`.
        """
        with closing(
            await self.ask("POST", url, headers=headers, body=body, on_retry=on_retry, server=server)
        ) as answer:
            yield answer

    @asynccontextmanager
    async def get(
        self, url: str, *, headers: Mapping[str, str], on_retry: OnRetry | None = None
    ) -> AsyncIterator[HttpResponse]:
        """Return the answer to a GET, while the `async with` lasts. Raises as `ask` does.

        Args:
            url: The URL.
            headers: The headers.
            on_retry: Called before each retry.
        """
        with closing(await self.ask("GET", url, headers=headers, on_retry=on_retry)) as answer:
            yield answer

    async def connect(self, url: str) -> None:
        """Open a connection to the URL's host and close it. With a proxy, do nothing.

        Raises ProviderError with the code `unreachable` if the connection fails or times out, CallerError if `url` is not a URL.
        """
        parts = _split(url)
        if self._proxy(parts) is not None:
            return
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        try:
            async with asyncio.timeout(self._connect_timeout):
                _, writer = await asyncio.open_connection(parts.hostname, port)
        except OSError as error:  # a TimeoutError is one
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or "no connection"
            hint = "is the server running?"
            raise ProviderError(
                f"cannot connect: {why}", code="unreachable", path=_without_secrets(parts), hint=hint
            ) from None
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def aclose(self) -> None:
        """Close every connection. A request after it makes new ones."""
        session, self._session = self._session, None
        if session is not None and self._loop is asyncio.get_running_loop():
            await session.close()

    async def _is_alive(self, server: str) -> bool:
        for path in _SIGNS_OF_LIFE:
            with suppress(CallboardError, TimeoutError):
                async with asyncio.timeout(_PROBE_SECONDS), self.get(server + path, headers={}) as answer:
                    if answer.status == 200:
                        return True
        return False

    async def ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        on_retry: OnRetry | None = None,
        server: str = "",
    ) -> HttpResponse:
        """Return the answer to a request. The caller closes it.

        Connection failures and `statuses` are retried with growing pauses or those that Retry-After or retry-after-ms
        ask for, unless x-should-retry says otherwise. Every other status, and the last of those, is a response. If a
        kept connection closes without an answer, the request is sent again at once. That does not count as an attempt,
        and `on_retry` is not called.

        Args:
            method: The method.
            url: The URL.
            headers: The headers.
            body: The body.
            on_retry: Called before each retry.
            server: Root URL of a server. While it shows a sign of life, its silence has no limit, until the caller ends
                the patience of the answer's `idle_limit`.

        Raises ProviderError with the code `unreachable` (no connection, or it was closed without an answer), `timeout`,
        or `malformed` (the answer is not HTTP); CallerError if the URL or a header cannot be sent.
        """
        import aiohttp  # noqa: PLC0415 - costs 100 ms, on first use

        parts = _split(url)
        where = _without_secrets(parts)
        proxy = self._proxy(parts)
        idle_limit = IdleLimit(self._idle_timeout, partial(self._is_alive, server) if server else None)
        for attempt in count(1):
            try:
                response = await self._send(method, url, headers, body, proxy, idle_limit)
            except aiohttp.InvalidURL:
                raise _unsendable(where) from None
            except aiohttp.ClientError as error:
                fault = find_fault(error)
                failure = self._failure(error, fault, where)
                if not fault.again or attempt > self._retries:
                    raise failure from None
                why, pause = failure.message, backoff(attempt, self._jitter())
            except ValueError:
                raise _unsendable(where) from None
            else:
                delay = None
                if self._statuses:
                    delay = retry_delay(
                        attempt,
                        response.status,
                        response.headers,
                        self._clock(),
                        self._jitter(),
                        statuses=self._statuses,
                    )
                if delay is None or attempt > self._retries:
                    break
                response.close()
                why, pause = f"the server answered {response.status}", delay
            if on_retry is not None:
                on_retry(attempt, why, pause)
            await self._sleep(pause)
        again = overload_delay(response.status, response.headers, self._clock())
        return HttpResponse(response, where, idle_limit, again)

    async def _send(  # noqa: PLR0917  # called once
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        proxy: str | None,
        idle_limit: IdleLimit,
    ) -> ClientResponse:
        """Send one attempt: again at once, as often as a kept connection is closed before an answer begins.

        A server may close a kept connection at any time, and a request can cross that (RFC 9112, 9.5). llama.cpp
        announces Keep-Alive and closes after each streamed answer, so the next round of an agent always does. Checking
        the socket first does not help, because the close may still be under way. aiohttp sends again only once, and
        never sends a POST again.

        Sending again is safe even if the request crashed the server: no tool has run for the request, and no byte of
        a reply is known. Such a server also closes or refuses the new connection, and that is a failed attempt.

        The loop ends with a new connection at the latest: each pass takes a kept one out of the pool.
        """
        import aiohttp  # noqa: PLC0415 - costs 100 ms, on first use

        while True:
            data = body if body is None or len(body) <= _WHOLE else io.BytesIO(body)
            try:
                async with idle_limit.watch():
                    return await self._client().request(
                        method,
                        url,
                        headers=headers,
                        data=data,
                        proxy=proxy,
                        allow_redirects=False,
                    )
            except TimeoutError as error:
                if isinstance(error, aiohttp.ClientError):
                    raise
                raise aiohttp.SocketTimeoutError from None
            except aiohttp.ClientConnectionError as error:
                if not _IS_KEPT.get() or not is_closed_unanswered(error):
                    raise

    def _client(self) -> ClientSession:
        """The session of the running loop: a transport outlives an `asyncio.run`, connections do not."""
        import aiohttp  # noqa: PLC0415 - costs 100 ms, on first use

        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self._loop = loop
            self._session = aiohttp.ClientSession(
                connector=_connector()(),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(connect=self._connect_timeout, sock_read=None),
            )
        return self._session

    def _proxy(self, parts: SplitResult) -> str | None:
        origin = parts.scheme, parts.netloc
        if origin not in self._proxies:
            self._proxies[origin] = _proxy_of(parts)
        return self._proxies[origin]

    def _failure(self, error: Exception, fault: Fault, where: str) -> ProviderError:
        number = getattr(error, "errno", None)
        message = fault.message.format(
            reason=os.strerror(number) if number and number > 0 else "no connection",
            connect=self._connect_timeout,
            idle=self._idle_timeout,
        )
        return ProviderError(message, code=fault.code, path=where, hint=fault.hint)


@cache
def _connector() -> Callable[[], TCPConnector]:
    """Return a class of connectors that note in `_IS_KEPT` whether the connection of a request is a kept one."""
    import aiohttp  # noqa: PLC0415 - costs 100 ms, on first use

    class Connector(aiohttp.TCPConnector):
        def __init__(self) -> None:
            super().__init__(limit=0)
            self._used: WeakSet[BaseProtocol] = WeakSet()

        async def connect(self, *args: Any, **options: Any) -> Connection:
            _IS_KEPT.set(False)
            connection = await super().connect(*args, **options)
            if connection.protocol in self._used:
                _IS_KEPT.set(True)
            elif connection.protocol is not None:
                self._used.add(connection.protocol)
            return connection

    return Connector


@lru_cache(256)
def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0:
            return parts
    except ValueError:
        pass
    # The parts before an @ or after a ? may be secret.
    shown = re.sub(r"(?s)^(\w+://)?.*@", r"\1", re.split("[?#]", url, maxsplit=1)[0])
    hint = "it begins with http:// or https:// and a host" if "://" in url else f"did you mean http://{shown}?"
    raise CallerError("not a URL that a provider can be asked at", path=shown, hint=hint)


def check_url(url: str) -> None:
    """Raises CallerError if nobody can be asked at the URL."""
    _split(url)


def _unsendable(where: str) -> CallerError:
    """Says less than aiohttp, whose words may hold what must not be shown."""
    return CallerError(
        "the URL or a header cannot be sent",
        path=where,
        hint="is there a line break in the API key, or a password in the URL besides it?",
    )


def _without_secrets(parts: SplitResult) -> str:
    """The URL without user, password, query and fragment."""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _proxy_of(parts: SplitResult) -> str | None:
    """The proxy that the environment names; none for loopback, as in Go's ProxyFromEnvironment."""
    from ipaddress import ip_address  # noqa: PLC0415 - once an origin
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - costs 20 ms; aiohttp imports it too

    host = parts.hostname or ""
    try:
        loopback = ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if loopback or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxy = getproxies().get(parts.scheme)
    if proxy is None or proxy.startswith(("http://", "https://")):
        return proxy
    if "://" not in proxy:
        return f"http://{proxy}"
    raise CallerError(
        "only an http proxy can be used",
        path=f"{parts.scheme.upper()}_PROXY",
        hint=f"or name {host} in NO_PROXY",
    )

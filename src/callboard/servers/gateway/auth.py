"""Authenticate clients, and limit the requests of one key.

Laws: only digests of keys are stored; no error or log line contains a key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING

from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.settings import GatewaySettings
from callboard.servers.hosts import host_name

if TYPE_CHECKING:
    from callboard.servers.gateway.shared_limits import SharedLimits

MIN_KEY_LENGTH = 16
"""Minimum characters of a gateway key. A shorter key could be guessed."""
_MIN_SHOWN_LENGTH = 24
"""Minimum characters of a key for a log line to show ten of them."""
_REST_OF_DIGEST = re.compile(r"(?<=-[0-9a-f]{8})[0-9a-f]{56}\Z")
"""The end of a digest in a generated key name."""
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "[::1]"})


def digest(key: str) -> str:
    return sha256(key.encode(errors="surrogatepass")).hexdigest()


def mask_key(key: str) -> str:
    """Return a client's own key for a log line: `abcdef...wxyz`, or `***` if the key is short."""
    return f"{key[:6]}...{key[-4:]}" if len(key) >= _MIN_SHOWN_LENGTH else "***" if key else "none"


def short_owner(owner: str) -> str:
    """Return an owner for people to read: the key's name. An unnamed key is shown by the beginning of its digest."""
    return _REST_OF_DIGEST.sub("", owner)


class TokenBucket:
    """A token bucket that holds up to `rate` tokens and gains `rate` a minute. `clock` returns seconds."""

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self.rate = rate
        self._clock = clock
        self._tokens = max(rate, 1.0)
        self._at = clock()

    def take(self, parts: int = 1) -> float:
        """Take a token and return 0, or return the seconds until there is one. `parts` divides the rate."""
        now, rate = self._clock(), self.rate / parts
        self._tokens = min(max(rate, 1.0), self._tokens + (now - self._at) * rate / 60)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) * 60 / rate


class Caller:
    """The limits of one key. A request counts as open while the caller is entered as a context manager."""

    def __init__(self, name: str, bucket: TokenBucket | None, limit: int, shared: SharedLimits | None) -> None:
        self.name = name
        self._bucket = bucket
        self._shared = shared
        self._max_concurrent = limit
        self.open = 0
        self.sockets = 0

    def __enter__(self) -> None:
        """Raises an HttpError if too many requests of the key are open. `count` comes next."""
        self._check_open(self.open, "requests")
        self.open += 1

    def __exit__(self, *_: object) -> None:
        self.open -= 1

    @contextmanager
    def socket(self) -> Generator[None]:
        """Count an open WebSocket. Raises an HttpError if too many of the key are open. `count` comes next.

        As many WebSockets as requests may be open, in addition to them. Each message is a request of its own.
        """
        self._check_open(self.sockets, "WebSockets")
        self.sockets += 1
        try:
            yield
        finally:
            self.sockets -= 1

    async def count(self) -> None:
        """Count one request. Raises an HttpError if it exceeds the rate."""
        if self._bucket is None:
            return
        if wait := self._bucket.take() if self._shared is None else await self._shared.take(self.name, self._bucket):
            headers = {"retry-after": str(max(1, round(wait + 0.5)))}
            raise HttpError("rate_limit_exceeded", f"too many requests; try again in {wait:.1f}s", headers=headers)

    def _check_open(self, count: int, what: str) -> None:
        if self._max_concurrent and count >= self._max_concurrent:
            message = f"this key has {count} open {what}; the limit is {self._max_concurrent}"
            raise HttpError("rate_limit_exceeded", message, headers={"retry-after": "1"})


class Authenticator:
    """The keys, origins and hosts that may send requests. `shared` counts the requests of all gateways together."""

    def __init__(
        self, settings: GatewaySettings, clock: Callable[[], float], shared: SharedLimits | None = None
    ) -> None:
        self._digests = {name: held.encode() for name, held in settings.keys.items()}
        self._origins = frozenset(settings.origins)
        self._hosts = frozenset([host.lower() for host in settings.hosts])

        def caller(name: str) -> Caller:
            return Caller(
                name,
                TokenBucket(settings.requests_per_minute, clock) if settings.requests_per_minute else None,
                settings.max_concurrent,
                shared,
            )

        self._anyone = caller("")
        self._callers = {name: caller(name) for name in settings.keys}

    def authenticate(self, headers: Mapping[str, str], token: str) -> Caller:
        """Return the caller of a request. Raises an HttpError."""
        self.check_origin(headers)
        if not self._digests:
            return self._anyone
        if not token:
            raise HttpError("missing_api_key", "send a key: Authorization: Bearer KEY, x-api-key or x-goog-api-key")
        hashed = digest(token).encode()
        names = [name for name, held in self._digests.items() if compare_digest(hashed, held)]
        if not names:
            raise HttpError("invalid_api_key", "this key is not one of the gateway's keys")
        return self._callers[names[0]]

    def is_key(self, token: str) -> bool:
        hashed = digest(token).encode()
        return any(compare_digest(hashed, held) for held in self._digests.values())

    def owner(self, caller: Caller, token: str) -> str:
        """Return the owner of stored replies and learned facts.

        If the gateway has keys, the owner is the name of the key. Otherwise the owner depends on the key that the client
        sends for the backend. All clients without a key are one owner.

        Args:
            caller: The authenticated caller.
            token: The key that the client sent, "" for none.

        Returns:
            The owner's name, which is unique to the key.
        """
        if self._digests or not token:
            return caller.name
        return f"client-{digest(token)}"

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """Raises an HttpError if the web page's origin is not allowed, or the host name is not this gateway's."""
        origin = headers.get("origin")
        if origin is not None and origin not in self._origins:
            raise HttpError("origin_not_allowed", "web pages of this origin are not allowed; --origin allows one")
        value = headers.get("host", "")
        if self._hosts and ((host := host_name(value)) not in self._hosts or not host):
            raise HttpError("host_not_allowed", f"this gateway does not serve the host {host or value!r}")


def read_token(headers: Mapping[str, str]) -> str:
    """Return the client's key from Authorization (with or without Bearer), x-api-key or x-goog-api-key."""
    value = headers.get("authorization", "").strip()
    if value:
        scheme, _, rest = value.partition(" ")
        return rest.strip() if scheme.lower() == "bearer" else value
    return (headers.get("x-api-key") or headers.get("x-goog-api-key", "")).strip()

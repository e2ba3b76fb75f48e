"""The settings of a gateway, and their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias
from urllib.parse import urlsplit

import msgspec

from callboard.configuration.settings import Permissions
from callboard.profiles import Prices
from callboard.tools.descriptors import Count, Seconds

Amount: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]

_CREDENTIALS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})


class BackendSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One backend: an endpoint (`url`) or a local model (`local`)."""

    name: str = ""
    """Name in logs and metrics. By default host and port."""
    url: str = ""
    """URL up to the wire's path, such as `http://127.0.0.1:8080/v1`."""
    local: str = ""
    """A model of `callboard models list`, or a GGUF file."""
    wire: str = "chat"
    models: tuple[str, ...] = ("*",)
    """Name patterns of the models that it serves. `*` and `?` match no slash."""
    model_map: Mapping[str, str] = {}
    """The backend's model names by the names that clients use. It serves these in addition to `models`."""
    weight: Amount = 1.0
    """Weight in the random choice between backends of a model. The others are asked if it fails. 0 is never chosen."""
    key: str = ""
    key_variable: str = ""
    """The environment variable that holds the key."""
    forward_client_key: bool | None = None
    """True if the backend gets the client's key. Needs a backend and a gateway without keys. None means True for the
    only backend and False for one of several, because the client's key may be meant for another backend.
    """
    headers: Mapping[str, str] = {}
    """Headers to send with every request."""
    mode: str = ""
    """How to ask for calls. By default as the model's profile says."""
    dialect: str = ""
    """The dialect in which its models write calls in text."""
    profile: Mapping[str, Any] = {}
    """Facts about its models. They override all others."""

    @property
    def address(self) -> str:
        """Host and port, without user and password."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def display_url(self) -> str:
        """The URL without user and password."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{self.address}{parts.path}"

    @property
    def label(self) -> str:
        return self.name or self.local or self.address

    @property
    def has_own_key(self) -> bool:
        named = any(name.lower() in _CREDENTIALS for name in self.headers)
        return bool(self.key or self.key_variable or named or "@" in urlsplit(self.url).netloc)

    @property
    def facts(self) -> dict[str, Any]:
        """Facts of a profile from `profile` and `dialect`."""
        dialect = {"dialect": self.dialect, "watch": self.dialect} if self.dialect else {}
        return {**self.profile, **dialect}


class GatewayLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits for each client, and for all clients together."""

    body: Count = 16 * 1024 * 1024
    """Maximum bytes of one request, or of one message of a WebSocket."""
    values: Count = 250_000
    """Maximum values in the JSON of one request. Each takes more memory and time than its bytes."""
    items: Count = 20_000
    """Maximum items of one conversation."""
    content: Count = 16 * 1024 * 1024
    """Maximum bytes of one item."""
    instructions: Count = 1_000_000
    """Maximum characters of the instructions in a Responses body."""
    max_tokens: Count = 1_000_000
    """Maximum tokens that a client may ask for."""
    top_logprobs: Count = 20
    read_timeout: Seconds = 60.0
    """Seconds to wait for the next byte of a request's body."""
    idle_seconds: Seconds = 75.0
    """Seconds that a connection may wait for its next request."""
    socket_idle_seconds: Seconds = 1800.0
    """Seconds that a WebSocket may wait for its next message."""
    connections: Positive = 10_000
    """Maximum connections of one worker. Beyond it, requests are answered with 503."""
    held: Count = 512 * 1024 * 1024
    """Maximum bytes of the requests that one worker reads and answers at once."""


class GatewaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of a gateway."""

    backends: tuple[BackendSettings, ...]
    profiles: Mapping[str, Mapping[str, Any]] = {}
    """Facts of models by name pattern, as in callboard.toml. Facts of a backend override them."""
    limits: GatewayLimits = GatewayLimits()
    keys: Mapping[str, str] = {}
    """SHA-256 digests of the keys that clients may use, by name. If empty, every client is accepted."""
    prices: Mapping[str, Prices] = {}
    """Prices in US dollars per million tokens, by name pattern of models, as in callboard.toml."""
    budget_per_day: Amount = 0.0
    """Maximum US dollars for all requests of a day (UTC). 0 means no limit."""
    key_budgets: Mapping[str, Amount] = {}
    """Maximum US dollars a day for the requests of a key, by its name. `*` is for every key without its own entry."""
    idle_timeout: Seconds = 600.0
    """Maximum silence of a backend, in seconds. A large model may think for minutes before its first token."""
    heartbeat: Seconds = 10.0
    """Seconds of silence before a stream sends a sign of life. Clients and proxies give up after 30 or more."""
    shutdown_timeout: Amount = 30.0
    """Seconds that open replies have when the gateway stops."""
    failure_threshold: Positive = 5
    """Failures in a row after which a backend is not asked for a while."""
    recovery_seconds: Amount = 30.0
    """Seconds of that pause. Then one request tries the backend."""
    requests_per_minute: Amount = 0.0
    """Maximum requests of one key per minute. 0 means no limit."""
    max_concurrent: Count = 0
    """Maximum open requests of one key. 0 means no limit."""
    store: str = ""
    """The store of responses: `sqlite:///FILE` or `postgresql://...`. "" stores nothing."""
    store_age: Amount = 30 * 86400.0
    """Seconds after which a stored response is deleted."""
    store_size: Count = 1024 * 1024 * 1024
    """Maximum bytes of all stored responses. The oldest go first."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that may send requests."""
    hosts: tuple[str, ...] = ()
    """Host names that the gateway answers to. If empty, every name."""
    strict: bool = False
    """True if requests are refused when any part of them would be lost."""
    compat_events: bool = False
    """True if older names of the Responses events are sent in addition to the official ones."""
    ensembles: tuple[str, ...] = ()
    """Directories of tools that run in the gateway, or names of built-in ensembles."""
    permissions: Permissions = Permissions()
    """Permissions of those tools. Nobody can be asked here, so `ask` counts as no."""
    rounds: Positive = 16
    """Maximum replies of the model, within one reply to the client, that may call those tools."""

    @property
    def shares_limits(self) -> bool:
        """True if rates and breakers are shared with all gateways that use the same PostgreSQL database."""
        return self.store.startswith("postgres")

    @property
    def has_budgets(self) -> bool:
        return bool(self.budget_per_day or self.key_budgets)

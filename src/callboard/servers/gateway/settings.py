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
    """One backend: an endpoint (`url`) or a model of this machine (`local`)."""

    name: str = ""
    """In logs and metrics; else its host and port."""
    url: str = ""
    """Up to the wire's path, such as `http://127.0.0.1:8080/v1`."""
    local: str = ""
    """A model of `callboard models list`, or a GGUF file."""
    wire: str = "chat"
    models: tuple[str, ...] = ("*",)
    """Patterns of the models that it serves; `*` and `?` match no slash."""
    model_map: Mapping[str, str] = {}
    """The backend's names by those that clients use. It serves these besides `models`."""
    weight: Amount = 1.0
    """Of several that serve a model one is drawn by weight, and the others are asked if it fails; 0 is never drawn."""
    key: str = ""
    key_variable: str = ""
    """The environment variable that holds the key."""
    forward_client_key: bool | None = None
    """Whether it gets the key that a client sent, where neither it nor the gateway has keys. None means yes for the
    only backend, and no for one of several: the client's key may be meant for another of them.
    """
    headers: Mapping[str, str] = {}
    """Sent with every request."""
    mode: str = ""
    """How calls are asked for; else as the model's profile says."""
    dialect: str = ""
    """How its models write calls in text."""
    profile: Mapping[str, Any] = {}
    """Facts of its models, which win over all others."""

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
        """`profile` and `dialect` as facts of a profile."""
        dialect = {"dialect": self.dialect, "watch": self.dialect} if self.dialect else {}
        return {**self.profile, **dialect}


class GatewayLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bounds of what one client may send, and all clients together."""

    body: Count = 16 * 1024 * 1024
    """Bytes of one request, or of one message of a WebSocket."""
    values: Count = 250_000
    """Values in the JSON of one request: each takes memory and time that its bytes do not show."""
    items: Count = 20_000
    """Items of one conversation."""
    content: Count = 16 * 1024 * 1024
    """Bytes of one item."""
    instructions: Count = 1_000_000
    """Characters of a Responses body's instructions."""
    max_tokens: Count = 1_000_000
    """The largest number of tokens that a client may ask for."""
    top_logprobs: Count = 20
    read_timeout: Seconds = 60.0
    """Seconds without a byte in the middle of a request's body."""
    idle_seconds: Seconds = 75.0
    """Seconds that a connection may wait for its next request."""
    socket_idle_seconds: Seconds = 1800.0
    """Seconds that a WebSocket may wait for its next message."""
    connections: Positive = 10_000
    """Connections of one worker. If so many are open, requests are answered with 503."""
    held: Count = 512 * 1024 * 1024
    """Bytes of the requests that one worker reads and answers at once."""


class GatewaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A gateway."""

    backends: tuple[BackendSettings, ...]
    profiles: Mapping[str, Mapping[str, Any]] = {}
    """Facts of models by pattern, as in callboard.toml; those of a backend win."""
    limits: GatewayLimits = GatewayLimits()
    keys: Mapping[str, str] = {}
    """SHA-256 digests of the keys that clients may use, by name. Without any, every client may ask."""
    prices: Mapping[str, Prices] = {}
    """What a million tokens cost in US dollars, by patterns of models, as in callboard.toml."""
    budget_per_day: Amount = 0.0
    """US dollars that all requests of a day (UTC) may cost; 0 is no limit."""
    key_budgets: Mapping[str, Amount] = {}
    """US dollars that the requests of a key may cost in a day, by its name; `*` is for each key that is not named."""
    idle_timeout: Seconds = 600.0
    """The longest silence of a backend, in seconds: a large model may think for minutes before its first token."""
    heartbeat: Seconds = 10.0
    """Seconds after which a silent stream shows that it goes on. Clients and proxies give up after 30 or more."""
    shutdown_timeout: Amount = 30.0
    """Seconds that open replies have when the gateway stops."""
    failure_threshold: Positive = 5
    """Failures in a row that keep a backend from being asked."""
    recovery_seconds: Amount = 30.0
    """For so long; then one request tries."""
    requests_per_minute: Amount = 0.0
    """Of one key; 0 is no limit."""
    max_concurrent: Count = 0
    """Requests of one key at once; 0 is no limit."""
    store: str = ""
    """Where responses are stored: `sqlite:///FILE` or `postgresql://...`; "" for nowhere."""
    store_age: Amount = 30 * 86400.0
    """Seconds after which a stored response is deleted."""
    store_size: Count = 1024 * 1024 * 1024
    """Bytes of all stored responses; the oldest go first."""
    origins: tuple[str, ...] = ()
    """Web pages that may ask."""
    hosts: tuple[str, ...] = ()
    """Names that the gateway answers to; without any, every name."""
    strict: bool = False
    """Refuse requests of which something would be lost."""
    compat_events: bool = False
    """Send older names of the Responses events besides the official ones."""
    ensembles: tuple[str, ...] = ()
    """Directories of tools that run here, or names of built-in ensembles."""
    permissions: Permissions = Permissions()
    """Which of those tools may run. Nobody can be asked here: `ask` is no."""
    rounds: Positive = 16
    """Replies of a model, within one reply to the client, that may call them."""

    @property
    def has_budgets(self) -> bool:
        return bool(self.budget_per_day or self.key_budgets)

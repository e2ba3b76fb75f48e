"""The settings of a gateway, and their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias
from urllib.parse import urlsplit

import msgspec

from callboard.configuration.setting_keys import Permissions
from callboard.tools.descriptors import Count, Seconds

Amount: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]

_CREDENTIALS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})


class BackendSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One backend. `url` ends before the wire's path, such as `/v1`; or `local` names a model of this machine.

    It serves the models that one of `models` matches (`*` and `?` as in file names) or that `map` has: there the
    name that clients use leads to the backend's. Of several that serve a model one is drawn by `weight`, the others
    are asked where it fails; one of weight 0 is never drawn first. `key` is the key that it wants; `key_variable`
    names an environment variable that holds it. `mode`, `dialect` and `profile` (facts) override what is known of its models.
    """

    name: str = ""
    url: str = ""
    local: str = ""
    wire: str = "chat"
    models: tuple[str, ...] = ("*",)
    model_map: Mapping[str, str] = {}
    weight: Amount = 1.0
    key: str = ""
    key_variable: str = ""
    forward_client_key: bool | None = None
    """Whether it gets the key that a client sent, where it has none of its own and the gateway none either. None is
    yes for the only backend, whose key it must be, and no for one of several, which may not be those that it is for.
    """
    headers: Mapping[str, str] = {}
    mode: str = ""
    dialect: str = ""
    profile: Mapping[str, Any] = {}

    @property
    def address(self) -> str:
        """Its host and port, without a user and a password."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def display_url(self) -> str:
        """Its URL, without a user and a password."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{self.address}{parts.path}"

    @property
    def label(self) -> str:
        """What it is called in logs and figures."""
        return self.name or self.local or self.address

    @property
    def has_own_key(self) -> bool:
        """Whether anything of its settings says who asks."""
        named = any(name.lower() in _CREDENTIALS for name in self.headers)
        return bool(self.key or self.key_variable or named or "@" in urlsplit(self.url).netloc)

    @property
    def facts(self) -> dict[str, Any]:
        """What is said of its models, as a profile."""
        spelled = {"dialect": self.dialect, "watch": self.dialect} if self.dialect else {}
        return {**self.profile, **spelled}


class GatewayLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a client may send, and all clients together."""

    body: Count = 16 * 1024 * 1024
    """Bytes of one request, or of one message of a WebSocket."""
    values: Count = 250_000
    """Values in the JSON of one request: each takes memory and time that its bytes do not show."""
    items: Count = 20_000
    content: Count = 16 * 1024 * 1024
    """Bytes of one item."""
    instructions: Count = 1_000_000
    """Characters."""
    max_tokens: Count = 1_000_000
    top_logprobs: Count = 20
    read_timeout: Seconds = 60.0
    """Seconds that may pass in the middle of a request's body."""
    head_seconds: Seconds = 10.0
    """Seconds until a request's head is whole, or the rest of a body that nobody waits for any more."""
    idle_seconds: Seconds = 75.0
    """Seconds that a connection may wait for its next request."""
    socket_idle_seconds: Seconds = 1800.0
    """Seconds that a WebSocket may wait for its next message."""
    connections: Positive = 10_000
    """Connections of one worker; where there are more, those that wait for a request are ended, the oldest first."""
    held: Count = 512 * 1024 * 1024
    """Bytes of the requests that one worker reads and answers at once."""


class GatewaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A gateway.

    `keys` are the SHA-256 digests of the keys that clients may use, by their names; without any, every client
    may ask. `idle_timeout` is the longest silence of a backend, `heartbeat` the time after which a silent stream
    says that it goes on, `grace` how long a stopping gateway waits for open replies, all in seconds.
    `failures` in a row keep a backend from being asked for `pause` seconds. `rate` is the requests a minute that
    one key may make, `concurrency` those at once; 0 is no limit. `store` is the URL of a database where replies
    are kept, "" for none; `store_age` (seconds) and `store_size` (bytes) bound it. `origins` are the web pages
    that may ask, `hosts` the names that the gateway answers to, any if there are none. `strict` refuses what would
    lose something. `ensembles` are directories of tools that run here, or names of built-in ones; `permissions` say
    which of them may, and `ask` is no; `rounds` are the replies of a model in one reply that may call them. `profiles`
    are facts of models by pattern, as in callboard.toml; those of a backend override them.
    """

    backends: tuple[BackendSettings, ...]
    profiles: Mapping[str, Mapping[str, Any]] = {}
    limits: GatewayLimits = GatewayLimits()
    keys: Mapping[str, str] = {}
    idle_timeout: Seconds = 600.0
    heartbeat: Seconds = 10.0
    shutdown_timeout: Amount = 30.0
    failure_threshold: Positive = 5
    recovery_seconds: Amount = 30.0
    requests_per_minute: Amount = 0.0
    max_concurrent: Count = 0
    store: str = ""
    store_age: Amount = 30 * 86400.0
    store_size: Count = 1024 * 1024 * 1024
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    strict: bool = False
    compat_events: bool = False
    ensembles: tuple[str, ...] = ()
    permissions: Permissions = Permissions()
    rounds: Positive = 16

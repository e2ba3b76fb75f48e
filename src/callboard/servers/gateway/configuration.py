"""Load a gateway's settings from a TOML file and from flags. Flags override the file."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from callboard.configuration.settings import Permissions
from callboard.configuration.toml import read_document
from callboard.errors import CallerError, NoSuchModel
from callboard.extras import require_extra
from callboard.modes import make_plan
from callboard.profiles import resolve
from callboard.servers.gateway.auth import MIN_KEY_LENGTH, digest
from callboard.servers.gateway.settings import BackendSettings, GatewayLimits, GatewaySettings
from callboard.servers.gateway.spending import check_budgets
from callboard.tools.descriptors import Where, below, convert, convert_table, dotted_path, refuse_unknown
from callboard.wires import get_wire

_DIGEST = "sha256:"
_OF_ALL = frozenset({"mode", "dialect", "profile"})
"""Fields that flags set for every backend of a file."""
_FLAGS = {
    "wire": "--backend-wire",
    "key_variable": "--backend-key",
    "model_map": "--model-map",
    "forward_client_key": "--forward-client-key",
}
"""Flags that belong to one backend, by their fields."""


def load_gateway_settings(
    path: str, flags: Mapping[str, Any], backend: BackendSettings | None, fields: Mapping[str, Any] | None = None
) -> GatewaySettings:
    """Load the settings of a file ("" for none), with `flags` over it. A flag that is None or empty is not set.

    Only prices work the other way: the file's prices override `flags`, which come from the user's callboard.toml.
    `fields` override the fields of the file's backends.

    Raises:
        CallerError: A setting is wrong. The path names file, line and key.
    """
    values: dict[str, Any] = {}
    where: Where = dotted_path
    if path:
        document = read_document(Path(path), CallerError)
        where = document.where
        refuse_unknown(document.values, GatewaySettings.__struct_fields__, where, CallerError)
        values = dict(document.values)
    tables, there = values.pop("backends", []), below(where, "backends")
    if not isinstance(tables, list):
        raise CallerError("not a list of tables", path=there(()), hint="write [[backends]]")
    tables = [
        convert_table(BackendSettings, each, below(there, place), CallerError) for place, each in enumerate(tables)
    ]
    backends = [*_override(tables, fields or {}), *([] if backend is None else [backend])]
    if not backends:
        raise CallerError(
            "no backend", path="--backend", hint="set its URL, or --local NAME, or a file with [[backends]]"
        )
    for name, kind in (("limits", GatewayLimits), ("permissions", Permissions)):
        if name in values:
            values[name] = convert_table(kind, values[name], below(where, name), CallerError)
    flags = dict(flags)
    prices = flags.pop("prices", {})
    values |= {name: value for name, value in flags.items() if value not in (None, (), [], "", {})}
    settings: GatewaySettings = convert(GatewaySettings, {**values, "backends": ()}, where, CallerError)
    checked = tuple([_check(each) for each in backends])
    for each in checked:
        _check_forwarding(each, keyed=bool(settings.keys))
    settings = replace(
        settings,
        backends=checked,
        keys={name: _checked_digest(key) for name, key in settings.keys.items()},
        prices={**prices, **settings.prices},
    )
    check_budgets(settings)
    return settings


def parse_keys(options: Sequence[str]) -> dict[str, str]:
    """Parse key options: KEY, sha256:DIGEST, or NAME= followed by either. Return the keys by name.

    A key without a name is named after its digest, not its position. So it keeps what it owns when another key is
    removed.
    """
    keys: dict[str, str] = {}
    for each in options:
        name, equals, key = each.partition("=")
        named = bool(equals and key.strip("="))  # a key may itself end in =
        keys[name if named else f"key-{_digest_of(each)}"] = key if named else each
    return keys


def parse_key_digests(options: Sequence[str]) -> dict[str, str]:
    """Return the digests of `parse_keys`, by key name. Raises CallerError for a key that is too short."""
    return {name: _checked_digest(key) for name, key in parse_keys(options).items()}


def _override(backends: Sequence[BackendSettings], fields: Mapping[str, Any]) -> list[BackendSettings]:
    """Return the backends with these fields. Raises CallerError if a field needs exactly one backend."""
    if own := [name for name in fields if name not in _OF_ALL] if len(backends) > 1 else []:
        hint = f"set it in the [[backends]] table that it is for: there are {len(backends)}"
        raise CallerError("does not say which backend it is for", path=_FLAGS[own[0]], hint=hint)
    return [
        replace(
            each, **{**fields, **({"profile": {**each.profile, **fields["profile"]}} if "profile" in fields else {})}
        )
        for each in backends
    ]


def _digest_of(key: str) -> str:
    """Return the digest of a key, or the digest that is written as sha256:DIGEST."""
    return key.removeprefix(_DIGEST).lower() if key.startswith(_DIGEST) else digest(key)


def _checked_digest(key: str) -> str:
    hexadecimal = _digest_of(key)
    if key.startswith(_DIGEST):
        if len(hexadecimal) != 64 or not all(each in "0123456789abcdef" for each in hexadecimal):
            raise CallerError("not a digest", path="keys", hint="sha256: and 64 hexadecimal digits")
    elif len(key) < MIN_KEY_LENGTH:
        hint = f"at least {MIN_KEY_LENGTH} characters, such as this new one: {secrets.token_urlsafe(24)}"
        raise CallerError("too short for a key", path="keys", hint=hint)
    return hexadecimal


def _check_forwarding(backend: BackendSettings, *, keyed: bool) -> None:
    """Raises CallerError if a client's key is to be forwarded and there is no such key."""
    if not backend.forward_client_key:
        return
    path = f"forward_client_key of {backend.label}"
    if backend.local or backend.has_own_key:
        raise CallerError("no client key is needed", path=path, hint="the model is local or the backend has a key")
    if keyed:
        hint = "clients send the gateway's keys, which are never forwarded: set a key for the backend"
        raise CallerError("no client sends a key for this backend", path=path, hint=hint)


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _check(backend: BackendSettings) -> BackendSettings:
    shown = backend.url.rpartition("@")[2]  # leave out a password
    if bool(backend.url) == bool(backend.local):
        raise CallerError("a backend needs either a url or local", path=f"backends: {backend.name or shown}")
    if backend.url and not _is_url(backend.url):
        raise CallerError("not a URL", path=f"backends: {shown}", hint="such as http://127.0.0.1:8080/v1")
    get_wire(backend.wire)
    make_plan(resolve("a model", backend.facts), backend.mode)  # fail at start, not at the first request
    if backend.local:
        require_extra("local")
        if backend.local.endswith(".gguf") and not Path(backend.local).expanduser().is_file():
            hint = "name an existing GGUF file, or a model of `callboard models list` to download"
            raise NoSuchModel("no such file", path=backend.local, hint=hint)
        backend = replace(backend, wire="chat")
    if backend.key_variable and not backend.key:
        key = os.environ.get(backend.key_variable, "")
        if not key:
            raise CallerError("is not set", path=backend.key_variable, hint="set it to the backend's key")
        backend = replace(backend, key=key)
    return backend

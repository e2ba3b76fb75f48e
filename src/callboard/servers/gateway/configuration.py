"""Load a gateway's settings from a TOML file and from flags, which win."""

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
"""Fields that flags set for all backends of a file."""
_FLAGS = {
    "wire": "--backend-wire",
    "key_variable": "--backend-key",
    "model_map": "--model-map",
    "forward_client_key": "--forward-client-key",
}
"""The flags of the others, which are one backend's."""


def load_gateway_settings(
    path: str, flags: Mapping[str, Any], backend: BackendSettings | None, fields: Mapping[str, Any] | None = None
) -> GatewaySettings:
    """The settings of a file ("" for none) with `flags` above it; a flag that is None or empty is not set.

    Prices alone are below the file's: they are those of the user's callboard.toml. `fields` override those of the
    file's backends.

    Raises:
        CallerError: A setting is wrong; the path has file, line and key.
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
            "no backend", path="--backend", hint="give its URL, or --local NAME, or a file with [[backends]]"
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
    """Keys from flags: KEY, sha256:DIGEST, or NAME=either; the keys by their names.

    A key without a name is called by its digest, not by its place: what it owns is still its own when another key is
    taken away.
    """
    keys: dict[str, str] = {}
    for each in options:
        name, equals, key = each.partition("=")
        named = bool(equals and key.strip("="))  # a key may end in = itself
        keys[name if named else f"key-{_digest_of(each)}"] = key if named else each
    return keys


def parse_key_digests(options: Sequence[str]) -> dict[str, str]:
    """The digests of `parse_keys`, by the keys' names. Raises CallerError for a key that is too short."""
    return {name: _checked_digest(key) for name, key in parse_keys(options).items()}


def _override(backends: Sequence[BackendSettings], fields: Mapping[str, Any]) -> list[BackendSettings]:
    """The backends with these fields instead. Raises CallerError for a field that is one backend's alone."""
    if own := [name for name in fields if name not in _OF_ALL] if len(backends) > 1 else []:
        hint = f"write it into its [[backends]], of which there are {len(backends)}"
        raise CallerError("it does not say which backend it is for", path=_FLAGS[own[0]], hint=hint)
    return [
        replace(
            each, **{**fields, **({"profile": {**each.profile, **fields["profile"]}} if "profile" in fields else {})}
        )
        for each in backends
    ]


def _digest_of(key: str) -> str:
    """What is kept of a key that is one, or a digest of one."""
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
    """Raises CallerError where a client's key is to be passed on, and there can be none."""
    if not backend.forward_client_key:
        return
    path = f"forward_client_key of {backend.label}"
    if backend.local or backend.has_own_key:
        raise CallerError("it needs no client's key", path=path, hint="a model of this machine, or a key of its own")
    if keyed:
        hint = "clients send the gateway's keys, which no backend gets: give the backend a key of its own"
        raise CallerError("no client sends a key for it", path=path, hint=hint)


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _check(backend: BackendSettings) -> BackendSettings:
    shown = backend.url.rpartition("@")[2]  # without a password
    if bool(backend.url) == bool(backend.local):
        raise CallerError("a backend has a url, or is local", path=f"backends: {backend.name or shown}")
    if backend.url and not _is_url(backend.url):
        raise CallerError("not a URL", path=f"backends: {shown}", hint="such as http://127.0.0.1:8080/v1")
    get_wire(backend.wire)
    make_plan(resolve("a model", backend.facts), backend.mode)  # refuses what there is not, before anybody asks
    if backend.local:
        require_extra("local")
        if backend.local.endswith(".gguf") and not Path(backend.local).expanduser().is_file():
            hint = "name a GGUF file that is here, or a model of `callboard models list`, which is downloaded"
            raise NoSuchModel("no such file", path=backend.local, hint=hint)
        backend = replace(backend, wire="chat")
    if backend.key_variable and not backend.key:
        key = os.environ.get(backend.key_variable, "")
        if not key:
            raise CallerError("is not set", path=backend.key_variable, hint="it is to hold the backend's key")
        backend = replace(backend, key=key)
    return backend

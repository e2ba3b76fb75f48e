"""Tell the user where facts of callboard.toml were found out of another backend than the one that is asked.

Only models whose facts `callboard doctor --write` wrote are compared, by a few short requests at the start of a command
that opens them. Nothing is changed by it: the facts hold until the doctor asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec

from callboard.profiles import Examination
from callboard.profiles.remarks import EXAMINED
from callboard.providers import FallbackModel, HttpModel, Transport
from callboard.providers.backend_info import describe_change, embedded_version, read_backend_info, read_server_pages
from callboard.providers.registry import PlannedModel
from callboard.servers.gateway import BackendSettings
from callboard.text.display import display
from callboard.wires import get_wire

Tell: TypeAlias = Callable[[str], None]
_LOCAL: Final = "local:"


async def compare_model(model: PlannedModel, tell: Tell) -> None:
    """Compare what the facts of a model, or of each of a chain, were found out of with what it is asked at."""
    models = model.models if isinstance(model, FallbackModel) else (model,)
    for change in await asyncio.gather(*[_compare(each) for each in models if isinstance(each, HttpModel)]):
        if change:
            tell(change)


async def compare_backend(
    backend: BackendSettings, profiles: Mapping[str, Mapping[str, Any]], transport: Transport, tell: Tell
) -> None:
    """Compare a backend of the gateway with what the facts of its models were found out of."""
    url = f"{_LOCAL}{backend.local}" if backend.local else backend.url
    pages = None
    for pattern, row in profiles.items():
        examined = msgspec.convert(row.get(EXAMINED, {}), Examination)
        asked_at = _Asked(url, pattern)
        # Which models another backend has is not known before a client asks for one.
        if not examined.version or _describe_change(asked_at, examined, ""):
            continue
        if not asked_at.is_local and pages is None:  # once for all models
            headers = {**backend.headers, **get_wire(backend.wire).headers(backend.key)}
            pages = await read_server_pages(transport, url, headers)
        version = embedded_version() if pages is None else pages.describe(pattern).version
        if change := _describe_change(asked_at, examined, version):
            tell(change)


class _Asked(NamedTuple):
    """Where a model is asked."""

    url: str
    model: str

    @property
    def display_url(self) -> str:
        """The URL without user and password."""
        if self.is_local:
            return self.url
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def is_local(self) -> bool:
        return self.url.startswith(_LOCAL)


async def _compare(model: HttpModel) -> str:
    """What has changed since the model was examined; "" for nothing, and for a model that was not."""
    examined = model.resolution.examined
    if examined is None:
        return ""
    name = model.resolution.model
    is_local = model.resolution.provider == "local"
    asked_at = _Asked(f"{_LOCAL}{name}" if is_local else model.base_url, name)
    change = _describe_change(asked_at, examined, "")
    if change or not examined.version:
        return change
    if is_local:
        return _describe_change(asked_at, examined, embedded_version())
    info = await read_backend_info(model.transport, model.base_url, model.headers, name)
    return _describe_change(asked_at, examined, info.version)


def _describe_change(asked_at: _Asked, examined: Examination, version: str) -> str:
    """Why the facts may not hold for what is asked, with the command that asks again; "" if they do."""
    url, model = asked_at.display_url, asked_at.model
    change = describe_change(examined, url, version)
    if not change:
        return ""
    where = f"--local {url.removeprefix(_LOCAL)}" if asked_at.is_local else f"--backend {url} --model {model}"
    return display(f"the facts of {model} in callboard.toml: {change}; callboard doctor {where} --write asks again")

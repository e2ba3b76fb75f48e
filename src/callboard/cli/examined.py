"""Tell the user where facts of callboard.toml were found out of another backend than the one that is asked.

Only models whose facts `callboard doctor --write` wrote are compared, by a few short requests at the start of a command
that opens them. Nothing is changed by it: the facts hold until the doctor asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from callboard.text.display import display

if TYPE_CHECKING:
    from callboard.profiles import Examination
    from callboard.providers import Transport
    from callboard.providers.registry import PlannedModel
    from callboard.servers.gateway import BackendSettings

Tell: TypeAlias = Callable[[str], None]
_LOCAL: Final = "local:"


async def compare_model(model: PlannedModel, tell: Tell) -> None:
    """Compare what the facts of a model, or of each of a chain, were found out of with what it is asked at."""
    from callboard.providers import FallbackModel, HttpModel  # noqa: PLC0415  # not for --help

    for each in model.models if isinstance(model, FallbackModel) else (model,):
        if isinstance(each, HttpModel) and (examined := each.resolution.examined) is not None:
            name = each.resolution.model
            if each.resolution.provider == "local":
                await _compare(_Asked(f"{_LOCAL}{name}", name), examined, each.transport, tell)
            else:
                asked_at = _Asked(each.base_url, name, each.headers)
                await _compare(asked_at, examined, each.transport, tell)


async def compare_backend(
    backend: BackendSettings, profiles: Mapping[str, Mapping[str, Any]], transport: Transport, tell: Tell
) -> None:
    """Compare a backend of the gateway with what the facts of its models were found out of."""
    import msgspec  # noqa: PLC0415  # not for --help

    from callboard.profiles import Examination  # noqa: PLC0415
    from callboard.profiles.remarks import EXAMINED  # noqa: PLC0415
    from callboard.wires import get_wire  # noqa: PLC0415

    url = f"{_LOCAL}{backend.local}" if backend.local else backend.url
    headers = {**backend.headers, **get_wire(backend.wire).headers(backend.key)}
    for pattern, row in profiles.items():
        examined = msgspec.convert(row.get(EXAMINED, {}), Examination)
        asked_at = _Asked(url, pattern, headers)
        # Which models another backend has is not known before a client asks for one.
        if examined.version and not _describe_other(examined, asked_at):
            await _compare(asked_at, examined, transport, tell)


class _Asked(NamedTuple):
    """Where a model is asked."""

    url: str
    model: str
    headers: Mapping[str, str] = MappingProxyType({})

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


def _describe_other(examined: Examination, asked_at: _Asked) -> str:
    """Why another backend than the examined one is asked, "" if it is that one."""
    from callboard.providers.backend_info import describe_change  # noqa: PLC0415  # not for --help

    return describe_change(examined, asked_at.display_url, "")


async def _compare(asked_at: _Asked, examined: Examination, transport: Transport, tell: Tell) -> None:
    from callboard.providers.backend_info import (  # noqa: PLC0415  # not for --help
        describe_change,
        embedded_version,
        read_backend_info,
    )

    url, model = asked_at.display_url, asked_at.model
    change = _describe_other(examined, asked_at)
    if not change and examined.version:
        info = None if asked_at.is_local else await read_backend_info(transport, asked_at.url, asked_at.headers, model)
        change = describe_change(examined, url, embedded_version() if info is None else info.version)
    if change:
        where = f"--local {url.removeprefix(_LOCAL)}" if asked_at.is_local else f"--backend {url} --model {model}"
        tell(display(f"the facts of {model} in callboard.toml: {change}; callboard doctor {where} --write asks again"))

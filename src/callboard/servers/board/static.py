"""The files that pages load: one sheet of styles, one script and the icon, all ours and in the package.

Their addresses hold the digest of their content, so that a browser keeps them for good and a new release brings others.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from types import MappingProxyType
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {"board.css": "text/css", "board.js": "text/javascript", "icon.svg": "image/svg+xml"}
)
_KEEP: Final = "public, max-age=31536000, immutable"


class Asset(NamedTuple):
    """A file: its path below the board's own, its content and its type."""

    path: str
    content: bytes
    media_type: str


def _read(name: str) -> Asset:
    content = (files("callboard.servers.board") / "static" / name).read_bytes()
    return Asset(f"/static/{sha256(content).hexdigest()[:12]}/{name}", content, TYPES[name])


ASSETS: Final[Mapping[str, Asset]] = MappingProxyType({name: _read(name) for name in TYPES})
_BY_PATH: Final = {asset.path: asset for asset in ASSETS.values()}


async def send_asset(request: Request) -> Response:
    """The file of an address; one of another release is not here."""
    asset = _BY_PATH.get(f"/static/{request.path_params['path']}")
    if asset is None:
        return PlainTextResponse("there is no such file", 404)
    return Response(asset.content, media_type=asset.media_type, headers={"cache-control": _KEEP})

"""What a server gave us when its user logged in.

Owns the file of tokens, and how the SDK's OAuth client is made of it. Knows nothing of browsers.
Law: tokens are for the URL that they were given for and no other; the file is for its owner alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from callboard.errors import CallerError
from callboard.mcp.failure import ServerFailure
from callboard.mcp.settings import ServerSettings
from callboard.mcp.state import file_name, state_directory, write_private

if TYPE_CHECKING:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

CLIENT_NAME: Final = "callboard"


class Kept(msgspec.Struct):
    """What is in the file: the SDK's values as their JSON; `expires_at` in seconds since 1970."""

    url: str
    tokens: Mapping[str, Any] | None = None
    client: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    resource: Mapping[str, Any] | None = None
    expires_at: float | None = None


class TokenFile:
    """The SDK's TokenStorage for one server; `kept` is what was in the file, if that was for this URL."""

    def __init__(self, settings: ServerSettings, directory: Path | None = None) -> None:
        self.path = (directory or state_directory() / "tokens") / f"{file_name(settings.name)}.json"
        self.kept = self._read(settings.url)

    def forget(self) -> None:
        self.kept = Kept(self.kept.url)
        self.path.unlink(missing_ok=True)

    def keep_metadata(self, provider: OAuthClientProvider) -> None:
        """Keeps where tokens are renewed, which the provider has found out."""
        context = provider.context
        self.kept.metadata = _json(context.oauth_metadata)
        self.kept.resource = _json(context.protected_resource_metadata)
        self._write()

    async def get_tokens(self) -> OAuthToken | None:
        from mcp.shared.auth import OAuthToken  # noqa: PLC0415  # the SDK's

        return OAuthToken.model_validate(self.kept.tokens) if self.kept.tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.kept.tokens = _json(tokens)
        self.kept.expires_at = None if tokens.expires_in is None else time.time() + int(tokens.expires_in)
        self._write()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        from mcp.shared.auth import OAuthClientInformationFull  # noqa: PLC0415  # the SDK's

        return OAuthClientInformationFull.model_validate(self.kept.client) if self.kept.client else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.kept.client = _json(client_info)
        self._write()

    def _read(self, url: str) -> Kept:
        try:
            kept = msgspec.json.decode(self.path.read_bytes(), type=Kept)
        except FileNotFoundError:
            return Kept(url)
        except msgspec.MsgspecError as error:
            raise CallerError(f"not a file of tokens: {error}", path=str(self.path), hint="delete it") from None
        return kept if kept.url == url else Kept(url)

    def _write(self) -> None:
        write_private(self.path, msgspec.json.encode(self.kept))


def stored_auth(settings: ServerSettings, directory: Path | None = None) -> OAuthClientProvider | None:
    """The authentication of a server whose user has logged in; it renews the tokens, and asks nobody.

    None where nobody has, and for a server that is a program.
    """
    if settings.transport != "http":
        return None
    file = TokenFile(settings, directory)
    if not file.kept.tokens:
        return None
    from mcp.client.auth import OAuthClientProvider  # noqa: PLC0415  # the SDK's
    from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata, ProtectedResourceMetadata  # noqa: PLC0415

    async def refuse(*_: str) -> Any:
        raise ServerFailure(
            "its login is over", path=settings.name, hint=f"callboard mcp login {settings.name}", hopeless=True
        )

    client = {"client_name": CLIENT_NAME, "redirect_uris": None, **(file.kept.client or {})}
    metadata = OAuthClientMetadata.model_validate(
        {key: client[key] for key in ("client_name", "redirect_uris", "scope") if key in client}
    )
    provider = OAuthClientProvider(settings.url, metadata, file, redirect_handler=refuse, callback_handler=refuse)
    provider.context.token_expiry_time = file.kept.expires_at
    if file.kept.metadata:
        provider.context.oauth_metadata = OAuthMetadata.model_validate(file.kept.metadata)
    if file.kept.resource:
        provider.context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(file.kept.resource)
    return provider


def _json(value: Any) -> dict[str, Any] | None:
    given: dict[str, Any] | None = None if value is None else value.model_dump(mode="json", exclude_none=True)
    return given

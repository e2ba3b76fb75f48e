"""What a server gave us when its user logged in.

Owns the file of tokens, and how requests are signed and tokens renewed with it. Knows nothing of browsers.
Laws: tokens are for the URL that they were given for and no other; the file is for its owner alone; of several
processes one renews, under a lock, and the others take what it got: a server may take each refresh token only once,
and end the login when it sees one again.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin

import msgspec

from callboard.errors import CallerError
from callboard.mcp.environment import resolved
from callboard.mcp.errors import ServerFailure
from callboard.mcp.identity import file_name
from callboard.mcp.settings import ServerSettings
from callboard.storage.atomic_file import write_private
from callboard.storage.directories import state_directory

if TYPE_CHECKING:
    import httpx2
    from mcp.client.auth import OAuthClientProvider
    from mcp.client.auth.oauth2 import OAuthContext
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

CLIENT_NAME: Final = "callboard"
_MAX_ANSWER: Final = 256 * 1024
_LOOK: Final = 0.05
"""Seconds between two tries at a lock that another process has."""


class Kept(msgspec.Struct):
    """What is in the file: the SDK's values as their JSON; `expires_at` in seconds since 1970.

    `missing_scope` is what a request was refused for; the next login asks for it too.
    """

    url: str
    tokens: Mapping[str, Any] | None = None
    client: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    resource: Mapping[str, Any] | None = None
    expires_at: float | None = None
    missing_scope: str = ""


class TokenFile:
    """The SDK's TokenStorage for one server; `kept` is what was in the file, if that was for this URL.

    What the SDK sets is in the file after `save`.
    """

    def __init__(self, settings: ServerSettings, directory: Path | None = None) -> None:
        self.path = (directory or state_directory() / "mcp" / "tokens") / f"{file_name(settings.name)}.json"
        self._url = settings.url
        self.kept = Kept(settings.url)
        self.load()

    @property
    def access_token(self) -> str:
        return str((self.kept.tokens or {}).get("access_token", ""))

    @property
    def is_expired(self) -> bool:
        return self.kept.expires_at is not None and self.kept.expires_at <= time.time()

    def load(self) -> None:
        """Raises CallerError for a file that is none."""
        try:
            kept = msgspec.json.decode(self.path.read_bytes(), type=Kept)
        except FileNotFoundError:
            kept = Kept(self._url)
        except msgspec.MsgspecError as error:
            raise CallerError(f"not a file of tokens: {error}", path=str(self.path), hint="delete it") from None
        self.kept = kept if kept.url == self._url else Kept(self._url)

    def save(self) -> None:
        write_private(self.path, msgspec.json.encode(self.kept))

    def take_metadata(self, provider: OAuthClientProvider) -> None:
        """Takes where tokens are renewed, which the provider has found out."""
        context = provider.context
        self.kept.metadata = _json(context.oauth_metadata)
        self.kept.resource = _json(context.protected_resource_metadata)

    @asynccontextmanager
    async def locked(self) -> AsyncGenerator[None]:
        """While it is entered, no other process changes the file."""
        try:
            import fcntl  # noqa: PLC0415  # not on Windows, where two processes are not kept apart
        except ImportError:
            yield
            return
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.path.with_suffix(".lock").open("ab") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(_LOOK)
            yield

    async def get_tokens(self) -> OAuthToken | None:
        from mcp.shared.auth import OAuthToken  # noqa: PLC0415  # the SDK's

        return OAuthToken.model_validate(self.kept.tokens) if self.kept.tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.kept.tokens = _json(tokens)
        self.kept.expires_at = None if tokens.expires_in is None else time.time() + int(tokens.expires_in)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        from mcp.shared.auth import OAuthClientInformationFull  # noqa: PLC0415  # the SDK's

        return OAuthClientInformationFull.model_validate(self.kept.client) if self.kept.client else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.kept.client = _json(client_info)


def registered_client(settings: ServerSettings, environ: Mapping[str, str]) -> dict[str, Any]:
    """The client of the settings, as the SDK's values have it; nothing where the server registers us itself."""
    if not settings.client_id:
        return {}
    given = {"client_secret": settings.client_secret} if settings.client_secret else {}
    secret = resolved(given, environ, f"mcp.{settings.name}")
    method = "client_secret_basic" if secret else "none"
    return {"client_id": settings.client_id, **secret, "token_endpoint_auth_method": method}


def choose_method(context: OAuthContext) -> None:
    """A client with a secret shows it as the server wants it; all servers have to take HTTP Basic (RFC 6749, 2.3.1)."""
    metadata, client = context.oauth_metadata, context.client_info
    offered = (metadata and metadata.token_endpoint_auth_methods_supported) or ()
    if client and client.token_endpoint_auth_method == "client_secret_basic" and "client_secret_post" in offered:  # noqa: S105
        client.token_endpoint_auth_method = "client_secret_post"  # noqa: S105


def stored_auth(settings: ServerSettings, directory: Path | None = None) -> httpx2.Auth | None:
    """The authentication of a server whose user has logged in; it renews the tokens, and asks nobody.

    None where nobody has, and for a server that is a program.
    """
    if settings.transport != "http":
        return None
    file = TokenFile(settings, directory)
    if not file.kept.tokens:
        return None
    import httpx2  # noqa: PLC0415  # the SDK's

    signing = _Signing(settings, file)
    made: httpx2.Auth = type("StoredAuth", (httpx2.Auth,), {"async_auth_flow": staticmethod(signing.flow)})()
    return made


class _Signing:
    """Signs requests with what is in the file."""

    def __init__(self, settings: ServerSettings, file: TokenFile) -> None:
        self._settings = settings
        self._file = file

    async def flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """As of `httpx2.Auth.async_auth_flow`. Raises ServerFailure when the login is over."""
        refused = ""
        for _ in range(2):
            self._file.load()
            if self._is_due(refused):
                async with self._file.locked():
                    self._file.load()  # another process may have renewed it meanwhile
                    if self._is_due(refused) and (renewal := self._renewal(request)) is not None:
                        await self._renewed(renewal, (yield renewal))
            if self._file.access_token in ("", refused):
                break
            refused = self._file.access_token
            request.headers["Authorization"] = f"Bearer {refused}"
            response = yield request
            if response.status_code != 401:
                self._note_scope(response)
                return
            _limit_body(response)
        raise self._over()

    def _is_due(self, refused: str) -> bool:
        return self._file.is_expired or self._file.access_token == refused

    def _renewal(self, request: httpx2.Request) -> httpx2.Request | None:
        """The request that renews the tokens; None where there is nothing to renew them with."""
        import httpx2  # noqa: PLC0415  # the SDK's

        refresh = (self._file.kept.tokens or {}).get("refresh_token")
        context = self._context()
        if not refresh or context.client_info is None:
            return None
        form = {"grant_type": "refresh_token", "refresh_token": refresh, "client_id": context.client_info.client_id}
        if context.should_include_resource_param(request.headers.get("mcp-protocol-version")):
            form["resource"] = context.get_resource_url()
        form, headers = context.prepare_token_auth(form, {"Content-Type": "application/x-www-form-urlencoded"})
        base = context.get_authorization_base_url(self._settings.url)
        url = context.oauth_metadata.token_endpoint if context.oauth_metadata else urljoin(base, "/token")
        return httpx2.Request("POST", str(url), data=form, headers=headers)

    async def _renewed(self, renewal: httpx2.Request, response: httpx2.Response) -> None:
        from mcp.shared.auth import OAuthToken  # noqa: PLC0415  # the SDK's

        _limit_body(response)
        body = await response.aread()
        if response.status_code != 200:
            before = self._file.access_token
            self._file.load()
            if self._file.access_token != before:
                return
            if response.status_code in (400, 401):
                raise self._over()
            where = renewal.url.copy_with(query=None)
            raise ServerFailure(f"its login cannot be renewed: HTTP {response.status_code} from {where}")
        before_that = self._file.kept.tokens or {}
        tokens = {key: before_that[key] for key in ("refresh_token", "scope") if before_that.get(key)}
        await self._file.set_tokens(OAuthToken.model_validate({**tokens, **msgspec.json.decode(body)}))
        self._file.save()

    def _context(self) -> OAuthContext:
        from mcp.client.auth.oauth2 import OAuthContext  # noqa: PLC0415  # the SDK's
        from mcp.shared import auth  # noqa: PLC0415

        kept = self._file.kept
        about = auth.OAuthClientMetadata(client_name=CLIENT_NAME, redirect_uris=None)
        context = OAuthContext(self._settings.url, about, self._file, None, None)
        client = {"redirect_uris": None, **(kept.client or {}), **registered_client(self._settings, os.environ)}
        if "client_id" in client:
            context.client_info = auth.OAuthClientInformationFull.model_validate(client)
        if kept.metadata:
            context.oauth_metadata = auth.OAuthMetadata.model_validate(kept.metadata)
        if kept.resource:
            context.protected_resource_metadata = auth.ProtectedResourceMetadata.model_validate(kept.resource)
        choose_method(context)
        return context

    def _note_scope(self, response: httpx2.Response) -> None:
        missing = missing_scope(response)
        if missing and missing != self._file.kept.missing_scope:
            self._file.kept.missing_scope = missing
            self._file.save()

    def _over(self) -> ServerFailure:
        name = self._settings.name
        hint = f"`callboard mcp login {shlex.quote(name)}`"
        return ServerFailure("its login is over", path=name, hint=hint, hopeless=True)


def missing_scope(response: httpx2.Response) -> str:
    """The scope for want of which a request was refused (RFC 6750, 3.1); nothing where it was not."""
    from mcp.client.auth.utils import extract_field_from_www_auth  # noqa: PLC0415  # the SDK's

    if response.status_code != 403 or extract_field_from_www_auth(response, "error") != "insufficient_scope":
        return ""
    return extract_field_from_www_auth(response, "scope") or ""


def _limit_body(response: httpx2.Response) -> None:
    """Ends an answer that httpx2 reads whole before the next request, for a server may send one without end."""
    import httpx2  # noqa: PLC0415  # the SDK's

    endless = response.stream

    class Limited(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = _MAX_ANSWER
            async for piece in endless:  # type: ignore[union-attr]  # the client is asynchronous
                left -= len(piece)
                if left < 0:
                    raise ServerFailure(f"its answer about the login has more than {_MAX_ANSWER} bytes")
                yield piece

        async def aclose(self) -> None:
            await endless.aclose()  # type: ignore[union-attr]

    response.stream = Limited()


def joined_scopes(*scopes: str) -> str:
    """All of them, each once, in their order."""
    return " ".join(dict.fromkeys(" ".join(scopes).split()))


def _json(value: Any) -> dict[str, Any] | None:
    given: dict[str, Any] | None = None if value is None else value.model_dump(mode="json", exclude_none=True)
    return given

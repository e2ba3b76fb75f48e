"""The stored tokens of a server: sign requests with them, and renew them.

Laws: tokens are sent only to the URL that they were issued for. Only the owner can read the file. One process renews
under a lock, and others use its result: a server may accept each refresh token only once, and end the login when it
sees a token again.
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
from callboard.mcp.errors import ServerFailure
from callboard.mcp.settings import ServerSettings, file_name, resolve_variables
from callboard.storage.atomic_file import VERSION, check_version, write_private
from callboard.storage.directories import state_directory

if TYPE_CHECKING:
    import httpx2
    from mcp.client.auth import OAuthClientProvider
    from mcp.client.auth.oauth2 import OAuthContext
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

CLIENT_NAME: Final = "callboard"
_MAX_ANSWER: Final = 256 * 1024
_LOCK_POLL_SECONDS: Final = 0.05
"""Seconds between attempts to get a lock that another process holds."""


class StoredLogin(msgspec.Struct):
    """Content of the file: the SDK's values as JSON. `expires_at` is in seconds since 1970.

    `missing_scope` is the scope that a refused request lacked. The next login asks for it too.
    """

    url: str
    tokens: Mapping[str, Any] | None = None
    client: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    resource: Mapping[str, Any] | None = None
    expires_at: float | None = None
    missing_scope: str = ""
    version: int = VERSION

    def __post_init__(self) -> None:
        check_version(self.version)


class TokenFile:
    """The SDK's TokenStorage for one server. `login` is the content of the file; `save` writes it."""

    def __init__(self, settings: ServerSettings, directory: Path | None = None) -> None:
        self.path = (directory or state_directory() / "mcp" / "tokens") / f"{file_name(settings.name)}.json"
        self._url = settings.url
        self.login = StoredLogin(settings.url)
        self.load()

    @property
    def access_token(self) -> str:
        return str((self.login.tokens or {}).get("access_token", ""))

    @property
    def is_expired(self) -> bool:
        return self.login.expires_at is not None and self.login.expires_at <= time.time()

    def load(self) -> None:
        """Read the file. A login at another URL is ignored. Raises CallerError if the file is damaged."""
        try:
            login = msgspec.json.decode(self.path.read_bytes(), type=StoredLogin)
        except FileNotFoundError:
            login = StoredLogin(self._url)
        except msgspec.MsgspecError as error:
            raise CallerError(f"not a file of tokens: {error}", path=str(self.path), hint="delete it") from None
        self.login = login if login.url == self._url else StoredLogin(self._url)

    def save(self) -> None:
        write_private(self.path, msgspec.json.encode(self.login))

    def take_metadata(self, provider: OAuthClientProvider) -> None:
        """Store the address for renewals that the provider has discovered."""
        context = provider.context
        self.login.metadata = _json(context.oauth_metadata)
        self.login.resource = _json(context.protected_resource_metadata)

    @asynccontextmanager
    async def lock(self) -> AsyncGenerator[None]:
        """Lock the file against other processes."""
        try:
            import fcntl  # noqa: PLC0415  # not on Windows, which has no lock here
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
                    await asyncio.sleep(_LOCK_POLL_SECONDS)
            yield

    async def get_tokens(self) -> OAuthToken | None:
        from mcp.shared.auth import OAuthToken  # noqa: PLC0415  # the SDK's

        return OAuthToken.model_validate(self.login.tokens) if self.login.tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.login.tokens = _json(tokens)
        self.login.expires_at = None if tokens.expires_in is None else time.time() + int(tokens.expires_in)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        from mcp.shared.auth import OAuthClientInformationFull  # noqa: PLC0415  # the SDK's

        return OAuthClientInformationFull.model_validate(self.login.client) if self.login.client else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.login.client = _json(client_info)


def registered_client(settings: ServerSettings, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the OAuth client of the settings as the SDK's JSON, or nothing if the server registers clients itself."""
    if not settings.client_id:
        return {}
    values = {"client_secret": settings.client_secret} if settings.client_secret else {}
    secret = resolve_variables(values, environ, f"mcp.{settings.name}")
    method = "client_secret_basic" if secret else "none"
    return {"client_id": settings.client_id, **secret, "token_endpoint_auth_method": method}


def choose_method(context: OAuthContext) -> None:
    """Send a client's secret as the server requires, by default with HTTP Basic (RFC 6749, 2.3.1)."""
    metadata, client = context.oauth_metadata, context.client_info
    offered = (metadata and metadata.token_endpoint_auth_methods_supported) or ()
    if client and client.token_endpoint_auth_method == "client_secret_basic" and "client_secret_post" in offered:  # noqa: S105
        client.token_endpoint_auth_method = "client_secret_post"  # noqa: S105


def stored_auth(settings: ServerSettings, directory: Path | None = None) -> httpx2.Auth | None:
    """Return the authentication for a server with a stored login. It renews tokens and never asks the user.

    Returns None without a login, and for a local program.
    """
    if settings.transport != "http":
        return None
    file = TokenFile(settings, directory)
    if not file.login.tokens:
        return None
    import httpx2  # noqa: PLC0415  # the SDK's

    signing = _TokenAuth(settings, file)
    made: httpx2.Auth = type("StoredAuth", (httpx2.Auth,), {"async_auth_flow": staticmethod(signing.flow)})()
    return made


class _TokenAuth:
    """Signs requests with the stored tokens."""

    def __init__(self, settings: ServerSettings, file: TokenFile) -> None:
        self._settings = settings
        self._file = file

    async def flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """See `httpx2.Auth.async_auth_flow`. Raises ServerFailure if the login has ended."""
        refused = ""
        for _ in range(2):
            self._file.load()
            if self._needs_renewal(refused):
                async with self._file.lock():
                    self._file.load()  # another process may have renewed it
                    if self._needs_renewal(refused) and (renewal := self._renewal_request(request)) is not None:
                        await self._store_renewal(renewal, (yield renewal))
            if self._file.access_token in ("", refused):
                break
            refused = self._file.access_token
            request.headers["Authorization"] = f"Bearer {refused}"
            response = yield request
            if response.status_code != 401:
                self._note_scope(response)
                return
            _limit_body(response)
        raise self._end_login()

    def _needs_renewal(self, refused: str) -> bool:
        return self._file.is_expired or self._file.access_token == refused

    def _renewal_request(self, request: httpx2.Request) -> httpx2.Request | None:
        """Return the request that renews the tokens, or None without a refresh token or a client."""
        import httpx2  # noqa: PLC0415  # the SDK's

        refresh = (self._file.login.tokens or {}).get("refresh_token")
        context = self._sdk_context()
        if not refresh or context.client_info is None:
            return None
        form = {"grant_type": "refresh_token", "refresh_token": refresh, "client_id": context.client_info.client_id}
        if context.should_include_resource_param(request.headers.get("mcp-protocol-version")):
            form["resource"] = context.get_resource_url()
        form, headers = context.prepare_token_auth(form, {"Content-Type": "application/x-www-form-urlencoded"})
        base = context.get_authorization_base_url(self._settings.url)
        url = context.oauth_metadata.token_endpoint if context.oauth_metadata else urljoin(base, "/token")
        return httpx2.Request("POST", str(url), data=form, headers=headers)

    async def _store_renewal(self, renewal: httpx2.Request, response: httpx2.Response) -> None:
        from mcp.shared.auth import OAuthToken  # noqa: PLC0415  # the SDK's

        _limit_body(response)
        body = await response.aread()
        if response.status_code != 200:
            before = self._file.access_token
            self._file.load()
            if self._file.access_token != before:
                return
            if response.status_code in (400, 401):
                raise self._end_login()
            where = renewal.url.copy_with(query=None)
            raise ServerFailure(f"its login cannot be renewed: HTTP {response.status_code} from {where}")
        before_that = self._file.login.tokens or {}
        tokens = {key: before_that[key] for key in ("refresh_token", "scope") if before_that.get(key)}
        await self._file.set_tokens(OAuthToken.model_validate({**tokens, **msgspec.json.decode(body)}))
        self._file.save()

    def _sdk_context(self) -> OAuthContext:
        from mcp.client.auth.oauth2 import OAuthContext  # noqa: PLC0415  # the SDK's
        from mcp.shared import auth  # noqa: PLC0415

        login = self._file.login
        about = auth.OAuthClientMetadata(client_name=CLIENT_NAME, redirect_uris=None)
        context = OAuthContext(self._settings.url, about, self._file, None, None)
        client = {"redirect_uris": None, **(login.client or {}), **registered_client(self._settings, os.environ)}
        if "client_id" in client:
            context.client_info = auth.OAuthClientInformationFull.model_validate(client)
        if login.metadata:
            context.oauth_metadata = auth.OAuthMetadata.model_validate(login.metadata)
        if login.resource:
            context.protected_resource_metadata = auth.ProtectedResourceMetadata.model_validate(login.resource)
        choose_method(context)
        return context

    def _note_scope(self, response: httpx2.Response) -> None:
        missing = missing_scope(response)
        if missing and missing != self._file.login.missing_scope:
            self._file.login.missing_scope = missing
            self._file.save()

    def _end_login(self) -> ServerFailure:
        name = self._settings.name
        hint = f"`callboard mcp login {shlex.quote(name)}`"
        return ServerFailure("its login has expired", path=name, hint=hint, permanent=True)


def missing_scope(response: httpx2.Response) -> str:
    """Return the scope that a refused request lacked (RFC 6750, 3.1), or an empty text."""
    from mcp.client.auth.utils import extract_field_from_www_auth  # noqa: PLC0415  # the SDK's

    if response.status_code != 403 or extract_field_from_www_auth(response, "error") != "insufficient_scope":
        return ""
    return extract_field_from_www_auth(response, "scope") or ""


def _limit_body(response: httpx2.Response) -> None:
    """Limit a body that httpx2 reads whole before the next request: a server may send one without end."""
    import httpx2  # noqa: PLC0415  # the SDK's

    endless = response.stream

    class Limited(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            remaining = _MAX_ANSWER
            async for piece in endless:  # type: ignore[union-attr]  # the client is asynchronous
                remaining -= len(piece)
                if remaining < 0:
                    raise ServerFailure(f"its answer about the login has more than {_MAX_ANSWER} bytes")
                yield piece

        async def aclose(self) -> None:
            await endless.aclose()  # type: ignore[union-attr]

    response.stream = Limited()


def join_scopes(*scopes: str) -> str:
    """Return all scopes in their order, without duplicates."""
    return " ".join(dict.fromkeys(" ".join(scopes).split()))


def _json(value: Any) -> dict[str, Any] | None:
    value_json: dict[str, Any] | None = None if value is None else value.model_dump(mode="json", exclude_none=True)
    return value_json

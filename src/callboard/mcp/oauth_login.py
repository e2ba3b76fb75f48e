"""Log a person in at a server (OAuth 2.1 with PKCE, RFC 8252): the SDK's flow with a callback page on this machine.

Law: the stored login stays until the new one has succeeded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from callboard.errors import CallerError
from callboard.mcp.errors import ServerFailure, to_failure
from callboard.mcp.oauth_tokens import (
    CLIENT_NAME,
    StoredLogin,
    TokenFile,
    choose_method,
    join_scopes,
    registered_client,
)
from callboard.mcp.settings import ServerSettings, resolve_variables

LOGIN_SECONDS: Final = 300.0
"""Seconds that a person has to log in."""
_PATH: Final = "/callback"
_LINE: Final = 8192
_ANSWER: Final = (
    "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n{text}"
)


async def log_in(
    settings: ServerSettings,
    show: Callable[[str], None],
    environ: dict[str, str],
    *,
    directory: Path | None = None,
    seconds: float = LOGIN_SECONDS,
) -> bool:
    """Log in at a server, and store the tokens for `stored_auth`.

    Args:
        settings: Settings of the server.
        show: Called with the URL to open in a browser.
        environ: The environment that `env:NAME` refers to.
        directory: Directory of the tokens, by default in our state directory.
        seconds: Seconds to wait for the person.

    Returns:
        True if the server asked for a login.

    Raises:
        CallerError: The server is a local program.
        ServerFailure: The login failed.
    """
    if settings.transport != "http":
        raise CallerError("only a server at a URL asks for a login", path=settings.name)
    import httpx2  # noqa: PLC0415  # the SDK's, imported with it
    from mcp import Client  # noqa: PLC0415
    from mcp.client.auth import OAuthClientProvider  # noqa: PLC0415
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata  # noqa: PLC0415

    file = TokenFile(settings, directory)
    before = file.login
    # The earlier registered client belongs to another port of this machine.
    file.login = StoredLogin(settings.url)
    ours = registered_client(settings, environ)

    async with _serve_callback() as (address, queries):

        async def redirect(url: str) -> None:
            choose_method(provider.context)
            requested = parse_qs(urlsplit(url).query).get("scope", [""])[0]
            scope = " ".join(settings.scopes) or requested
            if before.missing_scope:
                scope = join_scopes(scope, str((before.tokens or {}).get("scope") or ""), before.missing_scope)
            provider.context.client_metadata.scope = scope or None
            show(_with_scope(url, scope))

        async def wait_for_code() -> AuthorizationCodeResult:
            async with asyncio.timeout(seconds):
                query = await queries.get()
            if "code" not in query:
                raise ServerFailure(
                    f"refused: {query.get('error_description') or query.get('error')}", path=settings.name
                )
            return AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))

        metadata = OAuthClientMetadata.model_validate({"client_name": CLIENT_NAME, "redirect_uris": [address]})
        if ours:
            file.login.client = {**ours, "redirect_uris": [address]}
        provider = OAuthClientProvider(settings.url, metadata, file, redirect, wait_for_code)
        headers = resolve_variables(settings.headers, environ, f"mcp.{settings.name}.headers")
        try:
            async with (
                httpx2.AsyncClient(auth=provider, headers=headers, timeout=seconds) as http,
                Client(streamable_http_client(settings.url, http_client=http)) as client,
            ):
                await client.list_tools()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            failure = to_failure(error, settings.name)
            if "Registration failed" in failure.message:
                failure.hint = "register a client there, and set its client_id and client_secret"
            raise failure from error
    if not file.login.tokens:
        return False
    file.take_metadata(provider)
    file.save()
    return True


def _with_scope(url: str, scope: str) -> str:
    parts = urlsplit(url)
    query = {key: values[0] for key, values in parse_qs(parts.query).items() if key != "scope"}
    return urlunsplit(parts._replace(query=urlencode({**query, **({"scope": scope} if scope else {})})))


@asynccontextmanager
async def _serve_callback() -> AsyncGenerator[tuple[str, asyncio.Queue[dict[str, str]]]]:
    """Serve the callback page. Yields its URL, and a queue of the queries from the browser."""
    queries: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = (await reader.readline()).decode("latin-1").split(" ")
            target = urlsplit(line[1] if len(line) == 3 else "")
            query = {key: values[0] for key, values in parse_qs(target.query).items()}
            ours = line[0] == "GET" and target.path == _PATH and bool(query.keys() & {"code", "error"})
            if ours:
                queries.put_nowait(query)
            text = "Done. You can close this page." if ours else "Nothing is here."
            status = "200 OK" if ours else "404 Not Found"
            writer.write(_ANSWER.format(status=status, size=len(text), text=text).encode())
            await writer.drain()
        except (OSError, ValueError):
            pass
        finally:
            writer.close()

    server: Any = await asyncio.start_server(answer, "127.0.0.1", 0, limit=_LINE)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}{_PATH}", queries

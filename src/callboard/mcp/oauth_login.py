"""A person logs in at a server (OAuth 2.1 with PKCE, RFC 8252).

Owns the page on this machine that the browser comes back to. What is exchanged is the SDK's business.
Law: what was there before stays until the new login has succeeded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from callboard.errors import CallerError
from callboard.mcp.environment import resolved
from callboard.mcp.errors import ServerFailure, failure_of
from callboard.mcp.oauth_tokens import CLIENT_NAME, Kept, TokenFile, choose_method, joined_scopes, registered_client
from callboard.mcp.settings import ServerSettings

PATIENCE: Final = 300.0
"""Seconds that a person has."""
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
    patience: float = PATIENCE,
) -> bool:
    """Logs in at the server; `show` is given the URL to be opened in a browser. Tokens are kept for `stored_auth`.

    Whether there was something to log in to: a server may ask for nothing. Raises CallerError for a server that is a
    program, and ServerFailure if it went wrong.
    """
    if settings.transport != "http":
        raise CallerError("only a server at a URL asks for a login", path=settings.name)
    import httpx2  # noqa: PLC0415  # the SDK's, imported with it
    from mcp import Client  # noqa: PLC0415
    from mcp.client.auth import OAuthClientProvider  # noqa: PLC0415
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata  # noqa: PLC0415

    file = TokenFile(settings, directory)
    before = file.kept
    # What was registered before is for another port of this machine.
    file.kept = Kept(settings.url)
    ours = registered_client(settings, environ)

    async with _landing() as (address, landed):

        async def redirect(url: str) -> None:
            choose_method(provider.context)
            asked = parse_qs(urlsplit(url).query).get("scope", [""])[0]
            scope = " ".join(settings.scopes) or asked
            if before.missing_scope:
                scope = joined_scopes(scope, str((before.tokens or {}).get("scope") or ""), before.missing_scope)
            provider.context.client_metadata.scope = scope or None
            show(_with_scope(url, scope))

        async def come_back() -> AuthorizationCodeResult:
            async with asyncio.timeout(patience):
                said = await landed.get()
            if "code" not in said:
                raise ServerFailure(
                    f"refused: {said.get('error_description') or said.get('error')}", path=settings.name
                )
            return AuthorizationCodeResult(code=said["code"], state=said.get("state"), iss=said.get("iss"))

        metadata = OAuthClientMetadata.model_validate({"client_name": CLIENT_NAME, "redirect_uris": [address]})
        if ours:
            file.kept.client = {**ours, "redirect_uris": [address]}
        provider = OAuthClientProvider(settings.url, metadata, file, redirect, come_back)
        headers = resolved(settings.headers, environ, f"mcp.{settings.name}.headers")
        try:
            async with (
                httpx2.AsyncClient(auth=provider, headers=headers, timeout=patience) as http,
                Client(streamable_http_client(settings.url, http_client=http)) as client,
            ):
                await client.list_tools()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            failure = failure_of(error, settings.name)
            if "Registration failed" in failure.message:
                failure.hint = "register a client there, and set its client_id and client_secret"
            raise failure from error
    if not file.kept.tokens:
        return False
    file.take_metadata(provider)
    file.save()
    return True


def _with_scope(url: str, scope: str) -> str:
    parts = urlsplit(url)
    query = {key: values[0] for key, values in parse_qs(parts.query).items() if key != "scope"}
    return urlunsplit(parts._replace(query=urlencode({**query, **({"scope": scope} if scope else {})})))


@asynccontextmanager
async def _landing() -> AsyncGenerator[tuple[str, asyncio.Queue[dict[str, str]]]]:
    """A page on this machine, and what the browser brings to it."""
    landed: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = (await reader.readline()).decode("latin-1").split(" ")
            target = urlsplit(line[1] if len(line) == 3 else "")
            given = {key: values[0] for key, values in parse_qs(target.query).items()}
            ours = line[0] == "GET" and target.path == _PATH and bool(given.keys() & {"code", "error"})
            if ours:
                landed.put_nowait(given)
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
        yield f"http://127.0.0.1:{port}{_PATH}", landed

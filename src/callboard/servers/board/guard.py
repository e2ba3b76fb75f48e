"""What every request to the board passes: its host, its session, and the headers of every answer.

Laws: only the login and the static files are answered without a session; a name that is not the board's is refused, so
that a web page whose name was made to lead here reads nothing (DNS rebinding); no page may run or load what is not ours.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callboard.servers.board.login import Login
from callboard.servers.listening import host_name
from callboard.text.display import display

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
SECURITY_HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not "no-referrer": browsers would send forms without their origin.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """The middleware around all routes of the board."""

    def __init__(self, app: ASGIApp, login: Login, hosts: Collection[str]) -> None:
        """Takes the names, without a port, under which the board may be asked."""
        self._app = app
        self._login = login
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._check_host(request.headers) or self._check_origin(request)
        if refusal:
            await PlainTextResponse(refusal, 403)(scope, receive, send_guarded)
            return
        scope["state"] = {
            **scope.get("state", {}),
            "session": self._login.find_session(request.cookies.get(self._login.cookie, "")),
        }
        if not (scope["state"]["session"] or _is_public(scope["path"].removeprefix(scope.get("root_path", "")))):
            await self._ask_to_log_in(request)(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _check_host(self, headers: Headers) -> str:
        value = headers.get("host", "")
        if (host := host_name(value)) and host in self._hosts:
            return ""
        return f"this board is not {display(host or value, 100)!r}; --url says under which address it is reached"

    def _check_origin(self, request: Request) -> str:
        """Why a request that changes something is refused: another page sends it."""
        if request.method in {"GET", "HEAD"}:
            return ""
        origin = request.headers.get("origin")
        host = request.headers.get("host", "").lower()
        # The two schemes, since a proxy may speak TLS for us.
        if origin is not None and origin.lower() not in {f"http://{host}", f"https://{host}"}:
            return "another web page may send nothing to the board"
        return ""

    def _ask_to_log_in(self, request: Request) -> PlainTextResponse | RedirectResponse:
        if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse(f"{request.scope.get('root_path', '')}/login", 303)
        _, port = request.scope.get("server") or ("", None)
        option = f" --port {port}" if port else ""  # not of the Host header, which a client writes
        return PlainTextResponse(f"log in first: callboard board --link{option} prints a link", 401)


def _is_public(path: str) -> bool:
    """Whether a path below the board's own needs no session."""
    return path == "/login" or path.startswith("/static/")

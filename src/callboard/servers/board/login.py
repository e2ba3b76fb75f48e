"""Access to the board: one-time links, sessions, and the tokens of forms.

All of them are signed with one secret. It is a file of the user that every process of the board and the gateway shares.
A session from one worker is therefore valid in the others. Only used links and ended sessions are stored.

Laws: a link logs in once across all processes. A form token is valid only in its own session. A session expires, and
a logout ends it in all processes. The secret never appears in a response or a log.

A link only opens a login page. The form on that page, which our script submits, uses up the link. Programs that preview
links, such as messengers and virus scanners, do not use it up.

`Guard` checks the host and the session of every request, and adds headers to every response.

Laws: without a session, only the login and the static files are served. Unknown host names are refused, which
prevents DNS rebinding. Pages may run and load only our own files.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from hashlib import sha256
from hmac import compare_digest
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote, unquote

from itsdangerous import BadSignature, SignatureExpired, Signer, TimestampSigner
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callboard.configuration.ownership import find_unsafe_owner
from callboard.errors import CallerError
from callboard.servers.board.browser import Form, read_form, read_value
from callboard.servers.hosts import host_name
from callboard.storage.atomic_file import write_private
from callboard.storage.directories import state_directory
from callboard.text.display import display

if TYPE_CHECKING:
    from callboard.servers.board.app import Board

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
        """Takes the host names of the board, without a port."""
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
                headers.update(SECURITY_HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        if refusal := self._find_refusal(request):
            await PlainTextResponse(refusal, 403)(scope, receive, send_guarded)
            return
        scope["state"] = {
            **scope.get("state", {}),
            "session": self._login.find_session(request.cookies.get(self._login.cookie, "")),
        }
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if not (scope["state"]["session"] or path == "/login" or path.startswith("/static/")):
            await self._ask_to_log_in(request)(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _find_refusal(self, request: Request) -> str:
        """Return why a request is refused, "" if it is not."""
        host = request.headers.get("host", "").lower()
        if host_name(host) not in self._hosts:
            return f"this board is not {display(host_name(host) or host, 100)!r}; set its address with --url"
        # Accept both schemes, because a proxy may handle TLS for us.
        origin = request.headers.get("origin", f"http://{host}").lower()
        if request.method not in {"GET", "HEAD"} and origin not in {f"http://{host}", f"https://{host}"}:
            return "the board does not accept requests from other web pages"
        return ""

    def _ask_to_log_in(self, request: Request) -> Response:
        if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            is_job = "/jobs/" in request.scope["path"]  # others do not know the name of a job
            is_first = not request.url.query.endswith("&again")
            if is_job and is_first and request.headers.get("sec-fetch-site") == "cross-site":
                # A link in a chat comes without the cookie, because it is SameSite=Strict. Our refresh sends the cookie.
                query = escape(f"?{request.url.query}&again")
                return HTMLResponse(f'<meta http-equiv="refresh" content="0; url={query}">')
            return _remember_page(request, RedirectResponse(f"{request.scope.get('root_path', '')}/login", 303))
        option = f" --port {port}" if (port := _port(request)) else ""
        return PlainTextResponse(f"log in first: callboard board --link{option} prints a link", 401)


_PAGE_COOKIE: Final = "callboard-board-page"
"""The page that a person asked for before the login: a path below the board's own, and its query."""
_PAGE: Final = re.compile(r"/[A-Za-z0-9][\w.~%-]*(/[\w.~%-]+)*(\?[\w.~%&=+-]*)?", re.ASCII)


def _remember_page(request: Request, response: Response) -> Response:
    base = request.scope.get("root_path", "")
    page = request.scope["path"].removeprefix(base) + (f"?{request.url.query}" if request.url.query else "")
    if _PAGE.fullmatch(page):
        response.set_cookie(
            _PAGE_COOKIE, quote(page, safe=""), max_age=LINK_SECONDS, path=base or "/", httponly=True, samesite="lax"
        )
    return response


def _port(request: Request) -> int | None:
    """Return the server's port. It is not taken from the Host header, which the client controls."""
    _, port = request.scope.get("server") or ("", None)
    return port


REASONS: Final = {
    "used": "This link was already used. Each link works once.",
    "expired": "This link has expired.",
    "wrong": "This link does not belong to this board.",
}


def login_routes(board: Board) -> Sequence[BaseRoute]:
    async def show(request: Request) -> Response:
        if request.state.session:
            return board.redirect(request, "/")
        token = read_value(request.query_params.get("token"))
        return board.render(request, "login.html", token=token, reason="", port=_port(request))

    async def log_in(request: Request) -> Response:
        # There is no session yet, so the form has no token. Other pages do not know the link.
        form = await read_form(request)
        state = board.login.use_link_token(form.get("link", ""))
        if state != "ok":
            return board.render(request, "login.html", status=403, token="", reason=REASONS[state], port=_port(request))
        page = unquote(request.cookies.get(_PAGE_COOKIE, ""))
        response = board.redirect(request, page if _PAGE.fullmatch(page) else "/")
        response.delete_cookie(_PAGE_COOKIE, path=request.scope.get("root_path", "") or "/")
        response.set_cookie(
            board.login.cookie,
            board.login.begin_session(),
            max_age=SESSION_SECONDS,
            path=request.scope.get("root_path", "") or "/",
            # Only the browser knows the scheme if a proxy handles TLS for us.
            secure=request.url.scheme == "https" or request.headers.get("origin", "").startswith("https:"),
            httponly=True,
            samesite="strict",
        )
        return response

    async def log_out(request: Request, _: Form) -> Response:
        board.login.end_session(request.state.session)
        response = board.redirect(request, "/login")
        response.delete_cookie(board.login.cookie, path=request.scope.get("root_path", "") or "/")
        return response

    return [
        Route("/login", show),
        Route("/login", log_in, methods=["POST"]),
        Route("/logout", board.action(log_out), methods=["POST"]),
    ]


LINK_SECONDS: Final = 3600
"""Lifetime of a link, in seconds: long enough to come back to the terminal that printed it."""
SESSION_SECONDS: Final = 12 * 3600
"""Lifetime of a session, in seconds: a working day."""

LOOK_SECONDS: Final = 1.5
"""Seconds that a question must be shown before its answer counts."""

LinkState = Literal["ok", "used", "expired", "wrong"]

_SECRET_BYTES: Final = 32


class Login:
    """The links, sessions and tokens of one secret.

    Args:
        directory: Directory of the secret and the used links, by default in the user's state directory. The first
            process creates the secret.
        clock: Seconds since 1970.
    """

    def __init__(self, directory: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory or state_directory() / "board"
        self._clock = clock
        secret = _read_secret(self._directory / "secret")
        self._links = _Signer(secret, clock, salt="callboard.board.link")
        self._sessions = _Signer(secret, clock, salt="callboard.board.session")
        self._forms = Signer(secret, salt="callboard.board.form", digest_method=sha256)
        self._looks = Signer(secret, salt="callboard.board.look", digest_method=sha256)
        self.cookie = f"callboard-board-{sha256(secret).hexdigest()[:8]}"
        """Name of the cookie. Cookies ignore ports, so boards with other secrets on this machine use other names."""

    def make_link_token(self) -> str:
        """Return a token that logs in once, within `LINK_SECONDS`."""
        return self._links.sign(secrets.token_urlsafe(12)).decode()

    def use_link_token(self, token: str) -> LinkState:
        """Use up a link, and return if it may log in."""
        try:
            nonce = self._links.unsign(token, max_age=LINK_SECONDS).decode()
        except SignatureExpired:
            return "expired"
        except BadSignature:
            return "wrong"
        return "ok" if self._note("used", nonce, LINK_SECONDS) else "used"

    def begin_session(self) -> str:
        return self._sessions.sign(secrets.token_urlsafe(12)).decode()

    def find_session(self, cookie: str) -> str:
        """Return the name of the cookie's session, or "" if the cookie is not valid or the session has ended."""
        try:
            session = self._sessions.unsign(cookie, max_age=SESSION_SECONDS).decode()
        except BadSignature:
            return ""
        return "" if (self._directory / "ended" / session).exists() else session

    def end_session(self, session: str) -> None:
        """End a session. All copies of its cookie become invalid."""
        self._note("ended", session, SESSION_SECONDS)

    def form_token(self, session: str) -> str:
        """Return the token of a session's forms. It prevents other pages from submitting a form."""
        return self._forms.get_signature(session).decode()

    def is_form_token(self, session: str, token: str) -> bool:
        """True if a form comes from a page of this session."""
        return bool(session) and compare_digest(self.form_token(session).encode(), token.encode(errors="replace"))

    def make_look_token(self, session: str, question: str) -> str:
        """Return a token that records when a question was shown to a session."""
        moment = str(int(self._clock() * 1000))
        return f"{moment}.{self._looks.get_signature(f'{moment} {session} {question}').decode()}"

    def find_look(self, session: str, question: str, token: str) -> float | None:
        """Return the seconds since the question was shown, or None if the token belongs to another question."""
        moment, _, signature = token.partition(".")
        expected = self._looks.get_signature(f"{moment} {session} {question}")
        if not compare_digest(expected, signature.encode(errors="replace")):
            return None
        return self._clock() - int(moment) / 1000

    def _note(self, kind: str, nonce: str, lifetime: int) -> bool:
        """Record a used link or an ended session. Return True the first time."""
        folder = self._directory / kind
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._forget_old(folder, lifetime)
        try:
            (folder / nonce).touch(0o600, exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _forget_old(self, folder: Path, lifetime: int) -> None:
        """Delete records of links and sessions that have expired."""
        oldest = time.time() - 2 * lifetime  # file times come from the system clock
        for path in folder.iterdir():
            with suppress(OSError):  # another process may delete it as well
                if path.stat().st_mtime < oldest:
                    path.unlink()


def name_session(session: str) -> str:
    """Return the name of a session for records and pages. It cannot be used to log in."""
    return f"session {sha256(session.encode()).hexdigest()[:8]}"


class _Signer(TimestampSigner):
    def __init__(self, secret: bytes, clock: Callable[[], float], *, salt: str) -> None:
        super().__init__(secret, salt=salt, digest_method=sha256)
        self._now = clock

    def get_timestamp(self) -> int:
        return int(self._now())


def _read_secret(path: Path) -> bytes:
    """Return the secret of this user. The first process creates it atomically.

    Raises CallerError if it is too short. A full disk or a power failure may leave an empty file, and anybody could
    forge a signature with an empty secret.
    """
    if not path.exists():
        new = path.with_name(f".secret-{secrets.token_hex(8)}")
        write_private(new, secrets.token_bytes(_SECRET_BYTES))
        with suppress(FileExistsError):  # another process was faster, and its secret counts
            path.hardlink_to(new)
        new.unlink()
    if (problem := find_unsafe_owner(path)) is not None:
        raise CallerError(f"others could read the board's secret: {problem.reason}", path=str(path), hint=problem.hint)
    secret = path.read_bytes()
    if len(secret) < _SECRET_BYTES:
        raise CallerError("the secret is too short to sign with", path=str(path), hint="delete the file")
    return secret

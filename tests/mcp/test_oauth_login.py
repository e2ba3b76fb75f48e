from __future__ import annotations

import asyncio
import base64
import json
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from msgspec.structs import replace

from callboard import execute_invoker
from callboard.errors import CallerError
from callboard.mcp import McpEnsemble, ServerSettings
from callboard.mcp.errors import ServerFailure
from callboard.mcp.oauth_login import log_in
from callboard.mcp.oauth_tokens import TokenFile, stored_auth

TOOLS = [{"name": "who", "inputSchema": {"type": "object"}}]


class Guarded:
    """A server of 2025-11-25 that answers those who logged in, and where they do."""

    def __init__(self):
        self.tokens = iter(f"token{number}" for number in range(100))
        self.good = None
        self.grants = []
        self.open = False
        self.refuses = False
        self.registers = True
        self.methods = None
        self.lacks = ""
        self.asked = []
        self.clients = []
        self.refresh = None
        self.renewal = None

    async def mcp(self, request):
        if request.method != "POST":
            return web.Response(status=405)
        if not self.open and request.headers.get("Authorization") != f"Bearer {self.good}":
            about = f'Bearer resource_metadata="{self.url}/.well-known/oauth-protected-resource"'
            return web.json_response({}, status=401, headers={"WWW-Authenticate": about})
        message = await request.json()
        results = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
            },
            "tools/list": {"tools": TOOLS},
            "tools/call": {"content": [{"type": "text", "text": str(request.headers.get("Authorization"))}]},
        }
        if "id" not in message:
            return web.Response(status=202)
        if self.lacks and message["method"] == "tools/call":
            about = f'Bearer error="insufficient_scope", scope="{self.lacks}"'
            return web.Response(status=403, headers={"WWW-Authenticate": about})
        method, answer = message["method"], {"jsonrpc": "2.0", "id": message["id"]}
        if method not in results:
            return web.json_response({**answer, "error": {"code": -32601, "message": "no"}}, status=400)
        return web.json_response({**answer, "result": results[method]})

    async def resource(self, _):
        return web.json_response({"resource": f"{self.url}/mcp", "authorization_servers": [self.url]})

    async def metadata(self, _):
        ends = {f"{name}_endpoint": f"{self.url}/{path}" for name, path in PATHS.items()}
        about = {"response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"]}
        methods = {"token_endpoint_auth_methods_supported": self.methods} if self.methods else {}
        return web.json_response({"issuer": self.url, **ends, **about, **methods})

    async def register(self, request):
        if not self.registers:
            return web.Response(status=404)
        return web.json_response({**(await request.json()), "client_id": "client"}, status=201)

    async def authorize(self, request):
        self.asked.append((request.query["client_id"], request.query.get("scope")))
        said = "error=access_denied&error_description=not+you" if self.refuses else "code=code"
        raise web.HTTPFound(f"{request.query['redirect_uri']}?{said}&state={request.query['state']}")

    async def token(self, request):
        form = await request.post()
        self.grants.append(form["grant_type"])
        self.clients.append((request.headers.get("Authorization"), form.get("client_secret")))
        if form["grant_type"] == "refresh_token":
            if self.renewal is not None and (answer := self.renewal()) is not None:
                return answer
            if form["refresh_token"] != self.refresh:
                return web.json_response({"error": "invalid_grant"}, status=400)
        self.good = next(self.tokens)
        self.refresh = f"refresh of {self.good}"
        return web.json_response(
            {
                "access_token": self.good,
                "token_type": "Bearer",
                "expires_in": 3600,
                "refresh_token": self.refresh,
            }
        )


PATHS = {"authorization": "authorize", "token": "oauth/token", "registration": "register"}


@asynccontextmanager
async def served():
    """The server, and its settings."""
    guarded = Guarded()
    application = web.Application()
    for path, handler in (
        ("/mcp", guarded.mcp),
        ("/.well-known/oauth-protected-resource", guarded.resource),
        ("/.well-known/oauth-authorization-server", guarded.metadata),
        *((f"/{path}", getattr(guarded, path.rpartition("/")[2])) for path in PATHS.values()),
    ):
        application.router.add_route("*", path, handler)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        guarded.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
        yield guarded, ServerSettings(name="guarded", transport="http", url=f"{guarded.url}/mcp", pinned=False)
    finally:
        await runner.cleanup()


class Browser:
    """Opens pages."""

    def __init__(self):
        self.pages = []
        self.opening = []

    def __call__(self, url):
        self.opening.append(asyncio.ensure_future(self.open(url)))

    async def open(self, url):
        async with aiohttp.ClientSession() as client, client.get(url) as page:
            self.pages.append(await page.text())


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "callboard" / "mcp" / "tokens"


async def called(settings):
    async with McpEnsemble(settings) as ensemble:
        return (await execute_invoker(ensemble.access_invoker("who"), {}, on_error="feedback")).text


async def test_who_logged_in_is_known_from_then_on(state):
    async with served() as (guarded, settings):
        with pytest.raises(ServerFailure, match="log in"):
            await called(settings)
        browser = Browser()
        assert await log_in(settings, browser, {})
        await asyncio.gather(*browser.opening)
        pages, first, second = browser.pages, await called(settings), await called(settings)
    assert pages == ["Done. You can close this page."]
    assert first == second == "Bearer token0"
    assert guarded.grants == ["authorization_code"]
    assert (state / "guarded.json").stat().st_mode & 0o777 == 0o600


async def test_tokens_are_renewed_where_they_came_from(state):
    async with served() as (guarded, settings):
        await log_in(settings, Browser(), {})
        kept = json.loads((state / "guarded.json").read_bytes())
        (state / "guarded.json").write_text(json.dumps({**kept, "expires_at": 1}))
        first, second = await called(settings), await called(settings)
    assert first == second == "Bearer token1"
    assert guarded.grants == ["authorization_code", "refresh_token"]
    assert json.loads((state / "guarded.json").read_bytes())["tokens"]["access_token"] == first.removeprefix("Bearer ")


async def test_tokens_are_for_their_own_address():
    async with served() as (_, settings):
        await log_in(settings, Browser(), {})
        elsewhere = ServerSettings(name="guarded", transport="http", url="https://example.com/mcp")
        here, elsewhere = stored_auth(settings), stored_auth(elsewhere)
    assert (here is not None, elsewhere) == (True, None)


async def test_a_login_that_is_over_says_so():
    async with served() as (guarded, settings):
        await log_in(settings, Browser(), {})
        async with McpEnsemble(settings) as ensemble:
            guarded.good = guarded.refresh = "another"
            with pytest.raises(ServerFailure) as failed:
                await ensemble.call_tool("who", {})
        assert not failed.value.may_have_run
        assert "its login has expired" in str(failed.value)
        with pytest.raises(ServerFailure, match=r"its login has expired; .*`callboard mcp login guarded`"):
            await called(settings)


def expire(state):
    file = state / "guarded.json"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "expires_at": 1}))


async def test_of_many_that_need_new_tokens_one_renews_them(state):
    async with served() as (guarded, settings):
        await log_in(settings, Browser(), {})
        expire(state)
        assert (await asyncio.gather(*(called(settings) for _ in range(5)))) == ["Bearer token1"] * 5
    assert guarded.grants == ["authorization_code", "refresh_token"]


async def test_tokens_that_somebody_else_renewed_are_taken(state):
    async with served() as (guarded, settings):
        await log_in(settings, Browser(), {})
        async with McpEnsemble(settings) as ensemble:
            expire(state)
            assert await called(settings) == "Bearer token1"
            assert (await ensemble.call_tool("who", {})).content[0].text == "Bearer token1"
    assert guarded.grants == ["authorization_code", "refresh_token"]


async def test_a_refresh_token_that_was_used_already_is_no_end_where_the_file_has_another(state):
    def meanwhile():
        file = state / "guarded.json"
        kept = json.loads(file.read_bytes())
        guarded.good = "theirs"
        file.write_text(
            json.dumps({**kept, "expires_at": None, "tokens": {**kept["tokens"], "access_token": "theirs"}})
        )
        return web.json_response({"error": "invalid_grant"}, status=400)

    async with served() as (guarded, settings):
        await log_in(settings, Browser(), {})
        expire(state)
        guarded.renewal = meanwhile
        assert await called(settings) == "Bearer theirs"


async def test_a_token_that_is_refused_before_its_time_is_renewed_once():
    async with served() as (guarded, settings):
        await log_in(settings, Browser(), {})
        guarded.good = "another"
        assert await called(settings) == "Bearer token1"


async def test_a_place_of_renewal_that_is_away_ends_no_login(state):
    async with served() as (guarded, settings):
        await log_in(settings, Browser(), {})
        expire(state)
        guarded.renewal = lambda: web.Response(status=503)
        with pytest.raises(ServerFailure, match=r"cannot be renewed: HTTP 503 from http://.*/oauth/token"):
            await called(settings)
        guarded.renewal = None
        assert await called(settings) == "Bearer token1"


async def test_an_answer_without_end_renews_no_login(state):
    async with served() as (guarded, settings):
        await log_in(settings, Browser(), {})
        expire(state)
        guarded.renewal = lambda: web.Response(body=b" " * 300_000)
        with pytest.raises(ServerFailure, match="its answer about the login has more than 262144 bytes"):
            await called(settings)


async def test_a_login_that_fails_leaves_the_one_before():
    async with served() as (guarded, settings):
        await log_in(settings, Browser(), {})
        guarded.refuses, good = True, guarded.good
        guarded.good = "nobody's"
        with pytest.raises(ServerFailure, match="refused: not you"):
            await log_in(settings, Browser(), {})
        guarded.good = good
        assert await called(settings) == "Bearer token0"


@pytest.mark.parametrize("methods", [None, ["client_secret_basic"], ["client_secret_post"]])
async def test_a_client_that_was_registered_by_hand_logs_in_and_renews(state, monkeypatch, methods):
    monkeypatch.setenv("THE_SECRET", "s3cret")

    async with served() as (guarded, settings):
        guarded.registers, guarded.methods = False, methods
        with pytest.raises(ServerFailure, match=r"Registration failed.*set its client_id and client_secret"):
            await log_in(settings, Browser(), {})
        known = replace(settings, client_id="mine", client_secret="env:THE_SECRET", scopes=("read", "write"))
        await log_in(known, Browser(), {"THE_SECRET": "s3cret"})
        expire(state)
        assert await called(known) == "Bearer token1"
    assert guarded.asked == [("mine", "read write")]
    basic = f"Basic {base64.b64encode(b'mine:s3cret').decode()}"
    assert guarded.clients == [(None, "s3cret") if methods == ["client_secret_post"] else (basic, None)] * 2


async def test_what_a_login_lacks_is_asked_for_by_the_next():
    async with served() as (guarded, settings):
        await log_in(settings, Browser(), {})
        guarded.lacks = "files:write"
        text = await called(settings)
        guarded.lacks, good = "", guarded.good
        guarded.good = "nobody's"
        await log_in(replace(settings, scopes=("files:read",)), Browser(), {})
        assert guarded.good != good
    assert "its login lacks the scope 'files:write'" in text
    assert "`callboard mcp login guarded` asks for the scope that was missing" in text
    assert guarded.asked == [("client", None), ("client", "files:read files:write")]


async def test_a_login_that_is_refused():
    async with served() as (guarded, settings):
        guarded.refuses = True
        with pytest.raises(ServerFailure, match="refused: not you"):
            await log_in(settings, Browser(), {})


async def test_a_server_that_asks_for_no_login(state):
    async with served() as (guarded, settings):
        guarded.open = True
        assert await log_in(settings, Browser(), {}) is False
    assert not (state / "guarded.json").exists()


async def test_a_program_asks_for_no_login():
    settings = ServerSettings(name="s", command=("x",))
    assert stored_auth(settings) is None
    with pytest.raises(CallerError, match="only a server at a URL"):
        await log_in(settings, print, {})


def test_a_file_of_tokens_that_is_none(state):
    settings = ServerSettings(name="s", transport="http", url="http://x")
    state.mkdir(parents=True)
    for content in ("[]", '{"url": "http://x", "version": 2}'):
        (state / "s.json").write_text(content)
        with pytest.raises(CallerError, match=r"s\.json: not a file of tokens"):
            TokenFile(settings)

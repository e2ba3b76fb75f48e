"""A gateway on the loopback interface, and a client that says everything it was told.

Owns how a gateway starts and ends inside a test. Law: it runs in the test's own loop, so that nothing has to be
waited for with a clock.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import pytest
import uvicorn
from aiohttp import web
from tests.servers.gateway.fronts import chunk
from yarl import URL

from callboard.servers.gateway import BackendSettings, GatewaySettings
from callboard.servers.gateway.app import application
from callboard.servers.gateway.server import uvicorn_config
from callboard.text.sse import SSEDecoder

PATHS = {"responses": "/responses", "chat": "/chat/completions", "messages": "/messages"}
"""The fronts' paths behind `.url`."""


class Answer:
    """What came of a request: `status`, `headers`, `data`; `frames` and `events` of a stream, `body` of JSON."""

    def __init__(self, status, headers, data):
        self.status = status
        self.headers = headers
        self.data = data

    def __repr__(self):
        return f"<{self.status} {self.data[:2000]!r}>"

    @property
    def text(self):
        return self.data.decode()

    @property
    def body(self) -> Any:
        return msgspec.json.decode(self.data)

    @property
    def streamed(self):
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def frames(self):
        """Pairs of an event's name and its data as text; comments are none."""
        assert self.streamed, self
        decoder = SSEDecoder()
        return [(frame.event, frame.data) for frame in [*decoder.feed(self.data), *decoder.finish()] if frame.data]

    @property
    def events(self):
        """The JSON of the frames, without `[DONE]`."""
        return [msgspec.json.decode(data) for _, data in self.frames if data != "[DONE]"]


class Served:
    """A gateway that runs: `url` ends in /v1, `root` before it; `gateway` and `conversations` are what is behind the paths."""

    def __init__(self, root, services, client, server):
        self.root = root
        self.url = f"{root}/v1"
        self.gateway = services.gateway
        self.conversations = services.conversations
        self.request_log = services.request_log
        self.client = client
        self.server = server

    async def get(self, path, **headers):
        """Asks below `root`."""
        return await self.request("GET", self.root + path, headers=headers)

    async def post(self, path, body, headers=None):
        """Posts a body below `url`, bytes as they are and anything else as JSON; `path` may be a front's name."""
        url, body = self.address(path, body)
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        headers = {"content-type": "application/json", **(headers or {})}
        return await self.request("POST", URL(url, encoded=True), data=data, headers=headers)

    def address(self, path, body):
        """Where a body is posted, and what of it: on Gemini's front its model and `stream` stand in the URL."""
        if path != "gemini":
            return self.url + PATHS.get(path, path), body
        said = dict(body) if isinstance(body, dict) else {"stream": b'"stream": true' in body}
        model, stream = quote(str(said.pop("model", "m")), safe=""), said.pop("stream", False)
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"{self.root}/v1beta/models/{model}:{method}", said if isinstance(body, dict) else body

    async def request(self, method, url, **options):
        async with self.client.request(method, url, **options) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    @staticmethod
    def read(answer, data):
        """What was read of an answer bit by bit."""
        return Answer(answer.status, answer.headers, data)

    @asynccontextmanager
    async def open(self, path, body, headers=None):
        """The answer while it comes, as aiohttp's."""
        url, body = self.address(path, body)
        async with self.client.post(url, json=body, headers=headers) as answer:
            yield answer


class _Server(uvicorn.Server):
    """Started and stopped without uvicorn's loop, which looks around ten times a second and owns the signals."""

    async def start(self):
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup()
        self.server_state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        return self.servers[0].sockets[0].getsockname()[1]

    async def stop(self):
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        tasks = list(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.lifespan.shutdown()


class Unseen:
    """An extension of a gateway without a route, that has the requests logged."""

    def __init__(self, services):
        services.keep_requests()

    def routes(self):
        return []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass


class ByHand:
    """A Chat Completions backend whose answers a test writes piece by piece; `asked` gives each request as it comes."""

    def __init__(self):
        self.url = ""
        self.asked = asyncio.Queue()

    async def __aenter__(self):
        app = web.Application(client_max_size=2**30)
        app.router.add_post("/v1/chat/completions", self._reply)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _reply(self, request):
        asked = Asked(request, await request.json())
        self.asked.put_nowait(asked)
        try:
            await asked.over.wait()
        except asyncio.CancelledError:
            asked.left.set()
            raise
        return asked.answer


class Asked:
    """One request to a ByHand. `left` is set when its asker has gone."""

    def __init__(self, request, body):
        self.body = body
        self.headers = request.headers
        self.answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        self.over = asyncio.Event()
        self.left = asyncio.Event()
        self._request = request

    async def begin(self):
        if not self.answer.prepared:
            await self.answer.prepare(self._request)

    async def write(self, data):
        await self.begin()
        await self.answer.write(data)

    async def say(self, text):
        await self.write(b"data: " + msgspec.json.encode(chunk(content=text)) + b"\n\n")

    async def end(self):
        await self.write(b"data: [DONE]\n\n")
        self.over.set()

    def cut(self):
        self._request.transport.abort()
        self.over.set()


@pytest.fixture
def take_way(monkeypatch):
    """With "long", no reply is passed on as its bytes."""

    def take(way):
        if way == "long":
            monkeypatch.setattr("callboard.servers.gateway.gateway.may_pass", lambda *_, **__: False)

    return take


def behind(backend, **settings):
    """The settings of a FakeBackend; `wire` is chat unless it is said."""
    root = backend.url.removesuffix("/v1")
    url = root if settings.get("wire") == "messages" else backend.url
    return BackendSettings(**{"url": url, **settings})


@asynccontextmanager
async def serve_gateway(*given, extend=None, http=None, **settings):
    if not (given and isinstance(given[0], GatewaySettings)):
        backends = tuple([each if isinstance(each, BackendSettings) else behind(each) for each in given])
        settings = {"backends": backends, **settings}
        given = (GatewaySettings(**settings),)
    app = application(given[0], extend)
    services = app.state.services
    config = uvicorn_config(
        app, given[0], host="127.0.0.1", port=0, log_level="warning", **({"http": http} if http else {})
    )
    server = _Server(config)
    port = await server.start()
    try:
        async with aiohttp.ClientSession(auto_decompress=False) as client:
            yield Served(f"http://127.0.0.1:{port}", services, client, server)
    finally:
        await server.stop()


@pytest.fixture(scope="session")
def serving():
    """A gateway that runs while an `async with` lasts.

    It is given a GatewaySettings, or backends (FakeBackend, ByHand, BackendSettings) and fields of GatewaySettings;
    `Served` is what it gives. With `extend` its requests are logged; `http` is uvicorn's parser.
    """
    return serve_gateway


@pytest.fixture(scope="session")
def logged():
    """What makes a gateway log its requests: `serving(..., extend=logged)`, and then `Served.request_log`."""
    return Unseen


@pytest.fixture(scope="session", name="behind")
def _behind():
    """The way to a backend: `behind(fake_backend, wire="messages", ...)` gives the BackendSettings that lead to it."""
    return behind


@pytest.fixture(scope="session")
def by_hand():
    """A backend that answers when the test does: see ByHand."""
    return ByHand

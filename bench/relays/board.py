"""What the board costs the gateway while nobody looks: the same requests with its log of requests and without it.

CPU time of the gateway for a request, in one process in which every few requests the log is switched on or off: other
load on the machine, and what the processor's caches hold, fall on both alike. Of all such turns the tenth fastest in a
hundred counts, since other load only ever adds. The log is full before anything is counted, so that each request that is
added to it pushes one out. `log` is what the log's own functions take, measured alone: on a machine that does other
things as well it is the figure to trust.
"""

import asyncio
import gc
import time
import timeit
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from bench.relays import FRONTS
from starlette.types import ASGIApp

from callboard.core import Request, UserCanister
from callboard.servers.gateway import BackendSettings, GatewaySettings
from callboard.servers.gateway.app import ReplyEndpoint, application
from callboard.servers.gateway.endpoints import Services
from callboard.servers.gateway.exchange import ReplyObserver, ReplyRecord
from callboard.servers.gateway.request_log import MAX_REQUESTS, RequestLog


class Kind(NamedTuple):
    """One kind of request, and how many follow one another before the log is switched."""

    model: str
    stream: bool
    count: int
    chunks: int
    """In which its reply comes and goes, about."""


KINDS = {
    "whole": Kind("text-5", False, 20, 1),
    "stream of 5 pieces": Kind("text-5", True, 20, 5),
    "stream of 300 pieces": Kind("text-300", True, 8, 10),
    "stream of 2,000 pieces": Kind("text-2000", True, 2, 40),
}


def own_cost(chunks: int) -> float:
    """CPU microseconds of the log alone for a request whose reply comes and goes in so many chunks: the best of 15."""
    log, request = RequestLog(), Request("m", (UserCanister("x" * 600),))
    answer: Any = SimpleNamespace(status=200, headers={}, content_type="text/event-stream")

    def live(*, on: bool) -> None:
        record = ReplyRecord(front="responses")
        if not on:
            return
        entry = log.begin("responses", "bench/1.0", "ann")
        entry.set_body(b"x" * 600)
        exchange: Any = SimpleNamespace(request=request, record=record, body={})
        log.set_exchange(entry, exchange)
        nothing: Any = None
        observer = ReplyObserver(record)
        observer.on_answer(nothing, nothing, nothing, answer)
        for _ in range(chunks):
            observer.on_bytes(b"y" * 200)
            entry.add_sent(b"z" * 200)
        entry.finish(200, 0.1)

    for _ in range(MAX_REQUESTS + 20):
        live(on=True)
    off, on = [min(timeit.repeat(partial(live, on=each), number=500, repeat=15)) for each in (False, True)]
    return (on - off) / 500 * 1e6


class _NoRoutes:
    """An extension of the gateway that has the requests logged, and shows nothing."""

    def __init__(self, services: Services) -> None:
        services.keep_requests()

    def routes(self) -> list[Any]:
        return []

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        pass


async def ask(app: ASGIApp, body: bytes) -> None:
    """One request as a server passes it on."""
    path = FRONTS["responses"].path
    headers = [(b"content-type", b"application/json"), (b"host", b"localhost"), (b"user-agent", b"bench/1.0")]
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": b"", "headers": headers, "state": {},
    }  # fmt: skip
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    statuses = []

    async def receive() -> Any:
        return messages.pop() if messages else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, receive, send)
    if statuses != [200]:
        raise OSError(f"the gateway answered {statuses}")


async def measure(backend: str, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """For each kind of request: CPU microseconds without and with the log, and the difference in %."""
    settings = GatewaySettings(backends=(BackendSettings(url=f"{backend}/v1"),))
    app = application(settings, _NoRoutes)
    log = app.state.services.request_log
    endpoints = [route.app for route in app.routes if isinstance(getattr(route, "app", None), ReplyEndpoint)]

    async def spend(body: bytes, count: int, *, on: bool) -> float:
        for endpoint in endpoints:
            endpoint._request_log = log if on else None  # noqa: SLF001  # the one way to switch it
        before = time.process_time()
        for _ in range(count):
            await ask(app, body)
        return (time.process_time() - before) / count * 1e6

    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, 1000)  # as the gateway's server does
    figures = {}
    async with app.router.lifespan_context(app):
        for name, kind in KINDS.items():
            say(f"# {name}")
            body = FRONTS["responses"].body(kind.model, stream=kind.stream)
            await spend(body, MAX_REQUESTS + 20 if rounds > 1 else 2, on=True)
            costs: dict[bool, list[float]] = {False: [], True: []}
            for number in range(rounds):
                for on in (bool(number % 2), not number % 2):
                    costs[on].append(await spend(body, kind.count, on=on))
            off, on = (sorted(costs[each])[rounds // 10] for each in (False, True))
            figures[name] = {"off": off, "on": on, "%": 100 * (on - off) / off}
            figures[name]["log"] = own_cost(kind.chunks)
            figures[name]["requests"] = float(2 * kind.count * rounds)
    return figures

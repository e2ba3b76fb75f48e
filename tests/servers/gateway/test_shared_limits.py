"""Rates and breakers that gateways share through PostgreSQL, and what holds while it does not answer."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from time import monotonic

import pytest

from callboard.providers import Transport
from callboard.servers.gateway import BackendSettings, GatewaySettings, shared_limits
from callboard.servers.gateway.auth import TokenBucket
from callboard.servers.gateway.backend import Backend
from callboard.servers.gateway.circuit_breaker import SharedCircuitBreaker
from callboard.servers.gateway.gateway import open_store
from callboard.servers.gateway.shared_limits import SharedLimits

BACKEND = BackendSettings(name="big", url="https://models.example/v1")


def bucket(rate):
    return TokenBucket(rate, lambda: 0.0)


def make_backend(settings=BACKEND):
    return Backend(settings, Transport(), SharedCircuitBreaker(2, 30.0, shared=True))


@asynccontextmanager
async def opened(url, *settings):
    """The shared limits of a gateway, and its backends."""
    store = open_store(GatewaySettings(backends=(), store=url))
    await store.start()
    backends = [make_backend(each) for each in settings or (BACKEND,)]
    limits = store.share_limits(backends)
    await limits.update()
    try:
        yield limits, *backends
    finally:
        await limits.aclose()
        await store.aclose()


def break_it(breaker, owner="ann"):
    for _ in range(2):
        breaker.record_failure(monotonic(), owner)


def wait(backend, owner="ann", model="m"):
    return backend.seconds_to_wait(model, monotonic(), owner)


async def test_sqlite_shares_nothing(tmp_path):
    store = open_store(GatewaySettings(backends=(), store=f"sqlite:///{tmp_path / 'replies.db'}"))
    assert store.share_limits([]) is None
    await store.aclose()


async def test_one_bucket_for_all_gateways_and_each_key(empty_postgresql):
    async with opened(empty_postgresql) as (here, _), opened(empty_postgresql) as (there, _):
        waits = await asyncio.gather(*[each.take("ann", bucket(5)) for each in (here, there) * 6])
        assert len([each for each in waits if not each]) == 5
        assert all(0 < each <= 12 for each in waits if each)
        assert not await there.take("bob", bucket(5))
        assert not await there.take("eve", bucket(0.5))
        assert await here.take("eve", bucket(0.5)) > 60


async def test_a_key_that_must_wait_is_refused_without_a_statement(empty_postgresql, monkeypatch):
    async with opened(empty_postgresql) as (limits, _):
        assert [bool(await limits.take("ann", bucket(1))) for _ in range(2)] == [False, True]
        monkeypatch.setattr(limits, "_ask", None)
        assert 50 < await limits.take("ann", bucket(1)) < 60


async def test_a_breaker_opens_and_closes_in_all_gateways(empty_postgresql):
    async with opened(empty_postgresql) as (here, mine), opened(empty_postgresql) as (there, theirs):
        break_it(mine.breaker)
        break_it(mine.model_breaker("m2"), "bob")
        await here.update()
        await there.update()
        assert 20 < wait(theirs) <= 30
        assert wait(theirs, "bob", "m2") > 20
        assert not wait(theirs, "bob")  # whose own requests did not fail
        async with opened(empty_postgresql) as (_, later):
            assert wait(later) > 20
        theirs.record_success("m2")
        await there.update()
        await here.update()
        assert not wait(mine)
        assert not wait(mine, "bob", "m2")
        await there.update()
        assert not wait(theirs)


async def test_the_pause_of_all_clients_is_shared(empty_postgresql):
    async with opened(empty_postgresql) as (here, mine), opened(empty_postgresql) as (there, theirs):
        for owner in ("ann", "bob"):
            mine.breaker.record_failure(monotonic(), owner)
        await here.update()
        await there.update()
        assert theirs.breaker.state(monotonic()) == "open"
        assert wait(theirs, "eve") > 20
        mine.record_success("m")
        await here.update()
        await there.update()
        assert theirs.breaker.state(monotonic()) == "closed"


def test_the_first_failure_after_a_shared_pause_opens_the_breaker_again():
    breaker = SharedCircuitBreaker(5, 30.0)
    breaker.pause(100.0, "ann", 10.0)
    assert breaker.seconds_to_wait(105.0, "ann") == 5
    assert breaker.seconds_to_wait(110.0, "ann") == 0
    breaker.record_failure(110.0, "ann")
    assert breaker.seconds_to_wait(111.0, "ann") == 29


async def test_a_backend_of_one_machine_is_not_that_of_another(empty_postgresql, monkeypatch):
    near, local = BackendSettings(url="http://127.0.0.1:8080/v1"), BackendSettings(local="qwen2.5-coder-0.5b")
    async with opened(empty_postgresql, near, local) as (here, *mine):
        async with opened(empty_postgresql, near, local) as (there, *theirs):
            break_it(mine[0].breaker)
            await here.update()
            await there.update()
            assert wait(theirs[0])
            assert not wait(theirs[1])
        monkeypatch.setattr(shared_limits.socket, "gethostname", lambda: "another")
        async with opened(empty_postgresql, near, local) as (_, *theirs):
            assert not wait(theirs[0])


async def test_rows_of_others_and_of_nobody_change_nothing(empty_postgresql):
    import psycopg

    rows = ["", "[", "[1]", '["nobody", "", null]', '{"backend": "big"}', "gateway", "[" * 5000]
    with psycopg.connect(empty_postgresql, autocommit=True) as connection:
        async with opened(empty_postgresql) as (limits, backend):
            for row in rows:
                connection.execute("INSERT INTO callboard_pauses VALUES (%s, 'Infinity')", [row])
            await limits.update()
            await limits.update()
            assert not wait(backend)
            name = connection.execute("SELECT count(*) FROM callboard_pauses WHERE name <> ALL(%s)", [rows]).fetchone()
            assert name == (1,)  # this gateway itself
            break_it(backend.breaker)
            await limits.update()
            connection.execute("UPDATE callboard_pauses SET until = 'Infinity'")
            await limits.update()
            assert wait(backend) <= 600


class Down:
    """A store whose database does not answer: it fails, or hangs."""

    def __init__(self):
        self.answers = False
        self.hangs = False
        self.asked = 0

    async def run(self, work, threads):
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.answers:
            return {"gateway 1": 5.0, "gateway 2": 5.0}
        raise ConnectionError("it does not answer")

    def describe(self, error):
        return str(error)


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_gateway_keeps_to_its_part_while_the_database_does_not_answer(hangs, caplog, monkeypatch):
    monkeypatch.setattr(shared_limits, "_ANSWER_SECONDS", 0.01)
    store, backend = Down(), make_backend()
    limits = SharedLimits(store, [backend])
    store.answers = True
    await limits.update()
    store.answers, store.hangs = False, hangs
    break_it(backend.breaker)
    own = bucket(10)
    with caplog.at_level(logging.WARNING, "callboard.gateway"):
        passed = [not await limits.take("ann", own) for _ in range(20)]
        asked = store.asked
        await limits.update()
        assert (passed.count(True), asked) == (5, 2)  # one request finds out, and the others do not wait
        assert wait(backend)
        store.answers, store.hangs = True, False
        await limits.update()
    first, last = [each.getMessage() for each in caplog.records]
    assert first.startswith("limits are not shared until the database answers; this gateway allows 1/2 of each rate: ")
    assert last == "the database answers again: limits are shared"

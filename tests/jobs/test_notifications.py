"""Notifications that a job waits or has ended."""

import asyncio
import json
import os
import sys
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from sqlalchemy import update

from callboard.configuration.jobs import NotifySettings
from callboard.core import InvocationCanister
from callboard.jobs.job import Approval
from callboard.jobs.notifications import open_notifier, tell_due
from callboard.jobs.store import DurableStore
from callboard.jobs.tables import notifications

CALL = InvocationCanister(identifier="c", name="deploy", arguments={"token": "hunter2"})
ASKED = Approval(call_id="c", name="deploy", arguments={"token": "hunter2"}, why="it is live", digest="d")
WRITE = "import os, sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n' + repr(sorted(os.environ)) + '\\n')"


class Clock:
    """The time, which tests move."""

    def __init__(self):
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self):
        return self.now

    def forward(self, **delta):
        self.now += timedelta(**delta)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(database, clock):
    return DurableStore(database, clock=clock)


@pytest.fixture
def tell(database, clock):
    """Send due notifications to these places, and return the shown failures."""

    async def tell(*places, seconds=30):
        shown = []
        return await tell_due(database, places, shown.append, seconds=seconds, clock=clock), shown

    return tell


@pytest.fixture
def file(tmp_path):
    """A command that writes its notifications to a file, and the file's content."""
    path = tmp_path / "told"

    def read():
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines[::2]], lines[1::2]

    read.place = NotifySettings(command=(sys.executable, "-c", WRITE, str(path)))
    return read


async def make_waiting(store, **fields):
    job = await store.create("agent", description="Ship it\nwith hunter2")
    claim = await store.claim(job.id, 1, "worker")
    await claim.append([CALL], rounds=1, calls=1, cost=0.5)
    await claim.wait([ASKED], **fields)
    return job


def is_alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


class Webhook:
    """A server that answers with these statuses, one after another, and then hangs."""

    def __init__(self, *statuses):
        self.statuses = [*statuses]
        self.bodies = []
        self.asked = asyncio.Event()

    async def __aenter__(self):
        app = web.Application()
        app.router.add_post("/secret", self.answer)
        self.runner = web.AppRunner(app, shutdown_timeout=0.01)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.place = NotifySettings(url=f"http://127.0.0.1:{self.runner.addresses[0][1]}/secret")
        return self

    async def answer(self, request):
        self.bodies.append(await request.json())
        self.asked.set()
        if not self.statuses:
            await asyncio.Event().wait()
        return web.Response(status=self.statuses.pop(0), headers={"location": "/secret"})

    async def __aexit__(self, *_):
        await self.runner.cleanup()


async def test_a_command_is_notified_of_a_waiting_and_an_ended_job(store, tell, file, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    job = await make_waiting(store, reason="a call wants approval")
    assert await tell(file.place) == (1, [])
    assert await tell(file.place) == (0, [])
    await store.request_cancel(job.id)
    assert await tell(file.place) == (1, [])
    outcome = job
    job = outcome
    (waits, ended), environments = file()
    assert waits == {
        "id": f"{job.id}-1-waiting",
        "job": job.id,
        "state": "waiting",
        "reason": "a call wants approval",
        "waits_for": "approval",
        "at": "2026-01-01T00:00:00Z",
        "asks": [{"call_id": "c", "name": "deploy", "digest": "d", "is_question": False}],
        "kind": "agent",
        "title": "Ship it",
        "directory": "",
        "model": "",
        "phase": "",
        "error": "",
        "rounds": 1,
        "calls": 1,
        "usage": {},
        "cost": 0.5,
        "attempt": 1,
    }
    assert (ended["state"], ended["asks"]) == ("cancelled", [])
    assert "HOME" in environments[0]
    assert "OPENAI_API_KEY" not in environments[0]


async def test_a_job_that_continues_on_its_own_sends_no_notification(store, tell, file):
    job = await store.create("agent")
    claim = await store.claim(job.id, 1, "worker")
    await claim.wait(waits_for="rate_limit", delay=1)
    claim = await store.claim(job.id, 2, "worker")
    await claim.go_on()
    outcome = await tell(file.place)
    assert outcome == (0, [])


async def test_a_webhook_gets_a_post_and_only_failed_places_get_another(store, tell, file, clock):
    async with Webhook(500, 302, 204) as hook:
        job = await make_waiting(store)
        count, shown = await tell(file.place, hook.place)
        assert (count, shown) == (1, [f"127.0.0.1 could not be notified of job {job.id}: it answered with status 500"])
        assert await tell(file.place, hook.place) == (0, [])
        clock.forward(seconds=10)
        assert "status 302" in (await tell(file.place, hook.place))[1][0]
        clock.forward(seconds=59)
        assert await tell(file.place, hook.place) == (0, [])
        clock.forward(seconds=1)
        assert await tell(file.place, hook.place) == (1, [])
        clock.forward(days=1)
        assert await tell(file.place, hook.place) == (0, [])
        outcome = hook.bodies
    assert [each["attempt"] for each in outcome] == [1, 2, 3]
    assert len(file()[0]) == 1


async def test_a_webhook_that_hangs_holds_nothing_up(store, tell, file):
    async with Webhook() as hook:
        await make_waiting(store)
        outcome = await tell(hook.place, file.place, seconds=0.2)
    count, (shown,) = outcome
    assert count == 1
    assert shown.endswith("it took more than 0.2 s")
    assert "secret" not in shown


async def test_a_command_that_hangs_is_killed_with_its_processes(store, tell, tmp_path):
    path = tmp_path / "pid"
    os.mkfifo(path)
    sleeper = f"sleep 1000 & echo $! > {path}; wait"
    await make_waiting(store)
    reading = asyncio.create_task(asyncio.to_thread(path.read_text))
    telling = asyncio.create_task(tell(NotifySettings(command=("sh", "-c", sleeper)), seconds=1))
    outcome = int(await reading), await telling
    process, (_, shown) = outcome
    assert "more than 1 s" in shown[0]
    while is_alive(process):
        pass  # until the kernel has taken it away


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (NotifySettings(command=("no-such-program",)), "no such program"),
        (NotifySettings(command=("false",)), "it ended with status 1"),
        (NotifySettings(url="http://127.0.0.1:1/secret"), "it cannot be reached"),
    ],
)
async def test_a_failed_notification_is_shown_with_its_reason(store, tell, place, why):
    await make_waiting(store)
    outcome = await tell(place)
    _, (shown,) = outcome
    assert why in shown
    assert "secret" not in shown


async def test_a_notification_of_a_dead_process_is_sent_by_the_next(store, file, tell, clock):
    await make_waiting(store)
    async with Webhook() as hook:
        dying = asyncio.create_task(tell(hook.place))
        await hook.asked.wait()
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
    assert await tell(file.place) == (0, [])
    clock.forward(seconds=60)
    assert await tell(file.place) == (1, [])
    assert [each["attempt"] for each in file()[0]] == [2]


async def test_old_news_is_dropped_and_a_row_that_cannot_be_read_holds_up_no_other(store, database, tell, file, clock):
    await make_waiting(store)
    clock.forward(days=3, seconds=1)
    assert await tell(file.place) == (0, [])
    await make_waiting(store)
    database.run_blocking(lambda connection: connection.execute(update(notifications).values(done="no JSON")))
    clock.forward(seconds=1)
    await make_waiting(store)
    assert await tell(file.place) == (1, [])


async def test_a_removed_job_sends_no_notification(store, tell, file):
    job = await make_waiting(store)
    await store.request_cancel(job.id)
    await store.remove(job.id)
    outcome = await tell(file.place)
    assert outcome == (0, [])


async def test_beside_a_worker_it_tells_what_comes_and_ends_with_it(store, database, clock):
    async with Webhook(204) as hook:
        async with open_notifier(database, [hook.place], print, clock=clock):
            await make_waiting(store)
            await hook.asked.wait()
        async with open_notifier(database, [], print, clock=clock):
            pass
        outcome = hook.bodies
    assert len(outcome) == 1

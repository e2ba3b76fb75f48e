"""Schedules submit each job once at its time, and never while the last job runs."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.tables import table

from callboard.errors import CallerError
from callboard.jobs.job import JobTemplate
from callboard.jobs.schedules import ScheduleStore, next_time
from callboard.jobs.store import DurableStore

START = datetime(2026, 1, 1, 2, 30, tzinfo=UTC)
TEMPLATE = JobTemplate(
    kind="agent", description="Count.\nSlowly.", input={"agent": "crew:clerk"}, queue="mine", priority=-2
)


class Clock:
    """A clock that the test sets."""

    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now

    def go_to(self, hour, day=1):
        self.now = START.replace(day=day, hour=hour, minute=0)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def schedules(database, queue, clock):
    return ScheduleStore(database, queue, clock=clock)


@pytest.fixture
def store(database, queue, clock):
    return DurableStore(database, queue, clock=clock)


async def test_a_schedule_submits_its_job_each_time_that_it_is_due(schedules, store, queue, clock):
    await schedules.add("hourly", "0 * * * *", "UTC", TEMPLATE)
    assert await schedules.submit_due() == []
    clock.go_to(3)
    (job,) = await schedules.submit_due()
    assert await schedules.submit_due() == []
    assert job == await store.get(job.id)
    assert (job.schedule, job.title, job.description) == ("hourly", "Count.", "Count.\nSlowly.")
    assert (job.kind, job.input, job.queue, job.priority) == ("agent", {"agent": "crew:clerk"}, "mine", -2)
    assert queue.segments(job) == {1: 0}
    await store.request_cancel(job.id)
    clock.go_to(4)
    (second,) = await schedules.submit_due()
    (schedule,) = await schedules.list()
    assert (schedule.last_job, schedule.last_state, schedule.last_at) == (second.id, "pending", clock.now)
    assert schedule.next_at == clock.now + timedelta(hours=1)


async def test_many_workers_submit_one_job(schedules, database, queue, store, clock):
    await schedules.add("hourly", "@hourly", "UTC", TEMPLATE)
    clock.go_to(3)
    workers = [ScheduleStore(database, queue, clock=clock) for _ in range(8)]
    submitted = await asyncio.gather(*[each.submit_due() for each in workers])
    assert sum(map(len, submitted)) == 1
    assert len(await store.list()) == 1


async def test_what_was_missed_is_submitted_once(schedules, store, clock):
    await schedules.add("hourly", "0 * * * *", "UTC", TEMPLATE)
    clock.go_to(12, day=3)
    (job,) = await schedules.submit_due()
    await store.request_cancel(job.id)
    assert await schedules.submit_due() == []
    assert (await schedules.list())[0].next_at == clock.now + timedelta(hours=1)


async def test_no_job_is_submitted_while_the_last_one_has_not_ended(schedules, store, clock):
    await schedules.add("hourly", "0 * * * *", "UTC", TEMPLATE)
    clock.go_to(3)
    (job,) = await schedules.submit_due()
    for hour in (4, 5):
        clock.go_to(hour)
        assert await schedules.submit_due() == []
    await store.request_cancel(job.id)
    assert await schedules.submit_due() == []  # its next time is 6:00
    clock.go_to(6)
    (job,) = await schedules.submit_due()
    await store.request_cancel(job.id)
    await store.remove(job.id)
    clock.go_to(7)
    assert len(await schedules.submit_due()) == 1


async def test_a_schedule_that_is_paused_submits_nothing_and_makes_up_for_nothing(schedules, clock):
    await schedules.add("hourly", "0 * * * *", "UTC", TEMPLATE)
    await schedules.pause("hourly")
    clock.go_to(5)
    assert await schedules.submit_due() == []
    assert (await schedules.resume("hourly")).next_at == clock.now + timedelta(hours=1)
    assert await schedules.submit_due() == []
    clock.go_to(6)
    assert len(await schedules.submit_due()) == 1


async def test_a_schedule_that_is_removed_submits_nothing_and_its_name_is_free(schedules, clock):
    await schedules.add("a", "0 * * * *", "UTC", TEMPLATE)
    clock.go_to(3)
    with pytest.raises(CallerError, match="there is a schedule of this name"):
        await schedules.add("a", "0 0 * * *", "UTC", TEMPLATE)
    await schedules.remove("a")
    assert await schedules.submit_due() == []
    await schedules.add("a", "0 0 * * *", "UTC", TEMPLATE)
    assert [each.cron for each in await schedules.list()] == ["0 0 * * *"]


async def test_what_cannot_be_added_or_changed(schedules):
    for name in ("", "a b", "../a", "a" * 65, "-a"):
        with pytest.raises(CallerError, match="not a name for a schedule"):
            await schedules.add(name, "0 * * * *", "UTC", TEMPLATE)
    with pytest.raises(CallerError, match="no hour: '24'"):
        await schedules.add("a", "0 24 * * *", "UTC", TEMPLATE)
    for change in (schedules.pause, schedules.resume, schedules.remove):
        with pytest.raises(CallerError, match="no such schedule"):
            await change("a")


async def test_a_schedule_in_another_format_holds_up_no_other_one(schedules, database, clock, caplog):
    for name in ("a", "b", "c"):
        await schedules.add(name, "0 * * * *", "UTC", TEMPLATE)
    with database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE callboard_schedules SET template = '{}' WHERE name = 'a'")
        connection.exec_driver_sql("UPDATE callboard_schedules SET cron = 'often' WHERE name = 'b'")
    clock.go_to(3)
    assert [each.schedule for each in await schedules.submit_due()] == ["c"]
    await schedules.submit_due()  # says nothing again
    assert [each.split(":")[0] for each in caplog.messages] == [f"the schedule {name} submits nothing" for name in "ab"]


async def test_a_schedule_and_its_jobs_as_programs_read_them(schedules, clock):
    await schedules.add("hourly", "0 * * * *", "Europe/Berlin", TEMPLATE)
    (schedule,) = await schedules.list()
    assert schedule.as_json() == {
        "name": "hourly", "cron": "0 * * * *", "zone": "Europe/Berlin", "is_paused": False,
        "next_at": "2026-01-01T03:00:00Z", "last_at": None, "last_job": "", "last_state": None,
        "created_at": "2026-01-01T02:30:00Z", "kind": "agent", "description": "Count.\nSlowly.", "directory": "",
        "model": "", "input": {"agent": "crew:clerk"}, "queue": "mine", "priority": -2,
    }  # fmt: skip
    clock.go_to(3)
    (job,) = await schedules.submit_due()
    assert job.as_json()["schedule"] == "hourly"


SUNDAY = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
"""Half an hour before Berlin's clocks go from 2:00 to 3:00."""


@table(
    ("cron", "zone", "after", "due"),
    [
        ("30 3 * * mon-fri", "UTC", "2026-11-20T12:00", "2026-11-23T03:30"),
        ("*/15  9-17 * * *", "UTC", "2026-11-20T17:45", "2026-11-21T09:00"),
        ("0 0 1,15 * fri", "UTC", "2026-11-20T12:00", "2026-11-27T00:00"),  # either of both days
        ("0 12 L * *", "UTC", "2026-02-01T00:00", "2026-02-28T12:00"),
        ("@Daily", "America/New_York", "2026-11-20T12:00", "2026-11-21T05:00"),
        ("0 3 * * *", "Europe/Berlin", "2026-01-01T02:00", "2026-01-02T02:00"),
        ("0 3 * * *", "Europe/Berlin", "2026-06-30T01:00", "2026-07-01T01:00"),
        # An hour that the clocks leave out, and one that they go through twice.
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T00:30", "2026-03-29T01:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:00", "2026-10-25T00:30"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30", "2026-10-26T01:30"),
        ("@hourly", "Europe/Berlin", "2026-10-25T00:30", "2026-10-25T01:00"),
    ],
)
def test_the_next_time(cron, zone, after, due):
    moment = datetime.fromisoformat(after).replace(tzinfo=UTC)
    assert next_time(cron, zone, moment) == datetime.fromisoformat(due).replace(tzinfo=UTC)


@table(
    ("cron", "message"),
    [
        ("60 * * * *", "no minute: '60'"),
        ("0 24 * * *", "no hour: '24'"),
        ("0 0 32 * *", "no day of the month: '32'"),
        ("0 0 * 13 *", "no month: '13'"),
        ("0 0 * * monday", "no day of the week: 'monday'"),
        ("*/0 * * * *", "no minute: '*/0'"),
        ("r * * * *", "no minute: 'r'"),
        ("0 H(0-7) * * *", "no hour: 'H(0-7)'"),
        ("* * * *", "it has 4 fields"),
        ("0 * * * * *", "it has 6 fields"),
        ("", "it has 0 fields"),
        ("@reboot", "it has 1 fields"),
        ("0 0 31 2 *", "it is never due"),
    ],
)
def test_an_error_of_a_cron_expression_names_the_field(cron, message):
    with pytest.raises(CallerError) as caught:
        next_time(cron, "UTC", SUNDAY)
    assert str(caught.value).startswith(f"cron {cron!r}: {message}; ")


@table("zone", ["Berlin", "", "../../etc/passwd", "/etc/localtime", "Europe", "a\0b"])
def test_a_time_zone_that_there_is_not(zone):
    with pytest.raises(CallerError, match="no such time zone"):
        next_time("0 0 * * *", zone, SUNDAY)

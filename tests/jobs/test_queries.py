"""Queries for overviews of the jobs, on both databases."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.core import AssistantCanister, UserCanister
from callboard.errors import CallerError
from callboard.jobs.job import Approval
from callboard.jobs.tables import to_microseconds, to_moment, to_row


async def make_waiting(store):
    job = await store.create("agent", description="Ship it\nnow", items=[UserCanister("Ship it")])
    claim = await store.claim(job.id, 1, "worker")
    await claim.append([AssistantCanister("One."), AssistantCanister("Two.")], rounds=1)
    asked = [Approval(call_id=f"call_{n}", name="deploy", arguments={"n": n}, digest=f"d{n}") for n in range(2)]
    await claim.wait(asked)
    return job


async def test_an_overview(store):
    today = datetime.now(UTC).date()
    assert await store.read_figures(today) == ({}, {}, 0.0)
    before = await store.last_change()
    waiting = await make_waiting(store)
    await store.create("agent", description="another")
    assert await store.read_figures(today) == ({"waiting": 1, "pending": 1}, {"waiting": 1, "pending": 1}, 0.0)
    assert await store.read_choices() == (["agent"], [])
    assert await store.last_change() != before
    asked = await store.open_questions()
    assert [(each.job_id, each.job_title, each.call_id, each.arguments) for each in asked] == [
        (waiting.id, "Ship it", "call_0", {"n": 0}),
        (waiting.id, "Ship it", "call_1", {"n": 1}),
    ]
    await store.answer(waiting.id, "call_0", digest="d0")
    assert [each.call_id for each in await store.open_questions()] == ["call_1"]
    await store.request_cancel(waiting.id)
    assert await store.open_questions() == []
    assert (await store.read_summary(waiting.id)).title == "Ship it"
    assert [tuple(each) for each in await store.rounds(waiting.id)] == [(0, 1, 1), (1, 2, 3)]
    with pytest.raises(CallerError):
        await store.read_summary("nothing")


MOMENTS = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001  # they get UTC


@given(MOMENTS)
def test_a_time_comes_back_to_the_microsecond(moment):
    assert to_moment(to_microseconds(moment)) == moment


def test_a_time_of_another_zone_is_the_same_moment():
    from datetime import timezone

    moment = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    assert to_moment(to_microseconds(moment)) == moment


def test_each_value_is_one_that_a_database_holds():
    fields = {"a": "x\0\udcff", "b": {"k": "\0"}, "c": None, "d": True, "e": 1.5, "f": datetime(1970, 1, 1, tzinfo=UTC)}
    assert to_row(fields) == {"a": "x\\x00\\udcff", "b": '{"k":"\\u0000"}', "c": None, "d": True, "e": 1.5, "f": 0}

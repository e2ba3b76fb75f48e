"""What is made of the requests of a gateway's log."""

from __future__ import annotations

import asyncio
import sys

import pytest
from tests.servers.gateway.fronts import FRONTS, request
from tests.tables import table

from callboard.core import ReplyStarted
from callboard.errors import CallerError
from callboard.servers.gateway.traffic import MAX_REPEATED, Traffic, select_page
from callboard.servers.gateway.traffic_values import RepeatOrder, RequestRow, RowFilter
from callboard.testing import FakeBackend, Silence

SECRET = "sk-of-the-settings-0123456789"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("front", FRONTS)
async def test_a_request_of_each_front_can_be_asked_again(serving, logged, front, stream):
    """What a client of Gemini says in its URL is not kept."""
    async with FakeBackend(["Yes.", "No."]) as backend, serving(backend, extend=logged) as served:
        await served.post(front, request(front, "?", stream=stream))
        [entry] = served.request_log.newest()
        traffic = Traffic(served.gateway, served.request_log)
        repeated = await traffic.repeat(entry.identifier, RepeatOrder())
        while (view := await traffic.view(repeated)).row.is_open:  # noqa: ASYNC110 - it says no more than that
            await asyncio.sleep(0)
    assert (view.row.end, view.row.status) == ("stop", 200)
    assert '"No.' in view.answer


async def test_few_are_asked_again_at_once_and_they_end_with_their_gateway(serving, logged):
    async with (
        FakeBackend(["Yes.", *[Silence([ReplyStarted("r", "m")])] * MAX_REPEATED]) as backend,
        serving(backend, extend=logged) as served,
    ):
        await served.post("chat", request("chat", "?"))
        [entry] = served.request_log.newest()
        async with Traffic(served.gateway, served.request_log) as traffic:
            for _ in range(MAX_REPEATED):
                await traffic.repeat(entry.identifier, RepeatOrder())
            with pytest.raises(CallerError, match="are already open"):
                await traffic.repeat(entry.identifier, RepeatOrder())
            page = await traffic.page(RowFilter(again_of=entry.identifier))
        before, after = page, await traffic.page(RowFilter(again_of=entry.identifier))
    assert [row.end for row in before.rows] == ["open"] * MAX_REPEATED
    assert [row.end for row in after.rows] == ["left"] * MAX_REPEATED


async def test_what_is_nested_too_deep_to_be_shown_leaves_the_rest_to_be_seen(serving, logged):
    nested = []
    for _ in range(450):
        nested = [nested]
    function = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"enum": nested}}}}
    body = {"tools": [{"type": "function", "function": function}], **request("chat", "?")}

    async def view_below(frames, traffic, identifier):
        if frames:
            return await view_below(frames - 1, traffic, identifier)
        return await traffic.view(identifier)

    async with FakeBackend(["Yes."]) as backend, serving(backend, extend=logged) as served:
        await served.post("chat", {"model": "m", **body})
        [entry] = served.request_log.newest()
        view = await view_below(500, Traffic(served.gateway, served.request_log), entry.identifier)
    if sys.version_info < (3, 12):  # newer ones do not count the frames below for JSON
        assert view.body == view.replies[0].sent == "(not shown: nested too deep)"
    assert "Yes." in view.answer


async def test_a_test_of_a_reply_holds_no_secret_of_the_settings(serving, logged, behind):
    async with (
        FakeBackend([f"My key is {SECRET}."]) as backend,
        serving(behind(backend, key=SECRET), extend=logged) as served,
    ):
        await served.post("chat", {"model": "m", "messages": [{"role": "user", "content": "Hi"}]})
        [entry] = served.request_log.newest()
        kept = await Traffic(served.gateway, served.request_log).kept_reply(entry.identifier)
    assert "My key is ***." in str(kept.canisters)
    assert SECRET not in str(kept)


def row(number, **fields):
    known = {"front": "chat", "client": "", "key": "", "model": "m", "backend": "b", "end": "stop", "status": 200}
    return RequestRow(
        identifier=f"w-{number}",
        number=number,
        **{**known, "at": 100.0 + number, "first_seconds": 0.1, "seconds": 1.0, **fields},
    )


ROWS = [
    row(6, again_of="w-1"),
    row(5, model="other", end="refused", why="invalid_json", dropped=("a", "b")),
    row(4, end="open", first_seconds=None),
    row(3, end="failed", why="timeout: it was silent", seconds=60.0),
    row(2, recovered=2, repaired=1),
    row(1),
]


@table("limit", [1, 2, 4, 6, 7])
def test_pages_hold_each_row_once(limit):
    numbers, cursor = [], ""
    while True:
        page = select_page(ROWS, RowFilter(), cursor, limit)
        numbers += [each.number for each in page.rows]
        if not (cursor := page.cursor):
            break
    assert numbers == [6, 5, 4, 3, 2, 1]
    assert page.models == ("m", "other")


def test_a_cursor_that_is_none_is_the_beginning():
    for cursor in ("x", "9" * 5000, "\u0663\u0663"):
        assert select_page(ROWS, RowFilter(), cursor, 1).rows[0].number == 6


@table(
    ("fields", "numbers"),
    [
        ({}, [6, 5, 4, 3, 2, 1]),
        ({"model": "other"}, [5]),
        ({"backend": "b", "end": "open"}, [4]),
        ({"problem": "failed"}, [5, 3]),
        ({"problem": "dropped"}, [5]),
        ({"problem": "repaired"}, [2]),
        ({"problem": "recovered"}, [2]),
        ({"problem": "of no such name"}, []),
        ({"again_of": "w-1"}, [6]),
    ],
)
def test_filters(fields, numbers):
    assert [each.number for each in ROWS if RowFilter(**fields).matches(each)] == numbers

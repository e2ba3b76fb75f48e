"""Figures of the gateway's requests, and pages of their list."""

from __future__ import annotations

from itertools import permutations

import pytest
from msgspec.structs import replace

from callboard.servers.gateway.failure_labels import FailureLabel
from callboard.servers.gateway.traffic_overview import make_overview, matches, select_page
from callboard.servers.gateway.traffic_values import BackendState, RequestRow, RowFilter


def row(number, **fields):
    known = {"front": "chat", "client": "", "key": "", "model": "m", "backend": "b", "end": "stop", "status": 200}
    return RequestRow(
        identifier=f"w-{number}",
        number=number,
        **{**known, "at": 100.0 + number, "first_seconds": 0.1, "seconds": 1.0, **fields},
    )


ROWS = [
    row(1, seconds=1.0, output=5),
    row(2, seconds=3.0, output=7, recovered=2, repaired=1),
    row(3, end="failed", why="timeout: it was silent", seconds=60.0),
    row(4, end="open", first_seconds=None),
    row(5, model="other", end="refused", why="invalid_json", dropped=("a", "b")),
    row(6, labels=(FailureLabel("wrong_tool", "x"), FailureLabel("wrong_tool", "y")), again_of="w-1"),
]
BACKENDS = [BackendState("w", "b", "chat", "closed", 0, ("m",))]


def test_what_the_rows_say_together():
    overview = make_overview(ROWS, BACKENDS, 163.5, ["w"])
    assert (overview.open, overview.last_minute, overview.count, overview.since) == (1, 3, 6, 101.0)
    assert (overview.dropped, overview.repaired, overview.recovered) == (1, 1, 2)
    assert overview.labels == (("wrong_tool", 2),)
    assert overview.failures == (("invalid_json", 1), ("timeout", 1))
    first, second = overview.models
    assert (first.model, first.count, first.open, first.failed, first.output) == ("m", 5, 1, 1, 12)
    assert (first.seconds, first.first_seconds) == (1.0, 0.1)  # of those that ended well
    assert (second.model, second.seconds, second.seconds_high) == ("other", None, None)


def test_no_figure_is_beyond_what_was_seen():
    [figures] = make_overview([row(1, seconds=1.0), row(2, seconds=3.0)], [], 0.0, ["w"]).models
    assert figures.seconds <= figures.seconds_high <= 3.0


def test_the_order_of_the_rows_means_nothing():
    expected = make_overview(ROWS, BACKENDS, 163.5, ["w"])
    assert all(make_overview(rows, BACKENDS, 163.5, ["w"]) == expected for rows in permutations(ROWS))


def test_nothing_was_asked():
    overview = make_overview([], [], 10.0, ["w"])
    assert (overview.count, overview.since, overview.models) == (0, 10.0, ())


@pytest.mark.parametrize("limit", [1, 2, 4, 6, 7])
def test_pages_hold_each_row_once(limit):
    numbers, cursor = [], ""
    while True:
        page = select_page(ROWS, RowFilter(), cursor, limit)
        numbers += [each.number for each in page.rows]
        if not (cursor := page.cursor):
            break
    assert numbers == [6, 5, 4, 3, 2, 1]


def test_requests_of_two_workers_that_began_at_once_are_on_one_page_each():
    rows = [row(1, at=5.0), replace(row(1, at=5.0), identifier="v-1")]
    page = select_page(rows, RowFilter(), "", 1)
    assert {*page.rows, *select_page(rows, RowFilter(), page.cursor, 1).rows} == {*rows}


def test_a_cursor_that_is_none_is_the_beginning():
    assert select_page(ROWS, RowFilter(), "x", 1).rows[0].number == 6


@pytest.mark.parametrize(
    ("fields", "numbers"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"model": "other"}, [5]),
        ({"backend": "b", "end": "open"}, [4]),
        ({"problem": "failed"}, [3, 5]),
        ({"problem": "dropped"}, [5]),
        ({"problem": "repaired"}, [2]),
        ({"problem": "recovered"}, [2]),
        ({"problem": "labels"}, [6]),
        ({"problem": "of no such name"}, []),
        ({"again_of": "w-1"}, [6]),
    ],
)
def test_filters(fields, numbers):
    assert [each.number for each in ROWS if matches(each, RowFilter(**fields))] == numbers

"""The results of tools in the database: how long, how many and how much."""

import asyncio

import pytest
from sqlalchemy import text

from callboard.core import PictureContent, ResultCanister, TextualContent
from callboard.jobs import result_cache
from callboard.jobs.result_cache import DatabaseResults

PNG = b"\x89PNG\r\n\x1a\n\x00"


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def results(database, clock):
    return DatabaseResults(database, clock=lambda: clock[0])


def kept(results, key, seconds=60):
    result = asyncio.run(results.find(key, seconds))
    return result and result.content


def save(results, key, content="text", seconds=60):
    asyncio.run(results.save(key, ResultCanister(invocation_id="call_1", content=content), seconds))


def count(results):
    return results.database.run_blocking(lambda each: each.scalar(text("select count(*) from callboard_results")))


def test_a_result_is_what_it_was(results):
    content = (TextualContent("a\0b\ud7ff"), PictureContent(PNG, "image/png"))
    save(results, b"\x00key", content)
    assert kept(results, b"\x00key") == content
    assert kept(results, b"other") is None
    save(results, b"\x00key", "newer")
    assert kept(results, b"\x00key") == (TextualContent("newer"),)


def test_what_has_expired_is_not_given_and_goes(results, clock):
    save(results, b"short", seconds=10)
    save(results, b"long", seconds=100)
    clock[0] += 11
    assert kept(results, b"short", 10) is None
    assert kept(results, b"long", 100)
    # Its tool keeps results for a shorter time now.
    assert kept(results, b"long", 10) is None
    assert count(results) == 2
    save(results, b"another")
    assert count(results) == 2
    # A clock that was set back: nobody knows how old it is.
    clock[0] = 500.0
    assert kept(results, b"long", 100) is None


def test_the_oldest_go_where_there_are_too_many_or_they_are_too_large(results, clock, monkeypatch):
    monkeypatch.setattr(result_cache, "MAX_BYTES", 4000)
    for number in range(20):
        clock[0] += 1
        save(results, b"%d" % number, "x" * 900)
    assert [number for number in range(20) if kept(results, b"%d" % number)] == [16, 17, 18, 19]
    save(results, b"huge", "x" * result_cache.MAX_RESULT)
    assert kept(results, b"huge") is None
    assert count(results) == 4


def test_there_are_no_more_rows_than_may_be(database, clock, monkeypatch):
    monkeypatch.setattr(result_cache, "MAX_ROWS", 3)
    results = DatabaseResults(database, clock=lambda: clock[0])
    for number in range(5):
        clock[0] += 1
        save(results, b"%d" % number)
    assert [number for number in range(5) if kept(results, b"%d" % number)] == [2, 3, 4]


def test_a_row_that_is_no_result_is_passed_over(results):
    save(results, b"key")
    results.database.run_blocking(
        lambda each: each.execute(text("update callboard_results set content = 'no'")).rowcount
    )
    assert kept(results, b"key") is None


def test_a_database_of_jobs_gets_the_table_when_a_tool_asks(database):
    DatabaseResults(database)
    save(DatabaseResults(database), b"key")
    assert kept(DatabaseResults(database), b"key")

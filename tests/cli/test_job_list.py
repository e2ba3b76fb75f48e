"""`callboard jobs list` on a terminal, and its search."""

import asyncio
import re
from datetime import UTC, datetime, timedelta

from tests.cli.durable import make, make_ended, make_waiting, store_of_user

from callboard.cli.job_list import draw_table, shorten_ids
from callboard.jobs.store import DurableStore
from callboard.text.duration import format_age


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def make_at(minutes, build=make_ended, **fields):
    """A job that was made so many minutes ago."""

    async def work(store):
        return await build(DurableStore(store.database, clock=lambda: now - timedelta(minutes=minutes)), **fields)

    now = datetime.now(UTC)
    return make(work)


def test_a_terminal_gets_a_table_that_fits_with_ids_that_commands_accept(terminal):
    job, _ = make_at(3), make_at(200, make_waiting)
    code, shown = terminal("jobs", "list")
    heading, first, second = shown.splitlines()
    assert code == 0
    assert plain(heading).split() == ["Job", "State", "Kind", "Created", "Time", "Task"]
    name = plain(first).split()[0]
    assert job.id.startswith(name)
    assert len(name) < 20
    assert "3 min ago" in first
    assert "3 h ago" in second
    assert "\x1b[32mcompleted" in first
    assert "\x1b[35mwaiting" in second
    assert all(len(plain(line)) <= 80 for line in shown.splitlines())
    with store_of_user() as store:
        assert asyncio.run(store.get(name)).id == job.id


def test_a_narrow_table_leaves_columns_out_and_crops_the_task():
    task = "a task with many words that do not fit"
    row = ("20260101-0800", "completed", "build", format_age(200), "2:05", "$0.25", task)
    wide, narrow = (draw_table([row], width, is_colored=False) for width in (120, 60))
    assert wide[1].endswith(task)
    assert [len(line) <= 60 for line in narrow] == [True, True]
    assert narrow[1].startswith("20260101-0800  completed  ")
    assert narrow[1].endswith("\u2026")
    assert "$0.25" not in narrow[1]


def test_the_shortest_ids_are_those_that_no_other_job_has():
    names = ["20260101-080000-001-aaaaaa", "20260101-080000-001-bbbbbb", "20260101-080500-001-cccccc"]
    assert list(shorten_ids(names).values()) == [*names[:2], "20260101-0805"]


def test_jobs_are_found_by_their_words_and_calls(invoke):
    job = make(make_ended)
    make(lambda store: store.create("run", description="Weather in Paris"))
    assert [line.split()[0] for line in invoke("jobs", "list", "deploy").stdout.splitlines()] == [job.id]
    assert "Weather" in invoke("jobs", "list", "paris").stdout
    none = "no jobs with 'nothing' in this directory; --all lists all jobs\n"
    assert invoke("jobs", "list", "nothing").stderr == none


def test_a_job_that_has_ended_is_not_cancelled(invoke):
    job = make(make_ended, "failed")
    assert re.fullmatch(r"Nothing to cancel: it failed (now|\d+ s ago)\.\n", invoke("jobs", "cancel", job.id).stdout)

"""Transactions survive a lost connection, and errors explain why a database cannot be used."""

from __future__ import annotations

import asyncio
import sqlite3
import threading

import pytest
from sqlalchemy import event

from callboard.errors import CallerError
from callboard.jobs import tables
from callboard.jobs.database import Database, DatabaseUnavailable
from callboard.jobs.job import JobSummary
from callboard.jobs.store import DurableStore


def run_sql(database, *statements):
    def execute(connection):
        return [connection.exec_driver_sql(each) for each in statements][-1].scalar()

    return database.run_blocking(execute)


def test_the_url_is_given_or_in_the_environment_or_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with Database.open() as database:
        assert database.place == str(tmp_path / "state/callboard/jobs/jobs.db")
    monkeypatch.setenv("CALLBOARD_DATABASE_URL", f"sqlite:///{tmp_path}/one.db")
    with Database.open() as database:
        assert database.place == f"{tmp_path}/one.db"
    monkeypatch.chdir(tmp_path)
    with Database.open("sqlite:///two.db") as database:
        assert database.place == f"{tmp_path}/two.db"


@pytest.mark.parametrize(
    "url", ["", "x", "mysql://h/n", "sqlite://", "sqlite:///:memory:", "postgresql://u:secret@h:x/n"]
)
def test_another_url_is_refused_without_its_password(url, monkeypatch):
    monkeypatch.setenv("CALLBOARD_DATABASE_URL", url or "nothing")
    with pytest.raises(CallerError, match="set CALLBOARD_DATABASE_URL to") as caught:
        Database.open(url)
    assert "secret" not in str(caught.value)


def test_without_the_extra_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "croniter", None)
    with pytest.raises(CallerError, match=r"needs croniter; pip install 'callboard\[jobs\]'"):
        Database.open("sqlite:////nowhere/jobs.db")


def test_sqlite_writes_ahead_and_to_the_disk(tmp_path, monkeypatch):
    monkeypatch.undo()
    with Database.open(f"sqlite:///{tmp_path}/jobs.db") as database:
        assert run_sql(database, "PRAGMA journal_mode") == "wal"
        assert run_sql(database, "PRAGMA synchronous") == 2
        assert run_sql(database, "PRAGMA foreign_keys") == 1


def test_a_second_opening_changes_nothing(url):
    for _ in range(2):
        with Database.open(url) as database:
            assert run_sql(database, "SELECT version FROM callboard_schema") == tables.VERSION


def test_processes_that_open_it_together_make_the_tables_once(url):
    failures = []

    def open_it():
        try:
            Database.open(url).close()
        except Exception as error:  # noqa: BLE001  # a thread's are lost
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize(("version", "hint"), [(99, "update Callboard"), (1, "removes them, or name another database")])
def test_a_database_of_another_version_is_refused(url, version, hint):
    with Database.open(url) as database:
        run_sql(database, f"UPDATE callboard_schema SET version = {version} RETURNING version")
    with pytest.raises(
        CallerError, match=f"have version {version}, but this Callboard reads only version {tables.VERSION}; .*{hint}"
    ):
        Database.open(url)


def test_another_programs_file_is_refused_and_not_touched(tmp_path):
    path = tmp_path / "places.sqlite"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE places (name TEXT)")
    other.close()
    with pytest.raises(CallerError, match="the database of another program"):
        Database.open(f"sqlite:///{path}")
    other = sqlite3.connect(path)
    assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("places",)]
    other.close()
    text = tmp_path / "notes.txt"
    text.write_text("no database " * 100, "utf-8")
    with pytest.raises(DatabaseUnavailable, match=r"notes.txt: the file is not an SQLite database"):
        Database.open(f"sqlite:///{text}")
    assert text.read_text("utf-8").startswith("no database")


async def test_a_row_in_another_format_is_refused_and_never_unpickled(database):
    store = DurableStore(database)
    job = await store.create("agent", items=[])
    pickled = "cposix\nsystem\n(S'touch owned'\ntR."
    rows = {"documents": "memory", "jobs": "usage"}
    for table, column in rows.items():
        await database.run(
            lambda connection: connection.exec_driver_sql(
                f"UPDATE callboard_{table} SET {column} = '{pickled.replace(chr(39), chr(39) * 2)}'"  # noqa: B023
            )
        )
        with pytest.raises(CallerError, match="not a row of a job"):
            await store.get(job.id)
    insertion = f"INSERT INTO callboard_entries (job, number, round, line) VALUES (1, 1, 0, '{pickled[:6]}')"
    await database.run(lambda connection: connection.exec_driver_sql(insertion))
    (entry,) = await store.read_entries(job.id)
    with pytest.raises(CallerError, match="entry 1: not an entry of a job"):
        assert entry.item


def test_a_database_that_is_locked_is_waited_for_and_then_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("callboard.jobs.database.BUSY_TIMEOUT", 10)
    with Database.open(f"sqlite:///{tmp_path}/jobs.db") as database:
        other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        assert asyncio.run(DurableStore(database).list()) == []  # readers are not held up
        with pytest.raises(DatabaseUnavailable, match="another process keeps it locked; wait for that process"):
            database.run_blocking(lambda connection: None, patience=0.05)
        unlocking = threading.Timer(0.1, other.execute, ["ROLLBACK"])
        unlocking.start()
        assert asyncio.run(DurableStore(database).create("agent")).state == "pending"
        unlocking.join()
        other.close()


def limit_sqlite(database, pragma):
    event.listen(database.engine, "checkout", lambda connection, *_: connection.execute(pragma).close())


@pytest.mark.parametrize(
    ("pragma", "words"),
    [
        ("PRAGMA query_only = ON", "it can be read only; give yourself the right to write it"),
        ("PRAGMA max_page_count = 1", "its disk is full; make room"),
    ],
)
async def test_a_database_that_cannot_be_written_says_so_and_can_be_read(tmp_path, pragma, words):
    with Database.open(f"sqlite:///{tmp_path}/jobs.db") as database:
        store = DurableStore(database)
        job = await store.create("agent")
        limit_sqlite(database, pragma)
        with pytest.raises(DatabaseUnavailable, match=words):
            await store.create("agent", description="x" * 10_000)
        assert await store.list() == [JobSummary(**{name: getattr(job, name) for name in JobSummary.__struct_fields__})]


def test_a_read_only_postgresql_says_so(empty_postgresql):
    with Database.open(empty_postgresql) as database, pytest.raises(DatabaseUnavailable, match="it can be read only"):
        run_sql(database, "SET TRANSACTION READ ONLY", "CREATE TABLE x (y INT)")


def test_a_missing_postgresql_is_reported_without_its_password(postgresql_database):
    server = postgresql_database.rpartition("@")[2]
    for url, words in (
        ("postgresql://callboard:secret@127.0.0.1:1/x", "it cannot be reached; start it"),
        (f"postgresql://callboard:secret@{server}", "it refuses the user or the password"),
        (postgresql_database + "_nope", "there is no database of this name"),
    ):
        with pytest.raises(DatabaseUnavailable, match=words) as caught:
            Database.open(url)
        assert "secret" not in str(caught.value)
        assert postgresql_database.split(":")[2].partition("@")[0] not in str(caught.value)


async def test_a_connection_that_is_lost_is_made_again(empty_postgresql):
    with Database.open(empty_postgresql) as database:
        store = DurableStore(database)
        job = await store.create("agent")
        claim = await store.claim(job.id, 1, "one")
        kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = "
        with Database.open(empty_postgresql) as other:
            run_sql(other, f"{kill}current_database()")
        await claim.append([], rounds=1)
        assert (await store.get(job.id)).rounds == 1


async def test_what_waits_for_a_database_ends_when_it_is_closed(tmp_path, monkeypatch):
    monkeypatch.setattr("callboard.jobs.database.BUSY_TIMEOUT", 1)
    database = Database.open(f"sqlite:///{tmp_path}/jobs.db")
    other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(DurableStore(database).create("agent"))
    await asyncio.sleep(0.05)
    await asyncio.to_thread(database.close)
    with pytest.raises(DatabaseUnavailable, match="locked"):
        await writing
    other.close()
    other.close()

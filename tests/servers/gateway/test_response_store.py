"""What the store keeps, for how long, and for whom; on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import event, text
from tests.tables import table

from callboard.errors import CallerError
from callboard.servers.gateway import GatewaySettings, response_store
from callboard.servers.gateway.gateway import open_store
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.response_store import ResponseStore, StoredResponse

MANY = 1 << 30


@asynccontextmanager
async def opened(url, *, age=1000.0, size=MANY, clock=lambda: 1000.0):
    store = ResponseStore(url, age=age, size=size, clock=clock)
    await store.start()
    try:
        yield store
    finally:
        await store.aclose()


def stored_response(identifier, previous="", owner="", size=0):
    return StoredResponse(identifier, owner, previous, b'{"output":[]}', b"[]" + b" " * max(0, size - 15))


def counted(store):
    """The statements that the store has sent since."""
    said = []
    event.listen(store._engine, "before_cursor_execute", lambda *args: said.append(args[2]))
    return said


async def test_a_reply_is_there_at_once_for_its_owner_alone(database):
    async with opened(database) as store, opened(database) as other:
        assert await store.save(stored_response("resp_1", owner="ann"))
        assert await other.find("resp_1", "ann") == stored_response("resp_1", owner="ann")
        assert await other.find("resp_1", "bob") is None
        assert await other.conversation("resp_1", "bob", MANY) == []
        assert not await other.delete("resp_1", "bob")
        assert await other.delete("resp_1", "ann")
        assert not await store.delete("resp_1", "ann")
        assert await store.find("resp_1", "ann") is None


async def test_what_can_be_no_identifier_is_not_found(database):
    async with opened(database) as store:
        await store.save(stored_response("resp_1"))
        for identifier in ("", "x" * 201, "a\0b", "' OR ''='", "a b", "%", "\ud800", "résumé"):
            assert await store.find(identifier, "") is None
            assert await store.conversation(identifier, "", MANY) == []
            assert not await store.delete(identifier, "")
        assert await store.find("resp_1", "") is not None


async def test_a_conversation_is_read_in_order_with_one_query_however_long(database):
    async with opened(database) as store:
        names = [f"resp_{number}" for number in range(1000)]
        for name, previous in zip(names, ["", *names[:-1]], strict=True):
            await store.save(stored_response(name, previous))
        await store.save(stored_response("resp_branch", "resp_499"))
        said = counted(store)
        assert [each.identifier for each in await store.conversation("resp_999", "", MANY)] == names
        assert len(said) == 1
        branch = [each.identifier for each in await store.conversation("resp_branch", "", MANY)]
        assert branch == [*names[:500], "resp_branch"]
        assert len(said) == 2


@pytest.mark.parametrize("name", ["CONVERSATION", "FIND"])
async def test_no_statement_reads_the_whole_table(database, name):
    bound = {"id": "a", "owner": "", "now": 0.0, "most": MANY, "longest": 100}
    async with opened(database) as store:
        for number in range(100):
            await store.save(stored_response(f"resp_{number}", f"resp_{number - 1}" if number else ""))
        with store._engine.connect() as connection:
            how = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else "EXPLAIN"
            rows = connection.execute(text(f"{how} {getattr(response_store, name).text}"), bound).all()
    plan = "\n".join([str(row) for row in rows])
    assert "callboard_replies" in plan
    assert "SCAN callboard_replies" not in plan
    assert "SCAN reply" not in plan
    assert "Seq Scan" not in plan
    assert "SCAN earlier" not in plan


async def test_what_is_not_whole_begins_with_what_has_a_previous(database):
    async with opened(database) as store:
        for name, previous in (("a", ""), ("b", "a"), ("c", "b"), ("d", "c")):
            await store.save(stored_response(name, previous, size=100))
        cut = await store.conversation("d", "", 250)
        assert [each.identifier for each in cut] == ["c", "d"]
        assert cut[0].previous == "b"
        await store.delete("b", "")
        assert [each.identifier for each in await store.conversation("d", "", MANY)] == ["c", "d"]
        await store.save(stored_response("b", "a", owner="other"))
        assert [each.identifier for each in await store.conversation("d", "", MANY)] == ["c", "d"]


async def test_a_circle_ends(database, monkeypatch):
    monkeypatch.setattr("callboard.servers.gateway.response_store.MAX_REPLIES", 50)
    async with opened(database) as store:
        await store.save(stored_response("a", "b"))
        await store.save(stored_response("b", "a"))
        assert len(await store.conversation("b", "", MANY)) == 50


async def test_what_is_too_old_is_neither_found_nor_there(database):
    now = 1000.0

    async with opened(database, age=100, clock=lambda: now) as store:
        await store.save(stored_response("old"))
        now = 1099.9
        await store.save(stored_response("new", "old"))
        assert len(await store.conversation("new", "", MANY)) == 2
        now = 1100.0
        assert await store.find("old", "") is None
        assert [each.identifier for each in await store.conversation("new", "", MANY)] == ["new"]
        now = 1110.0
        await store.save(stored_response("newer"))
        with store._engine.connect() as connection:
            rows = connection.exec_driver_sql("SELECT id FROM callboard_replies").scalars().all()
        assert sorted(rows) == ["new", "newer"]


async def test_the_size_is_never_passed_and_the_oldest_go_first(database):
    now = 0.0

    async with opened(database, age=1e9, size=10_000, clock=lambda: now) as store:
        for number in range(300):
            now += 0.001
            assert await store.save(stored_response(f"resp_{number:03}", size=(number * 37) % 300 + 20))
            with store._engine.connect() as connection:
                query = "SELECT id, size FROM callboard_replies ORDER BY id"
                rows = connection.exec_driver_sql(query).all()
            assert sum(row.size for row in rows) <= 10_000
            assert [row.id for row in rows] == [f"resp_{at:03}" for at in range(number + 1 - len(rows), number + 1)]
        assert sum(row.size for row in rows) > 8_000


async def test_a_giant_is_not_kept_and_drives_nobody_out(database, caplog):
    async with opened(database, size=10_000) as store:
        await store.save(stored_response("small"))
        assert not await store.save(stored_response("giant", size=9_999))
        assert await store.find("giant", "") is None
        assert await store.find("small", "") is not None
    assert "too large" in caplog.text


async def test_cleaning_is_seldom(database):
    async with opened(database, size=100_000) as store:
        await store.save(stored_response("first"))
        said = counted(store)
        for number in range(60):
            await store.save(stored_response(f"resp_{number}", size=100))
        assert len(said) == 60


async def test_a_cleanup_deletes_in_batches_and_later_saves_continue_it(database, monkeypatch):
    """A statement that deleted all old replies could run into the time limit, each time again."""
    monkeypatch.setattr(response_store, "_BATCH", 10)
    monkeypatch.setattr(response_store, "_CLEAN_SECONDS", -1.0)
    async with opened(database, age=1e9, size=10_000, clock=lambda: 1000.0) as store:
        row = {"owner": "", "previous": "", "size": 1000, "body": b"", "input": b""}
        with store._engine.connect() as connection:
            for number in range(60):
                expires = 1.0 if number < 30 else 1e12
                times = {"id": f"old_{number:02}", "created": float(number), "expires": expires}
                connection.execute(response_store.INSERT, {**row, **times})
            counts = []
            for number in range(6):
                assert await store.save(stored_response(f"new_{number}"))
                counts.append(connection.exec_driver_sql("SELECT count(*) FROM callboard_replies").scalar())
        assert await store.find("old_59", "") is not None
    assert counts == [41, 22, 13, 13, 14, 15]  # at most ten that expired and ten of the oldest with each save


async def test_a_cleanup_that_fails_fails_no_save(database, monkeypatch, caplog):
    async with opened(database) as store:
        monkeypatch.setattr(response_store, "DELETE_EXPIRED", text("DELETE FROM no_such_table WHERE :now > :batch"))
        assert await store.save(stored_response("resp_1"))
        assert await store.find("resp_1", "") is not None
    assert "old replies could not be deleted" in caplog.text
    assert "no_such_table" in caplog.text


async def test_two_writers_on_one_database_lose_nothing(database):
    async with opened(database) as one, opened(database) as other:
        await asyncio.gather(
            *[store.save(stored_response(f"{name}_{number}")) for name, store in (("one", one), ("other", other))
              for number in range(100)]
        )  # fmt: skip
        found = [await one.find(f"{name}_{number}", "") for name in ("one", "other") for number in range(100)]
        assert all(found)


async def test_who_gives_up_in_the_middle_leaves_the_store_whole(database):
    async with opened(database) as store:
        await store.save(stored_response("first"))
        for steps in range(30):
            asked = [asyncio.ensure_future(store.find("first", "")) for _ in range(3)]
            asked += [asyncio.ensure_future(store.save(stored_response(f"{steps}_{number}"))) for number in range(3)]
            for _ in range(steps):
                await asyncio.sleep(0)
            for each in asked:
                each.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        assert await store.save(stored_response("last"))
        assert await store.find("last", "") is not None


async def test_two_that_begin_together_make_one_table(database):
    stores = [ResponseStore(database, age=1, size=MANY) for _ in range(4)]
    await asyncio.gather(*[store.start() for store in stores])
    await asyncio.gather(*[store.aclose() for store in stores])


async def test_a_database_that_fails_says_so_without_what_it_was_told(database, caplog):
    async with opened(database) as store:
        with store._engine.connect() as connection:
            connection.exec_driver_sql("DROP TABLE callboard_replies")
        for asked in (store.save(StoredResponse("resp_1", "", "", b"secret", b"secret")), store.find("resp_1", "")):
            with pytest.raises(HttpError) as told:
                await asked
            assert told.value.failure.code == "store_unavailable"
            assert told.value.status == 503
    assert "callboard_replies" in caplog.text
    assert "secret" not in caplog.text


async def test_a_database_that_is_blocked_costs_a_bounded_wait_and_nothing_is_written_later(
    database, monkeypatch, caplog
):
    async with opened(database) as store:
        await store.save(stored_response("first"))
        with store._engine.connect() as other:
            lock = "BEGIN IMMEDIATE" if database.startswith("sqlite") else "BEGIN; LOCK TABLE callboard_replies"
            other.exec_driver_sql(lock)
            with monkeypatch.context() as patch:
                patch.setattr(response_store, "_ANSWER_SECONDS", 0.2)
                asked = [store.save(stored_response(f"late_{number}")) for number in range(20)]
                refused = await asyncio.gather(*asked, return_exceptions=True)
            other.exec_driver_sql("ROLLBACK")
        assert {each.failure.code for each in refused} == {"store_unavailable"}
        assert await store.save(stored_response("last"))
        late = [await store.find(f"late_{number}", "") for number in range(20)]
        assert sum(each is not None for each in late) <= 1  # what had not begun was dropped
    assert "no answer in 0.2 s" in caplog.text


async def test_the_file_is_the_users_alone(tmp_path):
    path = tmp_path / "replies.db"
    async with opened(f"sqlite:///{path}") as store:
        await store.save(stored_response("resp_1"))
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
        assert modes == dict.fromkeys(["replies.db", "replies.db-wal", "replies.db-shm"], 0o600)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


@table(
    "url", ["", "nonsense", "mysql://host/name", "sqlite://", "sqlite+pysqlite:///x", "postgresql://host", "sqlite:///",
        "postgres://user:pass-word@host:port/name", "postgresql://user:pass-word@host:5432:1/name"],
)  # fmt: skip
def test_a_url_that_is_no_store(url):
    with pytest.raises(CallerError, match="store") as caught:
        ResponseStore(url, age=1, size=1)
    assert "pass-word" not in str(caught.value)


def test_a_file_that_cannot_be(tmp_path):
    with pytest.raises(CallerError, match="No such file"):
        ResponseStore(f"sqlite:///{tmp_path}/none/replies.db", age=1, size=1)


async def test_a_file_that_is_something_else(tmp_path):
    path = Path(tmp_path / "replies.db")
    path.write_bytes(b"not a database, but long enough to be taken for one" * 100)
    store = ResponseStore(f"sqlite:///{path}", age=1, size=1)
    try:
        with pytest.raises(CallerError, match="not a database"):
            await store.start()
    finally:
        await store.aclose()


async def test_a_server_that_is_not_there():
    store = ResponseStore("postgresql://nobody@127.0.0.1:1/none", age=1, size=1)
    with pytest.raises(CallerError, match="refused"):
        await store.start()
    await store.aclose()


async def test_a_password_is_in_no_message(caplog):
    store = ResponseStore("postgresql://nobody:refused@127.0.0.1:1/none", age=1, size=1)
    with pytest.raises(CallerError) as caught:
        await store.start()
    with pytest.raises(HttpError):
        await store.find("resp_1", "")
    await store.aclose()
    told = str(caught.value)
    assert "\n" not in told
    assert "refused" not in told + caplog.text
    assert "***" in told


async def test_a_store_that_a_newer_callboard_made_is_left_alone(database):
    async with opened(database) as store:
        await store.save(stored_response("resp_1"))
        with store._engine.connect() as connection:
            connection.exec_driver_sql("UPDATE callboard_store SET version = 7")
    newer = ResponseStore(database, age=1, size=MANY)
    with pytest.raises(
        CallerError, match="its tables have version 7, and this callboard supports versions up to 1"
    ) as caught:
        await newer.start()
    assert "another database" in caught.value.hint
    with newer._engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM callboard_replies").scalar() == 1
    await newer.aclose()


async def test_a_store_without_a_version_is_of_the_first(database):
    async with opened(database) as store:
        await store.save(stored_response("resp_1"))
        with store._engine.connect() as connection:
            connection.exec_driver_sql("DROP TABLE callboard_store")
    async with opened(database) as store:
        with store._engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT version FROM callboard_store").scalar() == 1
        assert await store.find("resp_1", "") is not None


def test_without_the_packages_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    monkeypatch.delitem(sys.modules, "callboard.servers.gateway.response_store")
    with pytest.raises(CallerError, match=r"callboard\[gateway,store\]"):
        open_store(GatewaySettings(backends=(), store="sqlite:///x"))

"""`callboard migrate` prepares a database for all processes, and ends."""

import re

import psycopg
import pytest


def test_the_tables_of_jobs_and_of_a_gateway_share_a_database(callboard, empty_postgresql, monkeypatch):
    monkeypatch.setenv("CALLBOARD_DATABASE_URL", empty_postgresql)
    monkeypatch.setenv("CALLBOARD_STORE_URL", empty_postgresql)
    for _ in range(2):
        done = callboard("migrate")
        assert (done.returncode, done.stderr) == (0, "")
        assert re.sub(r"postgresql\S+", "URL", done.stdout) == (
            "the tables of jobs are in URL\nthe tables of the gateway are in its store\n"
        )
    with psycopg.connect(empty_postgresql) as connection:
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    assert {"callboard_jobs", "callboard_replies", "callboard_rates"} <= {name for (name,) in rows}


@pytest.mark.parametrize("variable", ["CALLBOARD_DATABASE_URL", "CALLBOARD_STORE_URL"])
def test_a_database_that_cannot_be_reached_is_said_in_one_line(callboard, tmp_path, monkeypatch, variable):
    monkeypatch.setenv("CALLBOARD_DATABASE_URL", f"sqlite:///{tmp_path / 'jobs.db'}")
    monkeypatch.setenv(variable, "postgresql://user:pass-word@127.0.0.1:1/none")
    done = callboard("migrate")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "pass-word" not in done.stderr

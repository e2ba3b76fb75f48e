"""A job in a database that others write to decides nothing about the worker's host."""

import asyncio
from types import SimpleNamespace

import pytest

from callboard.cli.run_kind import RunFlags, submit_run
from callboard.errors import CallerError
from callboard.jobs.coding_kind import coding_kinds, host_queue
from callboard.jobs.segment import SegmentRunner
from callboard.jobs.shared_database import check_options
from callboard.jobs.store import DurableStore

OPTIONS = [
    ("tools", ["tools.py"], "--tools"),
    ("ensembles", ["ensembles"], "--ensembles"),
    ("mcp", ["mcp.json"], "--mcp"),
    ("base_url", "http://collector.example.org/v1", "--base-url"),
    ("without_sandbox", True, "--no-sandbox"),
    ("allow_weaker_sandbox", True, "--allow-weaker-sandbox"),
    ("model", "command:sh -c ls", "--model command:sh -c ls"),
    ("model", "openai:none, command:sh -c ls", "--model openai:none, command:sh -c ls"),
]
SHARED = SimpleNamespace(is_sqlite=False)


@pytest.fixture(autouse=True)
def settings(tmp_path, monkeypatch):
    """The file of the worker's user."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = tmp_path / "config" / "callboard" / "callboard.toml"
    file.parent.mkdir(parents=True)
    return file


@pytest.mark.parametrize(("name", "value", "option"), OPTIONS)
def test_an_option_is_refused_unless_the_user_trusts_the_database(name, value, option, settings):
    options = {name: value}
    check_options(options, SimpleNamespace(is_sqlite=True))
    with pytest.raises(CallerError, match="trust_database = true") as refused:
        check_options(options, SHARED)
    assert refused.value.path == option
    settings.write_text("[jobs]\ntrust_database = true\n")
    check_options(options, SHARED)


def test_what_is_not_about_the_host_is_taken():
    check_options({"model": "openai:gpt-4o", "description": "Make add work", "rounds": 3, "tools": None}, SHARED)


def test_a_coding_job_of_somebody_else_fails_and_says_why(store, tmp_path):
    """On SQLite it is taken, and the model is opened."""
    opened = []

    def open_model(settings):
        opened.append(settings)
        raise CallerError("no model here")

    async def scenario():
        job = await store.create(
            "triage",
            description="Look",
            directory=str(tmp_path),
            queue=host_queue(),
            input={"description": "Look", "without_sandbox": True},
        )
        runner = SegmentRunner(store, coding_kinds(store, open_model, tmp_path / "jobs"))
        await runner(job.id, job.segment, SimpleNamespace(executor="x", stopping=asyncio.Event()))
        return await store.get(job.id)

    job = asyncio.run(scenario())
    assert job.state == "failed"
    assert ("--no-sandbox: a job in a database" in job.error, len(opened)) == (
        (False, 1) if store.database.is_sqlite else (True, 0)
    )


def test_a_run_with_tools_is_not_queued_where_others_write():
    with pytest.raises(CallerError, match="--tools: a job in a database"):
        asyncio.run(submit_run(DurableStore(SHARED), "Hi", RunFlags(tools=["tools.py"]), ""))

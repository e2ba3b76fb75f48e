"""A job that is cancelled from another process ends at once, and with it what runs in it."""

import asyncio
import os
from pathlib import Path

import pytest

from callboard import Agent, jobs, tool
from callboard.core import TextPiece
from callboard.jobs.database import VARIABLE, Database
from callboard.jobs.store import DurableStore
from callboard.sandbox import Confinement, find_sandbox
from callboard.testing import Call, ScriptedModel

happened = []


class HangingModel(ScriptedModel):
    """Says something and then nothing more."""

    async def batches(self, _):
        happened.append("began")
        try:
            yield [TextPiece("Wait")]
            await asyncio.Event().wait()
        finally:
            happened.append("stopped")


@tool
async def sleep(directory: str) -> str:
    """Sleep for long, in two processes."""
    sandbox = await find_sandbox(unconfined=True)
    command = "sleep 1000 & echo $! > child; echo $$ > parent; wait"
    try:
        outcome = await sandbox.run(["/bin/sh", "-c", command], Confinement(workspace=Path(directory)))
    finally:
        happened.append("stopped")
    return outcome.output.decode()


hanging = Agent(HangingModel([]))
sleeping = Agent(ScriptedModel([lambda request: Call("sleep", {"directory": request.canisters[0].text})]), [sleep])


@pytest.fixture
def database_url(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    monkeypatch.setenv(VARIABLE, url)
    happened.clear()
    return url


async def cancel_elsewhere(url, job):
    """As another process does it: nothing here hears of it but through the database."""
    with Database.open(url) as database:
        await DurableStore(database).request_cancel(job.id, "enough")


async def wait_until(condition):
    for _ in iter(condition, True):
        await asyncio.sleep(0)


async def test_the_model_is_asked_no_further(database_url):
    job = await jobs.submit(f"{__name__}:hanging", "Say something.")
    await wait_until(lambda: happened == ["began"])
    await cancel_elsewhere(database_url, job)
    result = await job.result()
    assert (result.state, result.text, happened) == ("cancelled", "", ["began", "stopped"])


async def test_a_command_ends_with_its_process_tree(database_url, tmp_path):
    job = await jobs.submit(f"{__name__}:sleeping", str(tmp_path))
    await wait_until(lambda: (tmp_path / "parent").exists() and (tmp_path / "parent").read_text() != "")
    await cancel_elsewhere(database_url, job)
    assert (await job.result()).state == "cancelled"
    assert happened == ["stopped"]
    for name in ("parent", "child"):
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / name).read_text()), 0)

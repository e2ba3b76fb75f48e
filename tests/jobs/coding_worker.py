"""A worker of coding jobs with a scripted model, in a process that is killed after a step or a sign of a command."""

import asyncio
import os
import signal
import threading
import time
from types import SimpleNamespace

from tests.coding.conftest import run_tests_once

from callboard.coding.agents import job_tests, job_workspace
from callboard.core import AssistantCanister, InvocationCanister, ReplyFailed, ResultCanister, UserCanister
from callboard.jobs.coding_kind import coding_kinds
from callboard.jobs.database import Database
from callboard.jobs.segment import JobSegment, SegmentRunner
from callboard.jobs.store import DurableStore
from callboard.testing import Call, ScriptedModel


def open_scripted(script, name="scripted"):
    """Return a model that continues the script of the phase, depending on the request; `big` that of its name."""

    def reply(request):
        if name == "big":
            texts = [each.text if isinstance(each, UserCanister) else "" for each in request.canisters]
            began = next(at for at, text in enumerate(texts) if text.startswith("You take over"))
            replies = (AssistantCanister, InvocationCanister)
            chosen = script[name][sum(isinstance(each, replies) for each in request.canisters[began:])]
            return chosen if isinstance(chosen, str) else Call(*chosen)
        first = next(each.text for each in request.canisters if isinstance(each, UserCanister))
        part = script[first.rpartition("# Now: ")[2].partition("\n")[0] if "# Now: " in first else ""]
        results = [each for each in request.canisters if isinstance(each, ResultCanister)]
        done = sum("interrupted, " not in each.text for each in results) + (request.controls.seed or 0)
        chosen = part[min(done, len(part) - 1)]
        return chosen if isinstance(chosen, str) else Call(*chosen)

    def replies():
        while True:
            yield reply

    model = ScriptedModel(replies(), name=name)
    if "fills" in script and name != "big":
        model.filler = open_filler(script["fills"])
    return model


def open_filler(script):
    """Return a model that writes single lines, depending on the number of the attempt; it fails for the line None."""

    def reply(request):
        line = script[request.controls.seed - 1]
        return [ReplyFailed("provider", "infill", "it cannot")] if line is None else line

    return ScriptedModel(iter(lambda: reply, None), name="filler")


def main(folder, script, after, sign):
    """Continue the only job until it ends or waits. Die at this step, or after this sign ("" for none)."""
    steps = 0

    def publish(_segment, _step):
        nonlocal steps
        steps += 1
        if steps == after:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch():
        while not any(each.read_text().endswith(sign) for each in folder.glob("jobs/*/command-output")):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

    JobSegment.publish = publish
    job_tests.run_tests = job_workspace.run_tests = run_tests_once
    if sign:
        threading.Thread(target=watch, daemon=True).start()
    asyncio.run(work(folder, script))


async def work(folder, script):
    with Database.open(f"sqlite:///{folder / 'jobs.db'}") as database:
        store = DurableStore(database)

        def open_model(settings):
            return open_scripted(script, "big" if settings.model == "big" else "scripted")

        runner = SegmentRunner(store, coding_kinds(store, open_model, folder / "jobs"))
        (job,) = await store.list()
        while not job.has_ended and job.state != "waiting":
            control = SimpleNamespace(executor="x", stopping=asyncio.Event(), cancel_requested=False)
            await runner(job.id, job.segment, control)
            job = await store.get(job.id)

"""Jobs whose process is killed, and that go on in another one."""

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
from tests.coding.conftest import Nobody, make_request

from callboard.coding.agents.job_memory import JobMemory
from callboard.coding.agents.job_runner import resume_job
from callboard.coding.agents.progress import read_progress
from callboard.coding.jobs.log import replay_steps
from callboard.coding.undo import undo_job
from callboard.configuration import load_settings
from callboard.errors import CallerError
from callboard.testing import ScriptedModel

PROGRAM = '''
import asyncio, json, os, signal, sys, threading, time
from pathlib import Path
from callboard.coding.jobs.store import JobStore
from callboard.coding.agents.job_request import JobRequest
from callboard.coding.agents.job_runner import resume_job, run_job
from callboard.configuration import load_settings
from callboard.core import ResultCanister, UserCanister
from callboard.testing import Call, ScriptedModel

place, folder, told = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
settings = load_settings({}, place, {"XDG_CONFIG_HOME": str(folder)})
jobs = JobStore(folder / "jobs")

def reply(request):
    """What the phase's script says next: it depends on what is known to have been done, as with a real model."""
    first = next(each.text for each in request.canisters if isinstance(each, UserCanister))
    script = told["script"][first.rpartition("# Now: ")[2].partition("\\n")[0] if "# Now: " in first else ""]
    results = [each for each in request.canisters if isinstance(each, ResultCanister)]
    again = "Another answer was not right" in first
    part = script[min(again + sum("interrupted: " not in each.text for each in results), len(script) - 1)]
    return part if isinstance(part, str) else Call(*part)

class Endless(list):
    def __iter__(self):
        while True:
            yield reply

class Nobody:
    rules = ()
    async def __call__(self, invocation, why):
        return "deny"

count = 0

def show(step):
    global count
    count += 1
    if count == told["after"]:
        os.kill(os.getpid(), signal.SIGKILL)

def watch():
    while not list(jobs.directory.glob(f"*/tree/{told['sign']}")):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)

if told["sign"]:
    threading.Thread(target=watch, daemon=True).start()
request = JobRequest(kind=told["kind"], directory=place, settings=settings, description="Make add work", workflow=told["workflow"])
model = ScriptedModel(Endless())
if earlier := jobs.all():
    job = asyncio.run(resume_job(earlier[0], request, model, jobs, show=show, approver=Nobody()))
else:
    job = asyncio.run(run_job(request, model, jobs, show, Nobody()))
print(job.state)
'''
FILE = ("file", {"path": "calc.py"})
EDIT = ("file", {"action": "replace", "path": "calc.py", "old": "a - b", "new": "a + b"})
TRACE = ("bash", {"command": "echo once >> trace.txt"})
PHASED = {
    "reproduce": [("test", {}), "test_add fails."],
    "investigate": [FILE, "It subtracts."],
    "isolate": [FILE, "Line 2."],
    "fix": [TRACE, EDIT, "Changed calc.py."],
    "verify": [("git", {"action": "commit", "message": "Mend"}), "It passes."],
    "commit": ["Mend add\n\nIt subtracted."],
}
WRONG = "calc.py\n```python\ndef add(a, b):\n    return a * b\n```\nnew.py\n```python\nx = 1\n```"
RIGHT = "calc.py\n```python\ndef add(a, b):\n    return a + b\n```\n"
SHORT = {"": [WRONG, RIGHT]}


@pytest.fixture
def go(repository, tmp_path, jobs):
    """Runs the job in a process of its own, which is killed after so many steps, or where a file appears in its tree."""

    def going(script, *, kind="debug", workflow="phased", after=0, sign=""):
        told = {"script": script, "kind": kind, "workflow": workflow, "after": after, "sign": sign}
        arguments = [sys.executable, "-c", PROGRAM, str(repository.root), str(tmp_path), json.dumps(told)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        (job,) = jobs.all()
        return SimpleNamespace(killed=done.returncode < 0, job=job)

    return going


def describe(job, jobs):
    """What a job did, whichever processes it took."""
    steps = [*replay_steps(jobs.folder(job.id))]
    kinds = Counter(type(each).__name__ for each in steps)
    phases = [each.name for each in steps if type(each).__name__ in {"PhaseStarted", "PhaseEnded"}]
    results = [each.canister for each in steps if type(each).__name__ == "ResultReady"]
    interrupted = [each for each in results if "interrupted: " in each.text]
    prompts = [each.text for each in steps if type(each).__name__ == "PromptSent"]
    return SimpleNamespace(steps=steps, kinds=kinds, phases=phases, interrupted=len(interrupted), prompts=prompts)


@pytest.mark.parametrize(("workflow", "script", "after"), [("phased", PHASED, 41), ("short", SHORT, 13)])
def test_a_job_that_is_killed_again_and_again_ends_as_one_that_was_not(  # noqa: PLR0917  # five are fixtures
    go, jobs, repository, workflow, script, after
):
    before = repository.state()
    whole = go(script, workflow=workflow).job
    assert whole.state == "completed"
    known = describe(whole, jobs)
    asyncio.run(undo_job(whole, jobs))
    jobs.remove(whole.id)
    kills = 0
    while (now := go(script, workflow=workflow, after=after + kills % 3)).killed:
        assert (now.job.state, now.job.reason) == ("failed", "its process ended without a word")
        kills += 1
    job, done = now.job, describe(now.job, jobs)
    assert kills > 1
    assert job.state == "completed", job.output.missing
    assert (done.phases, done.prompts) == (known.phases, known.prompts)
    assert done.kinds["Resumed"] == kills
    # No reply that came whole is asked for again, but for calls that may have been made.
    assert done.kinds["ReplyEnded"] == known.kinds["ReplyEnded"] + done.interrupted
    assert (job.rounds, job.calls) == (whole.rounds + done.interrupted, whole.calls + done.interrupted)
    for name in ("diff", "files", "tests", "summary", "missing"):
        assert getattr(job.output, name) == getattr(whole.output, name), name
    assert job.output.pull_request.title == whole.output.pull_request.title
    assert len(job.output.commits) == len(whole.output.commits)
    assert JobMemory.load(job.memory).first_report.failed == 1
    assert repository.state() == before
    assert repository.git("worktree", "list").count("\n") == 1
    # What a job that ended counted is what its steps say.
    for each, steps in ((job, done.steps), (whole, known.steps)):
        progress = read_progress(steps)
        assert (progress.rounds, progress.calls, progress.missing) == (each.rounds, each.calls, ())
        assert progress.usage.input == each.usage["input"]


def test_a_command_that_was_under_way_is_not_run_again(go, jobs, repository):
    """The model is told that what came of it is not known, with the change so far."""
    slow = ("bash", {"command": "echo once >> trace.txt; touch started; sleep 4712"})
    script = {**PHASED, "fix": [slow, EDIT, "Changed calc.py."]}
    assert go(script, sign="started").killed
    script = {**PHASED, "fix": [EDIT, "Changed calc.py."]}
    done = go(script)
    job, did = done.job, describe(done.job, jobs)
    assert (job.state, did.interrupted) == ("completed", 1)
    (result,) = [each.canister for each in did.steps if type(each).__name__ == "ResultReady" and each.canister.error]
    assert result.error.category == "cancelled"
    assert "what came of it is not known" in result.text
    assert "+once" in result.text
    assert repository.git("show", f"{job.output.branch}:trace.txt") == "once\n"


def test_only_a_job_whose_process_died_goes_on(run, repository, jobs, tmp_path):
    job = run("debug", {"description": "test_add fails"}, [RIGHT]).job
    settings = load_settings({}, repository.root, {"XDG_CONFIG_HOME": str(tmp_path)})
    request = make_request("debug", {"description": "x"}, repository.root, settings)
    with pytest.raises(CallerError, match="the job is completed"):
        asyncio.run(resume_job(job, request, ScriptedModel([]), jobs, show=list, approver=Nobody()))


def test_the_time_in_which_no_process_ran_does_not_count():
    memory = JobMemory(seconds=90.0)
    assert JobMemory.load(json.loads(json.dumps(memory.dump()))) == memory

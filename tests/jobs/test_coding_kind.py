"""Coding jobs in the store of durable jobs: killed at any step, waiting for a person, cancelled, without their directory."""

import asyncio
import signal
from functools import partial
from itertools import count, pairwise
from types import SimpleNamespace

import pytest
from tests.coding import conftest as coding
from tests.coding.conftest import make_request
from tests.coding.scripts import EDIT, FILE, LOST, PHASED, RIGHT, SHORT, TRACE, WRONG
from tests.jobs import coding_worker
from tests.jobs.coding_worker import open_scripted
from tests.jobs.forked import ForkedProcess

from callboard import core
from callboard.coding.agents.apply_code_blocks import CodeBlockApplier
from callboard.coding.agents.progress import read_progress
from callboard.coding.job import ModelChanged, Notice, PhaseEnded, PhaseStarted, PromptSent, Resumed
from callboard.configuration import load_settings
from callboard.jobs.coding_kind import DurableApprover, coding_kinds, host_queue, submit_request
from callboard.jobs.database import Database
from callboard.jobs.declared_tools import read_tools
from callboard.jobs.segment import SegmentRunner
from callboard.jobs.store import DurableStore
from callboard.providers.local.fill import HOLE

PATIENCE = 120
repository, faulty, quick_tests = coding.repository, coding.faulty, coding.quick_tests


@pytest.fixture
def place(repository, tmp_path, monkeypatch):
    """A database, a repository, and a job of it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "callboard").mkdir(parents=True)

    def submit(kind="debug", *, workflow="phased", settings="", **options):
        (tmp_path / "config" / "callboard" / "callboard.toml").write_text(settings)
        loaded = load_settings({}, repository.root, {"XDG_CONFIG_HOME": str(tmp_path / "config")})
        request = make_request(
            kind, {"description": "Make add work"}, repository.root, loaded, workflow=workflow, **options
        )

        async def scenario():
            with Database.open(f"sqlite:///{tmp_path / 'jobs.db'}") as database:
                return await submit_request(DurableStore(database), request, "scripted")

        return asyncio.run(scenario())

    def go(script, *, after=0, sign=""):
        worker = ForkedProcess(coding_worker.main, tmp_path, script, after, sign, output=tmp_path / "output")
        code = worker.wait(PATIENCE)
        assert code in (0, -signal.SIGKILL), worker.read()
        return code < 0

    def ask(work):
        async def scenario():
            with Database.open(f"sqlite:///{tmp_path / 'jobs.db'}") as database:
                return await work(DurableStore(database))

        return asyncio.run(scenario())

    return SimpleNamespace(submit=submit, go=go, ask=ask, folder=tmp_path, repository=repository)


async def read(store, identifier):
    return await store.get(identifier), [each.item for each in await store.read_entries(identifier)]


def run_killed(place, submitted, script, after):
    """Run a job in processes that are killed after this many steps, until it has ended."""
    kills = 0
    while place.go(script, after=after + kills % 3):
        kills += 1
    assert kills > 1
    return place.ask(lambda store: read(store, submitted.id))


@pytest.mark.parametrize(("workflow", "script", "after"), [("phased", PHASED, 31), ("short", SHORT, 14)])
def test_a_job_that_is_killed_again_and_again_does_everything_once(place, workflow, script, after):
    before = place.repository.state()
    submitted = place.submit(workflow=workflow)
    assert (submitted.queue, submitted.partition) == (host_queue(), str(place.repository.root / ".git"))
    job, items = run_killed(place, submitted, script, after)
    assert job.state == "completed", (job.reason, job.error)
    started = [each.name for each in items if isinstance(each, PhaseStarted)]
    ended = [each.name for each in items if isinstance(each, PhaseEnded)]
    assert started == ended == [name or "fix" for name in script]
    assert sum(isinstance(each, Resumed) for each in items) >= 1
    interrupted = [each for each in items if isinstance(each, core.ResultCanister) and "interrupted, " in each.text]
    replies = [each for each in items if isinstance(each, (core.AssistantCanister, core.InvocationCanister))]
    known = sum(len(part) for part in script.values())
    assert len(replies) == known + len(interrupted)
    assert job.rounds == known + len(interrupted)
    branch = job.output["branch"]
    assert place.repository.git("show", f"{branch}:calc.py").endswith("return a + b\n")
    if workflow == "phased":
        assert place.repository.git("show", f"{branch}:trace.txt") == "once\n"
    assert job.memory["memory"]["first_report"]["failed"] == 1
    assert job.output["tests"] == "pytest: 1 passed"
    assert place.repository.state() == before
    assert not (place.folder / "jobs" / job.id / "tree").exists()
    # The entries say what a job that ended counted.
    progress = read_progress(items)
    assert (progress.rounds, progress.calls, progress.missing) == (job.rounds, job.calls, ())
    # Each set of tools that a model saw is there once, until it changes.
    sets = place.ask(lambda store: read_tools(store.database, submitted.id))
    assert (len(sets) > 1) == (workflow == "phased")  # the short workflow declares no tools
    assert all(before.tools != behind.tools for before, behind in pairwise(sets))
    # Each prompt is there once. In the short workflow, the second one does not say why the first answer was refused.
    prompts = [each.text for each in items if isinstance(each, PromptSent)]
    assert len(prompts) == len({*prompts}) + (workflow == "short")


@pytest.mark.parametrize(
    ("workflow", "script", "after", "rounds"),
    [
        ("short", {"": [WRONG, WRONG], "big": [WRONG, RIGHT]}, 14, [3, 2]),
        ("phased", {**PHASED, "investigate": [LOST] * 3, "big": [FILE, "It subtracts."]}, 25, [13, 2]),
    ],
)
def test_a_killed_job_goes_on_with_the_stronger_model_that_it_had(place, workflow, script, after, rounds):
    submitted = place.submit(workflow=workflow, escalate="big")
    job, items = run_killed(place, submitted, script, after)
    assert (job.state, job.rounds) == ("completed", sum(rounds)), (job.reason, job.error)
    assert [each.model for each in items if isinstance(each, ModelChanged)] == ["big"]
    assert [each["rounds"] for each in job.output["models"]] == rounds
    prompts = [each.text for each in items if isinstance(each, PromptSent)]
    assert len(prompts) == len({*prompts}) + (workflow == "short")


def test_a_killed_job_keeps_the_code_with_which_fewer_tests_fail_and_no_other(place):
    """A process is killed while it applies the code of a reply."""
    (place.repository.root / "calc.py").write_text(
        "def add(a, b):\n    return a ^ b\n\n\ndef double(a):\n    return a\n"
    )
    (place.repository.root / "test_double.py").write_text(
        "from calc import double\n\n\ndef test_double():\n    assert double(2) == 4\n"
    )
    place.repository.commit("Two faults")
    submitted = place.submit(workflow="short")
    double = "calc.py\n```python\ndef double(a):\n    return 2 * a\n```"
    job, items = run_killed(place, submitted, {"": [WRONG, RIGHT, double]}, 16)
    # The script begins again with the new prompt, at the first temperature.
    assert (job.state, job.rounds) == ("completed", 5), (job.reason, job.error)
    prompts = [each.text for each in items if isinstance(each, PromptSent)]
    assert ["return a ^ b" in each for each in prompts] == [True, True, False, False, False]
    code = place.repository.git("grep", "-h", "return", job.output["branch"], "calc.py")
    assert code == "    return a + b\n    return 2 * a\n"


def test_a_job_that_continues_asks_for_the_line_that_is_next(place):
    (place.repository.root / "calc.py").write_text("def add(a, b):\n    c = a ^ b\n    return c\n")
    place.repository.commit("Three lines")
    same = "calc.py\n```python\ndef add(a, b):\n    c = a ^ b\n    return c\n```"
    first = ["def add(b, a):", "c = b ^ a", "return 0"]
    lines = [*first, "def add(b, a):", "def sub(a, b):", "def sub(b, a):", "c = a + b"]
    place.submit(workflow="short")
    for _ in range(8):
        control = new_control()
        job, items = run_here(place, {}, control, open_model=partial(open_leaving, same, lines, control))
    assert (job.state, job.rounds) == ("completed", 1 + len(lines)), (job.reason, job.error)
    prompts = [each.text for each in items if isinstance(each, PromptSent)]
    holes = [each.partition(HOLE)[0].count("\n") - 4 for each in prompts if HOLE in each]
    assert holes == [0, 1, 2, 0, 0, 0, 1]
    assert job.segment == 8


def open_leaving(same, lines, control, _settings):
    """Return a model whose worker stops after each reply."""
    model = open_scripted({"": [same], "fills": lines})
    for each in (model, model.filler):
        each.batches = partial(stop_after, each.batches, control)
    return model


async def stop_after(batches, control, request):
    async for each in batches(request):
        yield each
    control.stopping.set()


def test_an_answer_after_a_failed_line_is_read_as_an_answer_by_another_process(place, monkeypatch):
    original, stops = CodeBlockApplier.apply, ["once"]

    async def apply(applier, reply, *hole):
        if "a + b" in reply and stops:
            asyncio.current_task().cancel(stops.pop())
            await asyncio.sleep(0)
        await original(applier, reply, *hole)

    monkeypatch.setattr(CodeBlockApplier, "apply", apply)
    place.submit(workflow="short")
    script = {"": [WRONG, RIGHT], "fills": [None]}
    assert run_here(place, script, new_control())[0].state == "running"
    job, items = run_here(place, script, new_control())
    assert (job.state, job.output["files"]) == ("completed", ["calc.py"])
    assert len([each for each in items if isinstance(each, PromptSent)]) == 3


def test_a_command_that_was_under_way_is_not_run_again(place):
    slow = ("bash", {"command": "echo once >> trace.txt; seq 9000; sleep 4713"})
    job = place.submit()
    assert place.go({**PHASED, "fix": [slow, EDIT, "Changed calc.py."]}, sign="\n9000\n")
    assert not place.go({**PHASED, "fix": [EDIT, "Changed calc.py."]})
    job, items = place.ask(lambda store: read(store, job.id))
    (result,) = [each for each in items if isinstance(each, core.ResultCanister) and each.error]
    assert (job.state, result.error.category) == ("completed", "cancelled")
    assert "interrupted, outcome unknown" in result.text
    assert "+once" in result.text
    assert "The end of what it had printed:\n...\n" in result.text
    assert "8999\n9000\n" in result.text
    assert place.repository.git("show", f"{job.output['branch']}:trace.txt") == "once\n"


@pytest.mark.parametrize(
    ("workflow", "script", "rule", "name"),
    [
        ("phased", {**PHASED, "fix": [TRACE, EDIT, "Done."]}, "bash", "bash"),
        ("short", {"": [RIGHT]}, "put_code", "put_code"),
    ],
)
def test_a_call_that_wants_approval_waits_for_an_answer(place, workflow, script, rule, name):
    submitted = place.submit(workflow=workflow, settings=f'[permissions]\nask = ["{rule}"]\n')
    place.go(script)

    async def answer(store):
        job = await store.get(submitted.id)
        (asked,) = await store.read_approvals(job.id)
        assert (job.state, job.waits_for, asked.name) == ("waiting", "approval", name)
        assert asked.why
        return await store.answer(job.id, asked.call_id, "allow", digest=asked.digest)

    assert (place.folder / "jobs" / submitted.id / "tree").is_dir()
    place.ask(answer)
    place.go(script)
    job, items = place.ask(lambda store: read(store, submitted.id))
    assert job.state == "completed", (job.reason, job.error)
    assert [each.name for each in items if isinstance(each, PhaseStarted)] == [each or "fix" for each in script]
    assert place.repository.git("show", f"{job.output['branch']}:calc.py").endswith("return a + b\n")
    assert not [each for each in items if isinstance(each, Notice) and "attempt" in each.text]
    if workflow == "phased":
        assert place.repository.git("show", f"{job.output['branch']}:trace.txt") == "once\n"


def open_cancelled(script, control, is_time):
    """Return what opens a model that cancels the task of the job instead of the reply to a request."""

    def model(_):
        opened = open_scripted(script)
        original = opened.batches

        async def batches(request):
            if is_time(request):
                control.task.cancel()
                await asyncio.Event().wait()
            async for each in original(request):
                yield each

        opened.batches = batches
        return opened

    return model


def run_here(place, script, control, then=lambda: None, open_model=None):
    """Return a function that runs one segment in this process."""

    async def work(store):
        job = (await store.list())[0]
        opened = open_model or (lambda _: open_scripted(script))
        runner = SegmentRunner(store, coding_kinds(store, opened, place.folder / "jobs"))
        task = asyncio.create_task(runner(job.id, job.segment, control))
        control.task = task
        then()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        return await store.get(job.id), [each.item for each in await store.read_entries(job.id)]

    return place.ask(work)


def new_control():
    return SimpleNamespace(executor="x", stopping=asyncio.Event(), cancel_requested=False, task=None)


def test_a_worker_that_stops_leaves_the_job_to_the_next(place):
    place.submit()
    control = new_control()
    control.stopping.set()
    job, items = run_here(place, PHASED, control)
    assert (job.state, job.segment) == ("pending", 2)
    assert not [each for each in items if isinstance(each, core.AssistantCanister)]
    assert [type(each) for each in items if isinstance(each, core.SupervisorCanister)] == [core.SupervisorCanister]
    job, items = run_here(place, PHASED, new_control())
    assert job.state == "completed"
    assert len([each for each in items if isinstance(each, PhaseStarted)]) == len(PHASED)


@pytest.mark.parametrize("code", ["unreachable", "cut", "rate_limit_exceeded"])
@pytest.mark.parametrize(("workflow", "script"), [("phased", PHASED), ("short", SHORT)])
def test_a_job_waits_for_its_models_server_and_does_everything_once(place, code, workflow, script):
    """Each second reply breaks."""
    place.submit(workflow=workflow)
    requests = 0

    def model(_):
        opened = open_scripted(script)
        original = opened.batches

        async def batches(request):
            nonlocal requests
            requests += 1
            if requests % 2 == 0 or requests == 1:
                yield [core.TextPiece("Half a rep"), core.ReplyFailed("provider", code, "the server restarts")]
                return
            async for each in original(request):
                yield each

        opened.batches = batches
        return opened

    waits = 0
    while (job := run_here(place, script, new_control(), open_model=model))[0].state == "waiting":
        assert (job[0].waits_for, job[0].reason) == ("rate_limit", "the server restarts")
        waits += 1
    job, items = job
    assert job.state == "completed", (job.reason, job.error)
    assert waits > 1
    assert job.rounds == sum(len(part) for part in script.values())
    started = [each.name for each in items if isinstance(each, PhaseStarted)]
    assert (
        started == [each.name for each in items if isinstance(each, PhaseEnded)] == [name or "fix" for name in script]
    )
    assert place.repository.git("show", f"{job.output['branch']}:calc.py").endswith("return a + b\n")
    if workflow == "phased":
        assert place.repository.git("show", f"{job.output['branch']}:trace.txt") == "once\n"
    assert not (place.folder / "jobs" / job.id / "tree").exists()


@pytest.mark.parametrize("requested", [True, False])
def test_cancelling_the_job_delivers_what_was_changed_and_the_end_of_the_process_does_not(place, requested):
    place.submit()
    control = new_control()

    def is_edited(request):
        found = any("Replaced" in getattr(each, "text", "") for each in request.canisters)
        control.cancel_requested = found and requested
        return found

    model = open_cancelled({**PHASED, "fix": [EDIT, TRACE]}, control, is_edited)
    job, _ = run_here(place, PHASED, control, open_model=model)
    if requested:
        assert job.state == "cancelled"
        assert place.repository.git("show", f"{job.output['branch']}:calc.py").endswith("a + b\n")
        assert not (place.folder / "jobs" / job.id / "tree").exists()
        place.ask(lambda store: store.resume(job.id))
        job, _ = run_here(place, {**PHASED, "fix": [EDIT, TRACE, "Done."]}, new_control())
        assert job.state == "completed", (job.reason, job.error)
        assert len(job.output["commits"]) == 2
        assert place.repository.git("show", f"{job.output['branch']}:trace.txt") == "once\n"
    else:
        assert (job.state, job.output) == ("running", None)
        job, _ = run_here(place, PHASED, new_control())
        assert job.state == "completed", (job.reason, job.error)


@pytest.mark.parametrize(("workflow", "script"), [("phased", PHASED), ("short", SHORT)])
def test_a_stopped_job_knows_what_a_person_said(place, monkeypatch, workflow, script):
    place.submit(workflow=workflow)
    messages = iter(["Mind the sign."])

    async def message(_):
        return next(messages, "")

    monkeypatch.setattr(DurableApprover, "message", message)
    control = new_control()
    requests = count(1)
    model = open_cancelled(script, control, lambda _: next(requests) == 2)
    job, items = run_here(place, script, control, open_model=model)
    assert (job.state, job.rounds) == ("running", 1)
    job, items = run_here(place, script, new_control())
    assert job.state == "completed", (job.reason, job.error)
    prompts = [each.text for each in items if isinstance(each, PromptSent)]
    knows = ["Mind the sign." in each for each in prompts]
    assert knows == ([False] if workflow == "phased" else []) + [True] * (len(script) if workflow == "phased" else 2)
    progress = read_progress(items)
    assert (progress.rounds, progress.calls, progress.missing) == (job.rounds, job.calls, ())


def test_a_fork_starts_with_the_files_after_the_round(place):
    submitted = place.submit()
    job, items = run_here(place, PHASED, new_control())
    assert (job.state, job.rounds) == ("completed", 12)
    # The seventh reply wrote the trace, the eighth changed the code.
    forked = place.ask(lambda store: store.fork(job.id, 7))
    look = ("bash", {"command": "cp calc.py as-it-was.txt"})
    script = {**PHASED, "fix": [TRACE, look, EDIT, "Changed calc.py."]}
    ended, steps = run_here(place, script, new_control())
    assert (ended.id, ended.parent, ended.state) == (forked.id, f"{job.id}@7", "completed"), (ended.reason, ended.error)
    assert ended.rounds == 13
    branch = ended.output["branch"]
    assert branch != job.output["branch"]
    assert "a ^ b" in place.repository.git("show", f"{branch}:as-it-was.txt")
    assert place.repository.git("show", f"{branch}:trace.txt") == "once\n"
    assert place.repository.git("show", f"{branch}:calc.py").endswith("a + b\n")
    assert [each.name for each in steps if isinstance(each, PhaseStarted)] == [*PHASED]
    assert place.ask(lambda store: read(store, submitted.id)) == (job, items)


def test_a_directory_that_is_gone_fails_the_job(place):
    place.submit()
    place.repository.root.rename(place.folder / "elsewhere")
    job, _ = run_here(place, PHASED, new_control())
    assert (job.state, "the directory of the job is gone" in job.error) == ("failed", True)

"""A run of a command on the board, as a person sees it: it goes on in a terminal, and is watched and cancelled here."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.board.conftest import BoardProgram
from tests.board.crew import DIFF
from tests.board.test_pages import THEMES
from tests.calc_project import CODE, READ, reply_with

from callboard.coding.jobs.log import JobLog, Notice, PhaseEnded, PhaseStarted, PromptSent
from callboard.coding.jobs.store import DIED, JobStore
from callboard.core import ReasoningPiece, ReplyStarted, ResultCanister, ResultReady, RoundStarted, TextPiece
from callboard.testing import Call, FakeBackend, Silence

REPLIES = [
    reply_with(READ, "I read it."),
    "It subtracts <b>where</b> it should add.",
    "One sign is to be changed.",
    Silence([ReplyStarted(), TextPiece("Now I")]),
]

EDIT = {"path": "calc.py", "old": "return a - b", "new": "return a + b"}
STEPS = [
    PhaseStarted("reproduce", 10),
    PromptSent("Mend the failing test of add() in calc.py"),
    RoundStarted(1),
    ReasoningPiece("2 + 2 is 0 there, so I look at calc.py."),
    *reply_with(Call("bash", {"command": "python -m pytest -q"}), "I run the test first."),
    ResultReady(ResultCanister("1 failed in 0.12s", invocation_id="call_1")),
    PhaseEnded("reproduce"),
    PhaseStarted("fix", 10),
    RoundStarted(2),
    *reply_with(Call("edit_file", EDIT), "It subtracts. I change one sign."),
    ResultReady(ResultCanister(f"calc.py was changed:\n{DIFF}", invocation_id="call_1")),
    Notice("running the tests"),
]


@pytest.fixture(scope="module")
def scene():
    """Runs in several states; the id of one that goes on."""
    began = datetime.now(UTC) - timedelta(hours=3)
    records = JobStore(clock=lambda: began)
    directory = Path("/home/me/shop")
    for kind, description, model, changes in [
        ("triage", "Orders of zero items are accepted", "openai:gpt-4o-mini", {"state": "completed", "rounds": 3}),
        (
            "review",
            "the branch export-csv",
            "anthropic:claude-sonnet-4-5",
            {"state": "failed", "reason": DIED, "rounds": 5},
        ),
        (
            "chat",
            "Why is the basket empty after the login?",
            "local:qwen2.5-coder-1.5b",
            {"state": "completed", "rounds": 4},
        ),
    ]:
        job = records.create(kind, description, directory, model=model)
        usage = {"input": 8200, "output": 640}
        records.update(job, usage=usage, cost=None if model.startswith("local") else 0.0041, **changes)
        began += timedelta(minutes=50)
    job = records.create("debug", "Mend the failing test of add() in calc.py", directory, model="openai:gpt-4o")
    with records.running(job.id), JobLog(records.folder(job.id)) as log:
        records.update(job, state="running", phase="fix")
        for step in STEPS:
            log.add(step)
        yield job.id


@pytest.mark.parametrize("theme", THEMES)
def test_each_page_is_accessible(theme, board, scene, visit, look):
    page = visit(board, **THEMES[theme]).open("runs")
    for path, picture in [("runs", "board-runs"), (f"runs/{scene}", "")]:
        page.goto(board.url + path)
        expect(page.locator("#status")).to_have_text("live")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        look(page, picture if theme == "light" else "")


@pytest.fixture
def backend(jobs):
    served = FakeBackend(REPLIES)
    jobs.portal.call(served.__aenter__)
    yield served
    jobs.portal.call(served.__aexit__, None, None, None)


class Chat:
    """`callboard chat`, whose lines the test types."""

    def __init__(self, backend, directory):
        options = ("--model", "fake-model", "--mode", "native", "--base-url", backend.url, "--no-sandbox")
        command = [sys.executable, "-m", "callboard", "chat", *options, "--directory", str(directory)]
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, **streams)

    def type(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def stop(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def chat(backend, tmp_path):
    (tmp_path / "calc.py").write_text(CODE)
    made = Chat(backend, tmp_path)
    yield made
    made.stop()


@pytest.fixture
def boards():
    """Starts a board, on the port of another that was stopped: `boards(port)`."""
    programs = []

    def start(port=0):
        programs.append(BoardProgram(port))
        return programs[-1]

    yield start
    for each in programs:
        each.stop()


def test_a_run_that_goes_on_is_watched_over_a_restart_and_cancelled(boards, chat, visit):
    board = boards()
    page = visit(board).open("runs")
    chat.type("What is wrong with calc.py?")
    page.get_by_role("link", name="What is wrong with calc.py?").click()
    expect(page.locator("#log")).to_contain_text("It subtracts <b>where</b> it should add.")
    expect(page.locator("#log pre").filter(has_text="return a - b")).to_have_count(1)
    expect(page.locator("#facts .state")).to_have_text("waiting")
    board.stop()
    chat.type("What is to be done?")
    boards(board.port)
    expect(page.locator("#log")).to_contain_text("One sign is to be changed.")
    expect(page.locator("#rounds li")).to_have_count(3)
    seen = page.locator("#log article .mark").all_text_contents()
    page.reload()
    assert page.locator("#log article .mark").all_text_contents() == seen
    chat.type("Do it.")
    expect(page.locator("#facts .state")).to_have_text("running")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#facts .state")).to_have_text("cancelled")
    expect(page.locator("#actions")).to_contain_text("callboard chat --resume")
    assert chat.process.wait(20)
    page.get_by_role("link", name="Runs").click()
    expect(page.locator("#rows tr").filter(has_text="What is wrong")).to_contain_text("cancelled")

"""Each page as it looks: for docs/board.md, and for axe-core in both themes and at a phone's width."""

import pytest
from playwright.sync_api import expect
from tests.board.crew import DIFF

from callboard.coding.job import PhaseEnded, PhaseStarted
from callboard.core import (
    AssistantCanister,
    InvocationCanister,
    Note,
    ReasoningContent,
    ResultCanister,
    ToolError,
    UserCanister,
)
from callboard.jobs.job import Approval
from callboard.servers.board.login import LOOK_SECONDS


def call(identifier, name, **arguments):
    return InvocationCanister(identifier=identifier, name=name, arguments=arguments, raw="")


def result(identifier, text, error=None):
    return ResultCanister(text, invocation_id=identifier, error=error)


@pytest.fixture(scope="module")
def scene(jobs):
    """Jobs in several states; the ids of one that has ended, and of one that waits."""
    mend = jobs.begin(
        "Mend the failing test of add() in calc.py",
        [UserCanister("Mend the failing test of add() in calc.py")],
        model="openai:gpt-4o",
        directory="/home/me/shop",
    )
    jobs.run(
        mend.append(
            [
                PhaseStarted("reproduce", 10),
                AssistantCanister(
                    [ReasoningContent("2 + 2 is 0 there, so I look at calc.py."), "I run the test first."]
                ),
                call("c1", "bash", command="python -m pytest -q"),
                result("c1", "1 failed in 0.12s\n"),
                PhaseEnded("reproduce"),
            ],
            rounds=1,
            calls=1,
            usage={"input": 12345, "output": 678, "cached": 1000},
            cost=0.0123,
            phase="reproduce",
        )
    )
    jobs.run(
        mend.append(
            [
                PhaseStarted("fix", 10),
                AssistantCanister("It subtracts. I change one sign."),
                call("c2", "edit_file", path="calc.py", old="return a - b", new="return a + b"),
                call("c3", "bash", command="curl http://example.org"),
                result("c2", f"calc.py was changed:\n{DIFF}"),
                result(
                    "c3", "no network: example.org is no host of the sandbox", ToolError("permission", "no network")
                ),
                Note("repaired", "a trailing comma was taken out of the arguments"),
                AssistantCanister("The test passes now."),
            ],
            rounds=2,
            calls=3,
            usage={"input": 22345, "output": 978, "cached": 11000},
            cost=0.0223,
            phase="fix",
        )
    )
    output = {"text": "add() subtracted its arguments; it adds them now.", "diff": DIFF, "files": ["calc.py"]}
    jobs.run(mend.end("completed", output={**output, "branch": "callboard/mend-add", "tests": "12 passed in 0.3 s"}))
    ship = jobs.begin("Ship release 2.4", [UserCanister("Ship release 2.4")], model="anthropic:claude-sonnet-4-5")
    arguments = {"to": "prod", "version": "2.4"}
    said = [AssistantCanister("The release is built and tagged."), call("c1", "deploy", **arguments)]
    jobs.run(ship.append(said, rounds=1, calls=1, usage={"input": 3100, "output": 210}, cost=0.0041))
    asked = Approval(call_id="c1", name="deploy", arguments=arguments, why="it is live", digest="5e884898da280471")
    jobs.run(ship.wait([asked]))
    colour = jobs.begin("Name the new colour", model="local:qwen2.5-coder-1.5b")
    question = Approval(call_id="q", name="ask", arguments={"question": "Teal or petrol?"}, is_question=True)
    jobs.run(colour.wait([question], waits_for="question"))
    failed = jobs.begin("Summarise yesterday's tickets", model="openai:gpt-4o-mini")
    jobs.run(failed.end("failed", error="the provider refused the key"))
    jobs.begin("Reconcile the invoices of October", model="openai:gpt-4o-mini")
    jobs.run(jobs.client.store.create("agent", description="Translate the manual", queue="nobody"))
    return mend.job.id, ship.job.id


THEMES = {
    "light": {},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 800}, "is_mobile": True, "has_touch": True},
}


PICTURES = {("dark", "job"): "board-job-dark", ("phone", "approval"): "board-approval-phone"}


@pytest.mark.parametrize("theme", THEMES)
def test_each_page_is_accessible(theme, board, scene, visit, look):
    ended, waiting = scene
    page = visit(board, **THEMES[theme]).open("jobs")
    for name, path in [
        ("jobs", "jobs"),
        ("job", f"jobs/{ended}{'#log-title' if theme == 'light' else ''}"),
        ("approval", f"jobs/{waiting}"),
    ]:
        page.goto(board.url + path)
        expect(page.locator("#status")).to_have_text("Live")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        look(page, f"board-{name}" if theme == "light" else PICTURES.get((theme, name), ""))
    page.goto(board.url + "jobs/nothing")
    look(page)


def test_the_login_is_accessible_and_says_what_to_do(board, chromium, look):
    context = chromium.new_context(viewport={"width": 1200, "height": 500})
    page = context.new_page()
    page.goto(f"{board.url}jobs?state=failed")
    expect(page.get_by_text("callboard board --link")).to_be_visible()
    look(page, "board-login")
    page.goto(board.first_link)
    page.wait_for_url("**/board/jobs?state=failed")
    context.clear_cookies()
    page.goto(board.first_link)
    expect(page.get_by_role("alert")).to_contain_text("already used")
    context.close()


def test_without_scripts_one_can_log_in_read_and_answer(board, scene, chromium, jobs):
    _, waiting = scene
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(board.new_link())
    page.get_by_role("button", name="Open the board").click()
    page.goto(f"{board.url}jobs/{waiting}")
    page.wait_for_timeout(1000 * LOOK_SECONDS)  # no script tells when the server takes an answer
    page.get_by_role("button", name="Allow", exact=True).click()
    expect(page.get_by_text("waiting for a worker")).to_be_visible()
    assert jobs.get(waiting).state == "pending"
    context.close()

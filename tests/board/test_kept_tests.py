"""A reply is kept as a test, its expectation is edited, and it runs with a model: in a browser."""

import pytest
from playwright.sync_api import expect
from tests.board.conftest import BoardProgram

from callboard.core import (
    InvocationCanister,
    InvocationEnded,
    InvocationStarted,
    ReplyEnded,
    ResultCanister,
    ToolDeclaration,
    Usage,
    UserCanister,
)
from callboard.testing import FakeBackend

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ToolDeclaration("weather", "The weather of a city.", SCHEMA)
CLOCK = ToolDeclaration("clock", "The time.", {"type": "object", "properties": {}})
CALL = InvocationCanister(identifier="c", name="clock", arguments={}, raw="{}")
ROME = '{"city": "Rome"}'
REPLY = [
    InvocationStarted(0, "c", "weather"),
    InvocationEnded(0, "c", "weather", {"city": "Rome"}, ROME),
    Usage(10, 5),
    ReplyEnded("invocations"),
]


@pytest.fixture(scope="module")
def board(jobs):
    """A board whose models are behind a fake backend, which always asks for the weather in Rome."""
    backend = FakeBackend(lambda _: REPLY, models=("gpt-5",))
    jobs.portal.call(backend.__aenter__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALLBOARD_BASE_URL", backend.url)
        program = BoardProgram()
    yield program
    program.stop()
    jobs.portal.call(backend.__aexit__, None, None, None)


def test_a_reply_is_kept_edited_run_deleted_and_restored(board, jobs, visit, look):
    claim = jobs.begin("How is Rome?", [UserCanister("How is Rome?")], model="gpt-5")
    claim.declare((WEATHER, CLOCK))
    jobs.run(claim.append([CALL, ResultCanister("noon", invocation_id="c")], rounds=1))
    jobs.run(claim.end("completed"))
    page = visit(board).open(f"jobs/{claim.job.id}")
    page.get_by_text("Tools: 2").click()
    page.get_by_text("The weather of a city.").first.click()
    expect(page.locator("#tools")).to_contain_text('"required"')
    look(page)
    page.get_by_role("button", name="Keep as a test").click()
    expect(page.get_by_label("Tool").first).to_have_value("clock")
    page.get_by_label("Tool").first.select_option("weather")
    page.get_by_label("Arguments, as JSON").first.fill('{"city": 1}')
    page.get_by_role("button", name="Keep as a test").click()
    expect(page.get_by_role("alert")).to_contain_text("city")
    look(page)
    page.get_by_label("Arguments, as JSON").first.fill(ROME)
    page.get_by_role("button", name="Keep as a test").click()
    tests = page.locator("#tests")
    expect(tests).to_contain_text("2 declared tools")
    look(page)
    page.get_by_role("button", name="Run with this model").click()
    expect(tests.locator(".state")).to_have_text("passed")
    expect(tests).to_contain_text("with gpt-5")
    page.get_by_role("button", name="Delete").click()
    expect(tests).to_contain_text("There are no kept tests.")
    page.get_by_role("button", name="Undo").click()
    expect(tests).to_contain_text("weather")

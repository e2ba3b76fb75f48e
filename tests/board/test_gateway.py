"""The board on a gateway with two workers: one login for both, and a stop that open pages do not delay."""

import pytest
from playwright.sync_api import expect
from tests.board.conftest import GatewayProgram

from callboard.core import AssistantCanister, UserCanister


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_gateway_has_the_board(workers, jobs, visit):
    gateway = GatewayProgram("http://127.0.0.1:9/v1", "--workers", workers)
    try:
        claim = jobs.begin("Count", [UserCanister("Count")])
        visitor = visit(gateway)
        pages = [visitor.open(f"jobs/{claim.job.id}") for _ in range(4)]
        jobs.run(claim.append([AssistantCanister("one")], rounds=1))
        for page in pages:
            expect(page.locator("#log")).to_contain_text("one")
    finally:
        gateway.stop()  # it raises if that takes as long as a gateway waits for open replies


def test_pages_of_one_browser_are_many(board, jobs, visit):
    """Hidden ones keep no connection, of which a browser has six."""
    claim = jobs.begin("Count", [UserCanister("Count")])
    visitor = visit(board)
    page = visitor.open(f"jobs/{claim.job.id}")
    expect(page.locator("#status")).to_have_text("Live")
    hide = "Object.defineProperty(document, 'hidden', {{ value: {}, configurable: true }});"
    tell = "document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(hide.format("true") + tell)
    jobs.run(claim.append([AssistantCanister("one")], rounds=1))
    page.evaluate(hide.format("false") + tell)
    expect(page.locator("#log article")).to_have_count(2)

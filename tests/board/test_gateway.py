"""The board on a gateway with two workers: one login for both, and a stop that open pages do not delay."""

import re

import pytest
from playwright.sync_api import expect
from tests.board.conftest import Program

from callboard.core import AssistantCanister, UserCanister


class GatewayProgram(Program):
    """A gateway with a board."""

    def __init__(self, *options):
        super().__init__("serve", "--backend", "http://127.0.0.1:9/v1", "--port", "0", "--board", *options)
        self.url = self.first_link = ""
        while not self.url:
            line = self.process.stderr.readline()
            assert line, "the gateway has ended"
            if match := re.search(r"its board: (http\S+)", line):
                self.first_link = match[1]
                self.url = self.first_link.partition("login?")[0]

    def new_link(self):
        return self.first_link


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_gateway_has_the_board(workers, jobs, visit):
    gateway = GatewayProgram("--workers", workers)
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
    expect(page.locator("#status")).to_have_text("live")
    hide = "Object.defineProperty(document, 'hidden', {{ value: {}, configurable: true }});"
    tell = "document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(hide.format("true") + tell)
    jobs.run(claim.append([AssistantCanister("one")], rounds=1))
    page.evaluate(hide.format("false") + tell)
    expect(page.locator("#log article")).to_have_count(2)

"""The gateway's requests in a browser: as they come, side by side, read anew, asked again and kept as a test."""

import json
import urllib.request
from contextlib import suppress

import pytest
from playwright.sync_api import expect
from tests.board.conftest import GatewayProgram

from callboard.core import InvocationEnded, InvocationStarted, ReplyEnded, TextPiece, Usage
from callboard.evaluation.suites import load_file, recorded_path
from callboard.testing import FakeBackend, Silence, StatusReply

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def answer(body):
    """What the fake backend says to a request, by what was asked."""
    question = json.dumps(body["messages"][-1]["content"])
    if "fail" in question:
        return StatusReply(400, {"error": {"message": f"no {HOSTILE}"}})
    if "wait" in question:
        return Silence([TextPiece("One moment.")])
    if "forecast" in question:
        started = InvocationStarted(0, "call_1", "weather")
        return [started, InvocationEnded(0, "call_1", "weather", {}, "{}"), Usage(1200, 30), ReplyEnded("invocations")]
    if "weather" in question:
        return 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    return f"Hello, who is there? {HOSTILE}"


class AskedGateway(GatewayProgram):
    """A gateway that a client asks."""

    def open(self, question, model="qwen2.5-coder-7b", earlier=(), **more):
        """The beginning of a reply."""
        messages = [*earlier, {"role": "user", "content": question}]
        body = {"model": model, "messages": messages, "tools": TOOLS, "stream": True}
        url = self.url.replace("/board/", "/v1/chat/completions")
        headers = {"content-type": "application/json", **more}
        return urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers))

    def ask(self, *question, **more):
        with suppress(urllib.error.HTTPError), self.open(*question, **more) as reply:
            reply.read()


@pytest.fixture(scope="module")
def gateway(jobs):
    backend = FakeBackend(answer, models=("qwen2.5-coder-7b", "gpt-5"))
    jobs.portal.call(backend.__aenter__)
    program = AskedGateway(backend.url)
    yield program
    program.stop()
    jobs.portal.call(backend.__aexit__, None, None, None)


WIDTHS = [{"viewport": {"width": width, "height": 800}} for width in (390, 768)]


@pytest.mark.parametrize("options", [{}, {"color_scheme": "dark"}, *WIDTHS])
def test_the_pages_of_requests(gateway, visit, look, options):
    for question in ("Hi", "What is the weather in Oslo?", "Please fail", "Hi again"):
        gateway.ask(question, **{"session-id": "run of today", "user-agent": "codex_exec/0.169"})
    visitor = visit(gateway, **options)
    page = visitor.open("requests")
    expect(page.locator("#status")).to_have_text("Live")
    expect(page.locator("#rows")).to_contain_text("1 call from text")
    look(page, "" if options else "board-requests")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.get_by_label("With").select_option("recovered")
    page.get_by_role("button", name="Filter").click()
    page.locator("#rows tbody a").first.click()
    expect(page.locator("#sides")).to_contain_text("invocation_ended")
    page.get_by_label("Dialect").first.select_option("pythonic")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_role("heading", name="As pythonic reads it")).to_be_visible()
    expect(page.get_by_role("heading", name="pythonic finds no call")).to_be_visible()
    expect(page.get_by_role("heading", name="Original finds 1 call: weather")).to_be_visible()
    look(page, "" if options else "board-request")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert not page.evaluate("document.querySelector('img, #main script')")


def test_a_request_is_seen_without_loading_the_page_anew(gateway, visit):
    page = visit(gateway).open("requests?model=gpt-5")
    expect(page.locator("#status")).to_have_text("Live")
    expect(page.locator("#rows")).to_contain_text("No matching requests")
    gateway.ask("Hi", "gpt-5")
    expect(page.locator("#rows tbody tr")).to_have_count(1)


@pytest.mark.parametrize("options", [{}, {"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 800}}])
def test_a_session_is_one_row_and_opens_to_its_turns(gateway, visit, look, options):
    named = {"x-session-id": f"ses_{len(options)}_{len(str(options))}", "user-agent": "opencode/1.18 ai-sdk"}
    gateway.ask("The forecast for Oslo?", **named)
    page = visit(gateway, **options).open("requests")
    page.get_by_role("link", name="Sessions").click()
    page.get_by_role("link", name="opencode: The forecast for Oslo?").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("opencode")
    turns = page.get_by_role("region", name="Turns").locator("tbody tr")
    expect(turns).to_have_count(1)
    called = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "Error: no such city"}
    gateway.ask("Hi", earlier=[{"role": "assistant", "content": None, "tool_calls": [called]}, result], **named)
    expect(turns).to_have_count(2)  # without a reload
    expect(turns.first).to_contain_text("1 failed")
    look(page, "" if options else "board-session")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    turns.last.get_by_role("link").click()
    expect(page.locator("#sides")).to_contain_text("Hello, who is there?")
    page.get_by_role("link", name="opencode").click()
    expect(turns).to_have_count(2)


def test_what_was_opened_stays_open_while_a_request_is_answered(gateway, visit):
    with gateway.open("Please wait"):
        page = visit(gateway).open("requests?end=open")
        page.locator("#rows tbody a").first.click()
        expect(page.locator("#sides")).to_contain_text("One moment.")
        page.get_by_text("Sent by the client").click()
        page.get_by_text("Sent to the backend").click()
        before = page.locator("#sides .facts").text_content()
        expect(page.locator("#sides .facts")).not_to_have_text(before)  # its time goes on
        for region in ("Sent by the client", "Sent to the backend for answer 1"):
            expect(page.get_by_role("region", name=region)).to_contain_text("Please wait")
            expect(page.get_by_role("region", name=region)).to_be_visible()


def test_ask_again_and_keep_as_a_test(gateway, visit, look):
    gateway.ask("What is the weather in Oslo?")
    page = visit(gateway).open("requests?problem=recovered")
    page.locator("#rows tbody a").first.click()
    page.locator("select[name=mode]").select_option("validated")
    page.locator("select[name=dialect]").last.select_option("hermes")
    page.get_by_role("button", name="Ask again").click()
    expect(page.get_by_role("heading", name="Side by side")).to_be_visible()
    expect(page.get_by_role("button", name="Keep as a test")).to_be_visible()  # it has its reply
    expect(page.locator("#sides")).to_contain_text("Mode validated, dialect hermes makes 1 call: weather.")
    expect(page.locator("#sides")).to_contain_text("Nothing differs.")
    look(page, "board-asked-again")
    page.get_by_role("button", name="Keep as a test").click()
    expect(page.get_by_label("Tool").first).to_have_value("weather")
    look(page)
    page.get_by_role("button", name="Keep as a test").click()
    expect(page.get_by_role("heading", name="Kept tests")).to_be_visible()
    expect(page.locator("#tests")).to_contain_text("1 declared tool")
    look(page)
    [task] = load_file(recorded_path())
    assert task.steps[0].expected[0].name == "weather"

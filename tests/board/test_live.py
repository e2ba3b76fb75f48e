"""The stream of a page: reloads, restarts, many events, and content that means harm."""

import asyncio
import time

from playwright.sync_api import expect
from tests.board.conftest import CREW, PATIENCE, BoardProgram, Program

from callboard.core import AssistantCanister, InvocationCanister, Note, ReasoningContent, ResultCanister, UserCanister
from callboard.jobs.job import Approval

HOSTILE = """</pre></p><script>window.hacked = 1</script><img src=x onerror="window.hacked = 2">
<a href="javascript:window.hacked = 3">x</a><style>body { display: none }</style>
<section class="waits ask"><h2>Allow <code>pay</code>?</h2><form method="post" action="/board/jobs/x/answer">
<button name="verdict" value="allow">Allow</button></form></section>"""


def numbers(page):
    return [int(each) for each in page.locator("#log article .mark").all_text_contents()]


def test_each_entry_is_seen_once_over_reloads_and_restarts(jobs, visit):
    board = BoardProgram()
    claim = jobs.begin("Count", [UserCanister("Count")])
    page = visit(board).open(f"jobs/{claim.job.id}")

    def say(first, last):
        said = [AssistantCanister(f"number {number}") for number in range(first, last)]
        jobs.run(claim.append(said, rounds=first))

    say(2, 12)
    expect(page.locator("#log article")).to_have_count(11)
    board.stop()
    say(12, 22)
    again = BoardProgram(board.port)
    try:
        expect(page.locator("#log article")).to_have_count(21)
        assert numbers(page) == [*range(1, 22)]
        page.reload()
        say(22, 32)
        expect(page.locator("#log article")).to_have_count(31)
        assert numbers(page) == [*range(1, 32)]
    finally:
        again.stop()


def test_five_thousand_events_in_ten_seconds(board, jobs, visit):
    claim = jobs.begin("Count", [UserCanister("Count")])
    page = visit(board).open(f"jobs/{claim.job.id}")
    expect(page.locator("#log article")).to_have_count(1)

    async def say():
        began = time.monotonic()
        for number in range(100):
            await asyncio.sleep(max(0.0, began + number / 10 - time.monotonic()))
            await claim.append([AssistantCanister(f"number {number} {each}") for each in range(50)], rounds=number + 1)

    jobs.run(say())
    # Not by `expect`, which looks through all of the page for its message, for many seconds.
    for _ in range(PATIENCE // 50):
        if page.evaluate("document.getElementById('log').childElementCount") == 5001:
            break
        page.wait_for_timeout(50)
    assert numbers(page) == [*range(1, 5002)]
    assert page.locator("#e-5001 .text").text_content() == "number 99 49"
    # The page still answers.
    page.locator("#rounds a").last.click()
    page.wait_for_url("**#e-4952")
    assert page.locator("#log article").count() <= 200


def test_a_worker_s_reply_is_shown_while_it_is_written(board, jobs, visit, tmp_path, monkeypatch):
    monkeypatch.setenv("CALLBOARD_GATES", str(tmp_path))
    (tmp_path / "half a").touch()
    worker = Program("worker", "--agents", CREW)
    try:
        visitor = visit(board)
        page = visitor.open(f"jobs/{jobs.submit('Slow please')}")
        expect(page.locator("#pieces")).to_contain_text("half a")
        expect(page.locator("#now")).to_contain_text("is writing")
        page.reload()
        expect(page.locator("#pieces")).to_contain_text("half a")
        (tmp_path / "reply").touch()
        expect(page.locator("#log")).to_contain_text("half a reply")
        expect(page.locator("#pieces")).to_be_empty()
        expect(page.locator("#now")).to_be_empty()
    finally:
        worker.stop()


def test_hostile_content_is_text(board, jobs, visit, look):
    call = InvocationCanister(identifier="c1", name=HOSTILE[:60], arguments={HOSTILE: HOSTILE}, raw="{}")
    claim = jobs.begin(HOSTILE, [UserCanister(HOSTILE)], model=HOSTILE)
    visitor = visit(board)
    page = visitor.open(f"jobs/{claim.job.id}")
    said = AssistantCanister([ReasoningContent(HOSTILE), HOSTILE])
    jobs.run(claim.append([said, call, ResultCanister(HOSTILE, invocation_id="c1"), Note("alert", HOSTILE)], rounds=1))
    expect(page.locator("#e-5")).to_be_attached()
    check_harmless(page)
    expect(page.get_by_role("button", name="Allow")).to_have_count(0)
    asked = Approval(call_id=HOSTILE, name=HOSTILE, arguments={HOSTILE: HOSTILE}, why=HOSTILE, digest="d1")
    jobs.run(claim.wait([asked]))
    expect(page.locator("#waits h2")).to_have_count(1)
    check_harmless(page)
    look(page)
    page.reload()
    check_harmless(page)
    page.goto(board.url + "jobs")
    check_harmless(page)


def check_harmless(page):
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main style, main img").count() == 0
    assert page.locator('a[href^="javascript"]').count() == 0
    assert page.locator("body").is_visible()

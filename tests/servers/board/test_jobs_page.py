"""The list of jobs."""

import re

from tests.servers.board.test_job_page import make_ended, make_job, make_waiting

from callboard.core import AssistantCanister
from callboard.servers.board.jobs_page import PAGE_SIZE


def rows(page):
    return re.findall(r'<td class="title"><a href="/board/jobs/([^"]+)"', page)


def test_a_list_has_the_newest_first_and_says_for_whom_they_wait(run, job_store, browser):
    ended = run(make_ended, job_store, AssistantCanister("Done.")).job
    waiting = run(make_waiting, job_store)
    page = browser.get("/board/jobs").text
    assert rows(page) == [waiting.id, ended.id]
    assert "waits for an approval" in page
    before, _, _ = page.partition('id="states"')
    assert f'href="/board/jobs/{waiting.id}#waits"' in before
    assert "<code>deploy</code>" in before


def test_a_list_of_one_state(run, job_store, browser):
    run(make_job, job_store)
    waiting = run(make_waiting, job_store)
    assert rows(browser.get("/board/jobs?state=waiting").text) == [waiting.id]
    assert len(rows(browser.get("/board/jobs?state=<script>").text)) == 2
    assert "There are no jobs that are failed" in browser.get("/board/jobs?state=failed").text


def test_older_jobs_are_on_pages_of_their_own(run, job_store, browser):
    async def make(count):
        return [(await job_store.create("agent", description=f"job {n}")).id for n in range(count)]

    made = run(make, PAGE_SIZE + 3)
    first = browser.get("/board/jobs").text
    older = re.search(r'rel="next" href="([^"]+)"', first)[1].replace("&amp;", "&")
    second = browser.get(older).text
    assert sorted(rows(first) + rows(second)) == sorted(made)
    assert not set(rows(first)) & set(rows(second))
    assert 'rel="next"' not in second


def test_a_stream_brings_what_changes(run, job_store, follow):
    run(job_store.create, "agent", description="the first")

    async def make():
        await job_store.create("agent", description="the second")

    messages = follow("/board/jobs/live", lambda came: "the second" in str(came), make)
    assert "the first" in messages[0][1]["rows"]
    assert set(messages[1][1]) == {"states", "rows"}


def test_titles_are_text(run, job_store, browser):
    run(job_store.create, "agent", description="<img src=x onerror=alert(1)>")
    assert "<img" not in browser.get("/board/jobs").text

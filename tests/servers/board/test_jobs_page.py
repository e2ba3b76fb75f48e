"""The list of jobs."""

import re
from datetime import UTC, datetime

from tests.servers.board.test_job_page import make_ended, make_job, make_waiting

from callboard.core import AssistantCanister, InvocationCanister
from callboard.servers.board.jobs_page import PAGE_SIZE


def rows(page):
    return re.findall(r'<td class="title"><a href="/board/jobs/([^"]+)"', page)


def test_a_list_has_the_newest_first_and_says_for_whom_they_wait(run, job_store, browser):
    ended = run(make_ended, job_store, AssistantCanister("Done.")).job
    waiting = run(make_waiting, job_store)
    page = browser.get("/board/jobs").text
    assert rows(page) == [waiting.id, ended.id]
    assert "Needs your approval (1 call)" in page
    before, _, _ = page.partition('id="states"')
    assert f'href="/board/jobs/{waiting.id}#waits"' in before
    assert "<code>deploy</code>" in before


def test_a_list_of_one_state(run, job_store, browser):
    run(make_job, job_store)
    waiting = run(make_waiting, job_store)
    assert rows(browser.get("/board/jobs?state=waiting").text) == [waiting.id]
    assert len(rows(browser.get("/board/jobs?state=<script>").text)) == 2
    assert "No failed jobs." in browser.get("/board/jobs?state=failed").text
    assert "No jobs match." in browser.get("/board/jobs?state=failed&text=x").text


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
    assert set(messages[1][1]) == {"figures", "states", "rows"}


def test_jobs_are_found_by_what_they_are(run, job_store, browser):
    async def make():
        made = [await job_store.create("agent", description=text, model="gpt-5") for text in ("Pay\nACME", "100% off")]
        made.append(await job_store.create("build", description="Mend it", model="local:small"))
        claim = await job_store.claim(made[0].id, 1, "worker")
        call = InvocationCanister(identifier="c", name="transfer_money", arguments={})
        await claim.append([call], rounds=1, cost=2.5)
        await claim.end("failed", error="no funds")
        return [each.id for each in made]

    pay, off, mend = run(make)
    day = datetime.now(UTC).date().isoformat()
    table = {
        "text=acme": [pay],
        "text=TRANSFER_MONEY": [pay],
        "text=transfer_money": [pay],
        "text=100%25": [off],
        f"text={mend}": [mend],
        "kind=build": [mend],
        "model=gpt-5": [off, pay],
        "cost=2&model=gpt-5": [pay],
        f"day={day}&state=failed": [pay],
        "day=2001-01-01": [],
        "order=most+expensive": [pay, mend, off],
        "order=longest": [pay, mend, off],
        "order=nothing&day=tomorrow&cost=much&page=-1": [mend, off, pay],
        "page=2": [],
    }
    assert {query: rows(browser.get(f"/board/jobs?{query}").text) for query in table} == table


def test_figures_of_the_day_and_links_that_keep_the_search(run, job_store, browser):
    job = run(make_ended, job_store, AssistantCanister("Done.")).job
    page = browser.get("/board/jobs?text=d&model=m%26m").text
    assert "<strong>1</strong> created today" in page
    assert 'href="/board/jobs?text=d&amp;state=completed&amp;model=m%26m"' in page
    assert job.id in browser.get(f"/board/jobs?day={job.id[:8]}").text


def test_titles_are_text(run, job_store, browser):
    run(job_store.create, "agent", description="<img src=x onerror=alert(1)>")
    assert "<img" not in browser.get("/board/jobs").text

"""The trace of a job, and two jobs side by side."""

import re

from tests.servers.board.test_job_page import CALL, begin, visible

from callboard.core import AssistantCanister, ResultCanister, ToolError, UserCanister
from callboard.jobs.entries import MeasuredReply, ReplyTook


def numbers(page):
    return re.findall(r'<article id="([ab]e-\d+)"', page)


async def make(store, *, fails=True):
    claim = await begin(store)
    began = store._clock()
    called = MeasuredReply(CALL, ReplyTook(began, {"input": 1200, "output": 34}, 0.25))
    error = ToolError("execution", "no <b>network</b>") if fails else None
    await claim.append([called, ResultCanister("no", invocation_id="call_1", error=error)], rounds=1, cost=0.25)
    await claim.append([MeasuredReply(AssistantCanister("Done."), ReplyTook(began, {"output": 3}))], rounds=2)
    await claim.end("completed", output={"text": "Done."})
    return claim.job


def test_a_trace_has_each_round_and_call(run, job_store, browser):
    page = browser.get(f"/board/jobs/{run(make, job_store).id}/trace").text
    text = visible(page)
    for shown in ("deploy", "1,200", "$0.25", "execution: no <b>network</b>"):
        assert shown in text
    assert len(re.findall("<rect", page)) == 3
    assert 'class="failed"' in page
    empty = run(begin, job_store).job
    assert "No rounds yet." in browser.get(f"/board/jobs/{empty.id}/trace").text


def test_two_jobs_are_compared_from_their_first_difference(run, job_store, browser):
    failed, again, other = run(make, job_store), run(make, job_store), run(make, job_store, fails=False)
    page = browser.get(f"/board/jobs/{failed.id}/compare?with={other.id}").text
    assert "The first 2 entries are the same." in page
    assert numbers(page) == ["ae-3", "ae-4", "be-3", "be-4"]
    page = browser.get(f"/board/jobs/{failed.id}/compare?with={again.id}").text
    assert "The first 4 entries are the same." in page
    assert numbers(page) == []
    different = run(begin, job_store, items=[UserCanister("Else")]).job
    assert "differ from the first" in browser.get(f"/board/jobs/{failed.id}/compare?with={different.id}").text
    assert browser.get(f"/board/jobs/{failed.id}/compare?with=").status_code == 404

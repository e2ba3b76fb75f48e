"""The trace of a job, and two jobs side by side."""

import re

from starlette.testclient import TestClient
from tests.servers.board.test_job_page import CALL, begin, visible

from callboard.core import AssistantCanister, ResultCanister, ToolError, UserCanister
from callboard.jobs.entries import MeasuredReply, ReplyTook
from callboard.servers.board.app import Board, BoardParts, board_application
from callboard.servers.board.tools_page import ToolsPart


def numbers(page):
    return re.findall(r'<article id="([ab]e-\d+)"', page)


async def make(store, *, fails=True):
    claim = await begin(store)
    began = store._clock()
    called = MeasuredReply(CALL, ReplyTook(began, {"input": 1200, "output": 34}, 0.25))
    error = ToolError("execution", "no <b>network</b>") if fails else None
    await claim.append(
        [called, ResultCanister("no", invocation_id="call_1", error=error)], rounds=1, calls=1, cost=0.25
    )
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
    assert "deploy" in visible(page)  # the result names its call, which is among the same entries
    page = browser.get(f"/board/jobs/{failed.id}/compare?with={again.id}").text
    assert "The first 4 entries are the same. Nothing differs." in page
    assert numbers(page) == []
    different = run(begin, job_store, items=[UserCanister("Else")]).job
    assert "differ from the first" in browser.get(f"/board/jobs/{failed.id}/compare?with={different.id}").text
    assert browser.get(f"/board/jobs/{failed.id}/compare?with=").status_code == 404


def test_tools_have_figures_of_their_calls(run, job_store, board, login):
    failed = run(make, job_store)
    run(make, job_store, fails=False)
    both = Board(BoardParts(jobs=board.parts.jobs, tools=ToolsPart(dict)), login)
    with TestClient(board_application(both), base_url="http://127.0.0.1:8283") as client:
        client.cookies.set(login.cookie, login.begin_session(), path="/board")
        page = client.get("/board/tools").text
    row = visible(page.partition("<tbody>")[2].partition("</tbody>")[0]).split()
    assert row[:5] == ["deploy", "2", "1", "execution", "1"]
    assert f'<a href="/board/jobs/{failed.id}">execution: no &lt;b&gt;network&lt;/b&gt;</a>' in page

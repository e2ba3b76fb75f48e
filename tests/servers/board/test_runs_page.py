"""Runs that commands make themselves: their list, one of them, and what its stream brings."""

import asyncio
import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.servers.board.test_job_page import DIFF, HOSTILE, visible

from callboard.coding.jobs.job import JobOutput
from callboard.coding.jobs.log import EVENTS, JobLog, Notice, PhaseStarted, PromptSent, Resumed, RoundMeasured
from callboard.coding.jobs.store import DIED, JobStore
from callboard.core import (
    ArgumentsPiece,
    InvocationEnded,
    InvocationStarted,
    Note,
    ReasoningPiece,
    ReplyEnded,
    ReplyStarted,
    ResultCanister,
    ResultReady,
    RoundStarted,
    RunEnded,
    TextPiece,
    ToolError,
    Usage,
)
from callboard.servers.board.app import Board, BoardParts
from callboard.servers.board.job_page import WINDOW
from callboard.servers.board.run_entries import MAX_REPLY
from callboard.servers.board.run_log import MAX_LINE
from callboard.servers.board.runs_page import PAGE_SIZE

RUNNER = """import sys, time
from pathlib import Path
from callboard.coding.jobs.store import JobStore
records = JobStore(Path(sys.argv[1]))
with records.running(sys.argv[2]):
    records.update(records.load(sys.argv[2]), state="running")
    print("it runs", flush=True)
    time.sleep(60)
"""


class Clock:
    """Each time a second later."""

    def __init__(self):
        self.now = datetime(2026, 11, 23, 8, tzinfo=UTC)

    def __call__(self):
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture
def records(tmp_path):
    return JobStore(tmp_path / "records", clock=Clock())


@pytest.fixture
def board(login, records):
    return Board(BoardParts(runs=records), login)


@pytest.fixture
def begin(records):
    """Makes a run that this process runs, with these steps: its id."""
    with ExitStack() as locks:

        def make(*steps, kind="build", description="Add a command line", **changes):
            job = records.create(kind, description, Path("/home/me/shop"), model="openai:gpt-4o")
            locks.enter_context(records.running(job.id))
            records.update(job, state="running", **changes)
            add(records, job.id, *steps)
            return job.id

        yield make


def add(records, identifier, *steps):
    with JobLog(records.folder(identifier)) as log:
        for step in steps:
            log.add(step)


def end(records, identifier, state="completed", **changes):
    records.update(records.load(identifier), state=state, **changes)


def reply(text, *calls, reason=""):
    """A reply as it comes, in pieces."""
    pieces = [TextPiece(each) for each in re.findall(r"\S+\s*", text)]
    return [
        ReplyStarted("r", "gpt-4o"),
        *pieces,
        *[event for number, call in enumerate(calls) for event in call_events(number, *call)],
        Usage(100, 10),
        ReplyEnded(reason or ("invocations" if calls else "stop")),
    ]


def call_events(number, identifier, name, arguments):
    raw = json.dumps(arguments)
    return [
        InvocationStarted(number, identifier, name),
        *[ArgumentsPiece(number, raw[at : at + 3]) for at in range(0, len(raw), 3)],
        InvocationEnded(number, identifier, name, arguments, raw),
    ]


def result(identifier, text, error=None):
    return ResultReady(ResultCanister(text, invocation_id=identifier, error=error))


def one_round(number, text, *more):
    return [RoundStarted(number), *reply(text), *more]


TWO_ROUNDS = [
    PhaseStarted("implement", 10),
    PromptSent("Write the file"),
    RoundStarted(1),
    ReasoningPiece("I should look first."),
    *reply("I write it.", ("c1", "file", {"path": "calc.py", "old": "a - b", "new": "a + b"})),
    result("c1", f"calc.py was changed:\n{DIFF}"),
    RoundMeasured(1, datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
    RoundStarted(2),
    *reply("It is there."),
    RunEnded("completed"),
]


def rows(page):
    return re.findall(r'<td class="title"><a href="/board/runs/([^"]+)"', page)


def numbers(text):
    return [int(each) for each in re.findall(r'<article id="e-(\d+)"', text)]


def position_of(page):
    return re.search(r'data-live="([^"]+)"', page)[1]


def test_the_list_has_the_newest_first(begin, records, browser):
    first = begin(description="The first\nof two", usage={"input": 1200, "output": 34}, cost=0.5, rounds=3)
    end(records, first, "failed", reason="no tests")
    second = begin(kind="chat", description="")
    page = browser.get("/board/runs").text
    assert rows(page) == [second, first]
    for text in (
        "The first",
        "failed",
        "no tests",
        "running",
        "chat",
        "build",
        "openai:gpt-4o",
        "/home/me/shop",
        "1.2k",
    ):
        assert text in visible(page)
    assert 'aria-current="page">Runs</a>' in page


def test_an_empty_list_says_how_a_run_is_made(browser):
    assert "callboard build" in browser.get("/board/runs").text


def test_a_page_reads_the_records_that_it_shows(records, browser, monkeypatch):
    made = [records.create("build", f"run {number}", Path("/tmp")).id for number in range(2 * PAGE_SIZE + 3)]
    read = []
    monkeypatch.setattr(records, "read", lambda name: read.append(name) or JobStore.read(records, name))
    shown, path = [], "/board/runs"
    while path:
        read.clear()
        page = browser.get(path).text
        assert len(read) <= PAGE_SIZE + 1
        shown += rows(page)
        older = re.search(r'rel="next" href="([^"]+)"', page)
        path = older and older[1]
    assert shown == made[::-1]


@pytest.mark.parametrize("record", ["{", '{"id": 1}', "[" * 100_000, '{"id": "another", "type": "build"}', "\udcff"])
def test_a_record_that_cannot_be_read_is_a_row(begin, records, browser, record):
    bad, good = begin(), begin()
    (records.folder(bad) / "job.json").write_text(record, errors="surrogateescape")
    answer = browser.get("/board/runs")
    assert rows(answer.text) == [good]
    assert f"{bad}</td>" in answer.text
    assert browser.get(f"/board/runs/{bad}").status_code == 404


def test_the_folder_of_a_durable_job_is_no_run(begin, records, browser):
    good = begin()
    (records.directory / "20990101-000000-000-abcdef").mkdir()
    (records.directory / "notes").write_text("")
    page = browser.get("/board/runs").text
    assert rows(page) == [good]
    assert "abcdef" not in page


def test_the_list_is_live(begin, records, follow):
    identifier = begin(description="the first")

    async def change():
        end(records, identifier)
        records.create("build", "the second", Path("/tmp"))

    messages = follow("/board/runs/live", lambda came: "the second" in str(came), change)
    assert "the first" in messages[0][1]["rows"]
    assert "completed" in messages[1][1]["rows"]


def test_a_page_shows_what_a_run_did(begin, records, browser):
    identifier = begin(*TWO_ROUNDS, phase="implement", usage={"input": 1200}, cost=0.5)
    page = browser.get(f"/board/runs/{identifier}").text
    seen = visible(page)
    for text in ("Add a command line", "I should look first.", "I write it.", "It is there.", "1,200", "/home/me/shop"):
        assert text in seen
    assert "Write the file" in seen
    assert re.findall(r"<h3>(.*?)</h3>", page) == ["Round 1", "Phase implement", "Round 2"]
    assert '<span class="line removed">a - b' in page
    assert '<span class="line added">+    return a + b\n</span>' in page
    assert "result of <code>file</code>" in page
    shown = numbers(page)
    assert shown == sorted(set(shown))
    lines = (records.folder(identifier) / EVENTS).read_text().splitlines()
    assert all('"text_piece"' in lines[number - 1] or "_piece" not in lines[number - 1] for number in shown)
    assert re.findall(r"Round \d</a>", page) == ["Round 1</a>", "Round 2</a>"]
    assert str(records.folder(identifier)) in seen


def test_what_a_run_has_taken_is_known_while_it_goes_on(begin, browser):
    now = datetime(2026, 1, 1, tzinfo=UTC)
    steps = [RoundStarted(1), RoundMeasured(1, now, now, {"input": 1000, "output": 20}, 0.25), RoundStarted(2)]
    measured = RoundMeasured(2, now, now, {"input": 3000}, 0.5)
    page = visible(browser.get(f"/board/runs/{begin(*steps, measured)}").text)
    for text in ("4,000", "$0.75"):
        assert text in page


def test_a_run_is_found_by_the_beginning_of_its_name(begin, browser):
    identifier = begin()
    assert browser.get(f"/board/runs/{identifier[:15]}").url.path == f"/board/runs/{identifier}"
    assert browser.get("/board/runs/nothing").status_code == 404
    assert browser.get("/board/runs/..%2f..").status_code == 404


def test_what_a_run_handed_over_is_seen(begin, records, browser):
    identifier = begin(*TWO_ROUNDS)
    output = JobOutput(
        summary="All done",
        branch="callboard/x",
        diff=DIFF,
        files=("calc.py",),
        tests="3 passed",
        commits=("c0ffee", "c0de"),
    )
    end(records, identifier, output=output)
    page = browser.get(f"/board/runs/{identifier}").text
    for text in ("All done", "callboard/x", "calc.py", "3 passed", "c0ffee\nc0de"):
        assert text in visible(page)
    assert "Findings" not in page
    assert "Missing" not in page
    assert page.count('<span class="line added">+    return a + b\n</span>') == 2
    assert "/cancel" not in page


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({"state": "failed", "reason": DIED}, "callboard jobs resume"),
        ({"type": "chat"}, "callboard chat --resume"),
        ({}, ""),
        ({"state": "failed", "reason": "no tests"}, ""),
    ],
)
def test_the_page_says_which_command_goes_on(begin, records, browser, changes, command):
    identifier = begin()
    end(records, identifier, **changes)
    page = visible(browser.get(f"/board/runs/{identifier}").text)
    assert f"{command} {identifier}" in page if command else "To go on" not in page


def test_what_models_and_tools_wrote_is_text(begin, records, browser):
    error = ToolError("execution", HOSTILE)
    steps = [
        PromptSent(HOSTILE),
        RoundStarted(1),
        TextPiece(HOSTILE + "\x1b[31m\x07"),
        *reply("", ("<b>", HOSTILE, {HOSTILE: HOSTILE + "\u202e"})),
        result("<b>", "", error),
        result("none", HOSTILE),
        Note("alert", HOSTILE),
        Notice(HOSTILE),
    ]
    identifier = begin(*steps, description=HOSTILE, reason=HOSTILE, phase=HOSTILE)
    end(
        records,
        identifier,
        "failed",
        reason=HOSTILE,
        error=HOSTILE,
        output=JobOutput(summary=HOSTILE, files=(HOSTILE,)),
    )
    page = browser.get(f"/board/runs/{identifier}").text
    assert visible(page).count("alert(1)") >= 10
    assert "<script>alert" not in page + browser.get("/board/runs").text
    assert not {"\x1b", "\x07"} & set(page)
    assert "\\u202e" in page
    assert 'name="verdict"' not in page


def test_a_reply_that_is_asked_for_again_is_not_shown(begin, browser):
    steps = [RoundStarted(1), *reply("No, that.", ("c1", "gone", {}), reason="retry"), *reply("This it is.")]
    page = visible(browser.get(f"/board/runs/{begin(*steps)}").text)
    assert "This it is." in page
    assert "gone" not in page


def test_a_reply_of_a_process_that_died_is_void_where_another_goes_on(begin, browser):
    died = [RoundStarted(1), ReplyStarted("r", "m"), TextPiece("half a")]
    page = visible(browser.get(f"/board/runs/{begin(*died, Resumed(), *one_round(1, 'whole'))}").text)
    assert "Another process goes on" in page
    assert "half a" not in page
    assert "whole" in page


def test_a_reply_that_was_cut_is_shown_when_its_run_has_ended(begin, browser):
    cut = [RoundStarted(1), ReplyStarted("r", "m"), TextPiece("half a"), RunEnded("cancelled")]
    page = visible(browser.get(f"/board/runs/{begin(*cut)}").text)
    assert page.index("half a") < page.index("The run ended")


def test_pages_of_a_long_log_have_each_entry_once(begin, browser):
    steps = [step for number in range(1, 151) for step in one_round(number, f"text {number}", Notice(f"note {number}"))]
    identifier = begin(*steps)
    shown, path = [], f"/board/runs/{identifier}"
    while path:
        page = browser.get(path).text
        assert len(numbers(page)) <= WINDOW
        shown = numbers(page) + shown
        earlier = re.search(r'rel="prev" href="([^"]+)"', page)
        path = earlier and earlier[1]
    assert shown == sorted(set(shown))
    texts = visible(browser.get(f"/board/runs/{identifier}?from=1").text)
    assert "text 1 " in texts
    assert len(shown) == 450  # a round, its text and its notice
    page = browser.get(f"/board/runs/{identifier}?from={shown[7]}").text
    assert numbers(page)[0] == shown[7]
    assert 'rel="next"' in page
    assert "data-live" not in page
    round_100 = re.search(r'href="([^"]+)#[^"]+">Round 100</a>', page)[1]
    assert "text 100" in browser.get(round_100).text


def test_an_entry_is_shown_whole_by_its_number(begin, browser):
    long = "x" * 40_000
    identifier = begin(RoundStarted(1), *reply(long))
    page = browser.get(f"/board/runs/{identifier}").text
    path = re.search(r'href="(/board/runs/[^"]+/entries/\d+)"', page)[1]
    answer = browser.get(path)
    assert long in answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    for number in ("0", "1000", "x", "9" * 30):
        assert browser.get(f"/board/runs/{identifier}/entries/{number}").status_code == 404


def test_a_line_that_cannot_be_read_is_a_notice(begin, records, browser):
    identifier = begin(*one_round(1, "before"))
    with (records.folder(identifier) / EVENTS).open("ab") as log:
        for line in (b"{}", b'{"type":"of_another_release"}', b"\xff", b"[" * 100_000, b'{"role":"nobody"}', b""):
            log.write(line + b"\n")
        log.write(b'{"type":"notice","text":"' + b"x" * MAX_LINE + b'"}\n')
    add(records, identifier, *one_round(2, "behind"))
    page = visible(browser.get(f"/board/runs/{identifier}").text)
    assert page.count("is none that this release") == 6
    assert page.count("is too long to be shown") == 1
    assert page.index("before") < page.index("behind")
    assert len(page) < 100_000


def test_a_last_line_that_is_not_whole_is_not_there_yet(begin, records, browser):
    identifier = begin(*one_round(1, "whole"))
    with (records.folder(identifier) / EVENTS).open("ab") as log:
        log.write(b'{"type":"notice","text":"ha')
    before = browser.get(f"/board/runs/{identifier}")
    assert before.status_code == 200
    assert "this release" not in before.text
    with (records.folder(identifier) / EVENTS).open("ab") as log:
        log.write(b'lf and half"}\n')
    after = browser.get(f"/board/runs/{identifier}").text
    assert "half and half" in after
    assert numbers(after)[:-1] == numbers(before.text)


def test_a_run_without_a_log_has_a_page(begin, records, browser):
    identifier = begin()
    (records.folder(identifier) / EVENTS).unlink()
    assert browser.get(f"/board/runs/{identifier}").status_code == 200


def test_a_reply_without_end_is_bounded(begin, records, browser):
    identifier = begin(RoundStarted(1))
    piece = b'{"type":"text_piece","text":"%s"}\n' % (b"x" * 50)
    with (records.folder(identifier) / EVENTS).open("ab") as log:
        log.write(piece * (MAX_REPLY // 50 + 10_000))
    add(records, identifier, *reply("and more."))
    page = browser.get(f"/board/runs/{identifier}").text
    assert "more than 1,000,000 characters" in page
    assert "callboard jobs logs" in page
    assert len(page) < 100_000


def test_a_stream_goes_on_behind_the_line_that_a_page_has(begin, records, browser, follow):
    identifier = begin(*TWO_ROUNDS[:8])  # in the middle of a reply
    page = browser.get(f"/board/runs/{identifier}").text
    before = numbers(page)

    async def go_on():
        add(records, identifier, *TWO_ROUNDS[8:])
        end(records, identifier, output=JobOutput(summary="All done"))

    messages = follow(position_of(page), lambda came: "All done" in str(came), go_on)
    entries = [message for message in messages if message[0] == "entries"]
    shown = [number for _, data, _ in entries for number in numbers(data["html"])]
    whole = browser.get(f"/board/runs/{identifier}").text
    assert before + shown == numbers(whole)
    assert "result of <code>file</code>" in str(entries)  # it knows the call that was made before
    assert "completed" in str(messages)
    # And what a browser that comes back has seen is not sent again, by whichever server.
    last = entries[-1][2]
    again = follow(position_of(page), lambda came: True, last_event_id=last)
    assert "entries" not in [kind for kind, *_ in again]
    middle = entries[0][2].rpartition("-")[0] + f"-{shown[2]}"
    again = follow(position_of(page), lambda came: "parts" in [kind for kind, *_ in came], last_event_id=middle)
    assert [n for kind, data, _ in again if kind == "entries" for n in numbers(data["html"])] == shown[3:]


def test_a_page_of_another_time_is_loaded_anew(begin, follow):
    path = f"/board/runs/{begin(*TWO_ROUNDS)}/live"
    assert follow(f"{path}?position=of-another-3", lambda came: True)[0][0] == "reload"
    assert follow(path, lambda came: True)[0][0] == "reload"


def test_a_run_whose_process_died_has_failed(records, browser):
    job = records.create("build", "Add", Path("/tmp"))
    records.update(job, state="running")
    page = visible(browser.get("/board/runs").text)
    assert "failed" in page
    assert DIED in page


@pytest.fixture
def process(records):
    """Another process, which runs a run: it and the run's id."""
    job = records.create("build", "Wait", Path("/tmp"))
    command = [sys.executable, "-c", RUNNER, str(records.directory), job.id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ}) as running:
        assert running.stdout.readline() == b"it runs\n"
        yield running, job.id
        running.kill()


def test_a_run_is_cancelled_by_its_form_alone(process, records, browser, token):
    running, identifier = process
    path = f"/board/runs/{identifier}/cancel"
    assert f'action="{path}"' in browser.get(f"/board/runs/{identifier}").text
    assert browser.get(path).status_code == 405
    assert browser.post(path, data={"token": "another"}).status_code == 403
    assert running.poll() is None
    answer = browser.post(path, data={"token": token})
    assert answer.url.path == f"/board/runs/{identifier}"
    assert "cancelled" in visible(answer.text)
    assert running.wait(10) == -15
    assert records.load(identifier).state == "cancelled"


def test_to_cancel_a_run_that_is_not_there_is_refused(browser, token):
    assert browser.post("/board/runs/nothing/cancel", data={"token": token}).status_code == 409


def test_no_file_is_read_on_the_event_loop(begin, records, browser, follow, monkeypatch):
    identifier = begin(*TWO_ROUNDS)
    page = browser.get(f"/board/runs/{identifier}").text
    opened = []

    def watch(function):
        def watched(path, *arguments, **fields):
            with suppress(RuntimeError):
                asyncio.get_running_loop()
                opened.extend([path] if records.directory in path.parents else [])
            return function(path, *arguments, **fields)

        return watched

    for name in ("open", "read_bytes", "stat"):
        monkeypatch.setattr(Path, name, watch(getattr(Path, name)))
    for path in ("", f"/{identifier}", f"/{identifier}/entries/3"):
        assert browser.get(f"/board/runs{path}").status_code == 200
    assert follow(position_of(page), lambda came: True)
    assert follow("/board/runs/live", lambda came: True)
    assert not opened


def test_whoever_is_not_logged_in_sees_no_run(begin, visitor):
    identifier = begin()
    for path in ("", f"/{identifier}", f"/{identifier}/live", "/live"):
        answer = visitor.get(f"/board/runs{path}", headers={"accept": "*/*"})
        assert answer.status_code == 401

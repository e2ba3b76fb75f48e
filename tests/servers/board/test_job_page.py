"""One job: what its page shows, and what its stream brings."""

import asyncio
import html
import json
import re
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest
from tests.tables import table

from callboard.coding.job import UNTESTED, PhaseEnded, PhaseStarted
from callboard.core import (
    AssistantCanister,
    InvocationCanister,
    Note,
    ReasoningContent,
    ResultCanister,
    RoundStarted,
    SupervisorCanister,
    TextPiece,
    ToolDeclaration,
    ToolError,
    UserCanister,
)
from callboard.jobs.job import Approval
from callboard.jobs.store import DurableStore
from callboard.servers.board.job_page import WINDOW, choose_window

HOSTILE = '<script>alert(1)</script><form action="/board/jobs/x/answer"><button name="verdict">Allow</button></form>'
CALL = InvocationCanister(identifier="call_1", name="deploy", arguments={"to": "prod"}, raw='{"to":"prod"}')
DIFF = "--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"


async def begin(store, kind="agent", **fields):
    job = await store.create(kind, **{"description": "Ship it", "items": [UserCanister("Ship it")], **fields})
    return await store.claim(job.id, 1, "worker")


async def make_job(store, **fields):
    claim = await begin(store, **fields)
    said = [AssistantCanister([ReasoningContent("I should look first."), "On it."]), CALL]
    await claim.append(said, rounds=1, calls=1, usage={"input": 1200, "output": 34})
    return claim


async def make_ended(store, *items, **fields):
    claim = await begin(store)
    await claim.append(items, rounds=1)
    await claim.end("completed", **fields)
    return claim


def visible(page):
    """The text of a page without its tags, entities read."""
    return html.unescape(re.sub(r"<[^>]+>", " ", page))


def test_a_page_shows_the_tools_that_the_model_saw(run, job_store, browser):
    claim = run(begin, job_store)
    page = browser.get(f"/board/jobs/{claim.job.id}").text
    assert 'id="tools"' not in page
    schema = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
    claim.declare((ToolDeclaration("deploy", f"Deploy the release. {HOSTILE}", schema),))
    run(claim.append, [AssistantCanister("On it.")], rounds=1)
    page = browser.get(f"/board/jobs/{claim.job.id}").text
    assert HOSTILE not in page
    tools = visible(page.partition('id="tools"')[2])
    assert "Tools: 1" in tools
    for text in ("deploy", "Deploy the release.", '"required": ['):
        assert text in tools


def test_a_page_shows_what_was_said_and_called(run, job_store, browser):
    claim = run(make_job, job_store)
    page = browser.get(f"/board/jobs/{claim.job.id}").text
    for text in ("Ship it", "On it.", "I should look first.", "deploy", "prod", "1,200", "Round 1"):
        assert text in visible(page)
    assert re.findall(r'<article id="e-(\d+)"', page) == ["1", "2", "3"]
    assert 'action="/board/jobs/' + claim.job.id + '/cancel"' in page


def test_a_job_is_found_by_the_beginning_of_its_name(run, job_store, browser):
    claim = run(make_job, job_store)
    answer = browser.get(f"/board/jobs/{claim.job.id[:20]}")
    assert answer.url.path == f"/board/jobs/{claim.job.id}"
    assert browser.get("/board/jobs/nothing").status_code == 404


def test_output_of_models_and_tools_is_shown_as_text(run, job_store, browser):
    call = InvocationCanister(identifier="<b>", name=HOSTILE, arguments={HOSTILE: HOSTILE}, raw="{}")
    results = [
        ResultCanister(HOSTILE, invocation_id="<b>"),
        ResultCanister("", invocation_id="<b>", error=ToolError("execution", HOSTILE)),
        Note("alert", HOSTILE),
    ]
    said = AssistantCanister([ReasoningContent(HOSTILE), HOSTILE + "\x1b[31m\x07"])
    claim = run(make_ended, job_store, said, call, *results, output={"text": HOSTILE, HOSTILE: HOSTILE})
    page = browser.get(f"/board/jobs/{claim.job.id}").text
    assert visible(page).count("alert(1)") >= 8
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert "\x07" not in page
    assert 'name="verdict"' not in page
    assert browser.get(f"/board/jobs/{claim.job.id}/entries/1").headers["content-type"].startswith("text/plain")


def test_a_diff_is_seen_line_by_line(run, job_store, browser):
    result = ResultCanister(DIFF, invocation_id="call_1")
    claim = run(make_ended, job_store, CALL, result, output={"text": "Done", "diff": DIFF, "files": ["calc.py"]})
    page = browser.get(f"/board/jobs/{claim.job.id}").text
    assert page.count('<span class="line removed">-    return a - b\n</span>') == 2
    assert page.count('<span class="line added">+    return a + b\n</span>') == 2
    assert "calc.py" in visible(page)


def test_rounds_are_counted_through_the_job(run, job_store, browser):
    async def make(store):
        claim = await begin(store, kind="debug")
        for number, phase in enumerate(["reproduce", "fix"], 1):
            steps = [PhaseStarted(phase, 10), SupervisorCanister("Long. " * 200), RoundStarted(1)]
            await claim.append(
                [*steps, AssistantCanister(f"in {phase}"), PhaseEnded(phase, ("a test",))], rounds=number
            )
        return claim

    page = browser.get(f"/board/jobs/{run(make, job_store).job.id}").text
    assert re.findall(r"<h3>(.*?)</h3>", page) == ["Round 1", "Phase reproduce", "Round 2", "Phase fix"]
    assert page.count("<details><summary>Long. ") == 2
    assert "fix: a test" in visible(page)


def test_an_edit_is_seen_as_what_goes_and_what_comes(run, job_store, browser):
    arguments = {"path": "calc.py", "old": "return a - b", "new": "return a + b"}
    edit = InvocationCanister(identifier="c1", name="file", arguments=arguments, raw="")
    page = browser.get(f"/board/jobs/{run(make_ended, job_store, edit).job.id}").text
    assert '<span class="line removed">return a - b' in page
    assert '<span class="line added">return a + b' in page


@pytest.mark.parametrize(
    "item",
    [
        InvocationCanister(identifier="c1", name="x" * 400_000, arguments={}, raw="{}"),
        InvocationCanister(identifier="c1", name="write", arguments={"text": "x" * 400_000}, raw=""),
        InvocationCanister(identifier="c1", name="file", arguments={"old": "\n" * 400_000}, raw=""),
        InvocationCanister(identifier="c1", name="x", arguments=dict.fromkeys(map(str, range(20_000)), ""), raw=""),
        AssistantCanister(["x"] * 10_000),
    ],
    ids=["name", "argument", "lines", "arguments", "texts"],
)
def test_an_article_is_bounded_whatever_a_model_writes(run, job_store, browser, item):
    claim = run(make_ended, job_store, item)
    page = browser.get(f"/board/jobs/{claim.job.id}").text
    assert len(page) < 700_000
    assert f"/board/jobs/{claim.job.id}/entries/2" in page or len(page) < 10_000  # nothing but a name was cut


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"error": "e" * 1_000_000}, 10_000),
        ({"output": {"text": "t" * 1_000_000}}, 110_000),
        ({"output": {"notes": ["n" * 1000] * 1000}}, 110_000),
        ({"output": {"diff": ("+" + "x" * 100_000 + "\n") * 30}}, 1_010_000),
    ],
    ids=["error", "text", "notes", "diff"],
)
def test_what_a_job_handed_over_is_bounded(run, job_store, browser, fields, most):
    claim = run(make_ended, job_store, **fields)
    assert len(browser.get(f"/board/jobs/{claim.job.id}").text) < most


def test_what_a_job_handed_over_may_be_nested_deep(run, job_store, browser):
    tree = "the leaf"
    for _ in range(300):
        tree = {"branch": [tree]}
    claim = run(make_ended, job_store, output={"tree": tree, "notes": ["one", {"two": 3}]})
    page = visible(browser.get(f"/board/jobs/{claim.job.id}").text)
    for text in ("the leaf", "one\ntwo: 3"):
        assert text in page


def test_what_a_job_was_given_is_bounded(run, job_store, browser):
    claim = run(make_job, job_store, description="d" * 1_000_000, model="m" * 100_000)
    assert len(browser.get(f"/board/jobs/{claim.job.id}").text) < 250_000
    assert len(browser.get("/board/jobs").text) < 10_000


def test_a_result_of_ten_megabytes_is_a_beginning_and_a_link(run, job_store, browser):
    claim = run(make_ended, job_store, CALL, ResultCanister("r" * 10_000_000, invocation_id="call_1"))
    path = f"/board/jobs/{claim.job.id}"
    page = browser.get(path).text
    assert len(page) < 50_000
    assert f'<a href="{path}/entries/3">9,984,000 more characters</a>' in page
    assert len(browser.get(f"{path}/entries/3").text) > 10_000_000


def test_a_job_of_many_entries_is_shown_in_pages(run, job_store, browser):
    async def make():
        claim = await make_job(job_store)
        for number in range(25):
            said = [AssistantCanister(f"number {number} {each}") for each in range(300)]
            await claim.append(said, rounds=number + 1)
        return claim.job.id

    path = f"/board/jobs/{run(make)}"
    page = browser.get(path).text
    assert page.count("<article") == WINDOW
    assert len(page) < 500_000
    assert "number 24 299" in page
    assert "number 0 0" in browser.get(f"{path}?from=1").text


def test_a_title_of_ten_thousand_characters_is_cut(run, job_store, browser):
    job = run(make_job, job_store, description="title " * 1700).job
    for path in ("/board/jobs", f"/board/jobs/{job.id}"):
        assert re.search(r">(title ){5,20}title\.\.\.<", browser.get(path).text)


def test_a_job_whose_worker_s_clock_is_ahead_is_not_older_than_now(run, job_store, browser):
    async def make():
        ahead = DurableStore(job_store.database, clock=lambda: datetime.now(UTC) + timedelta(hours=1))
        claim = await make_job(ahead)
        await claim.append([AssistantCanister("Done.")], rounds=1)
        return claim.job.id

    job = run(make)
    for path in ("/board/jobs", f"/board/jobs/{job}"):
        ages = re.findall(r"data-age>([^<]*)<", browser.get(path).text)
        assert set(ages) == {"0 s"}


@pytest.mark.parametrize("number", ["0", "9" * 30, "9" * 5000, "-1", "x"])
def test_a_number_that_no_entry_has_is_no_page(run, job_store, browser, number):
    claim = run(make_ended, job_store, CALL)
    assert browser.get(f"/board/jobs/{claim.job.id}/entries/{number}").status_code == 404


def test_a_refusal_is_marked(run, job_store, browser):
    result = ResultCanister("", invocation_id="call_1", error=ToolError("permission", "no network here"))
    claim = run(make_ended, job_store, CALL, result)
    page = browser.get(f"/board/jobs/{claim.job.id}").text
    assert '<span class="state refused">refused</span>' in page
    assert "no network here" in page


def test_a_result_whose_call_is_not_shown_has_its_name(run, job_store, browser):
    async def make(store):
        claim = await begin(store)
        calls = [InvocationCanister(identifier=f"c{n}", name=f"tool_{n}", arguments={}, raw="{}") for n in range(300)]
        results = [ResultCanister("done", invocation_id=each.identifier) for each in calls]
        await claim.append([*calls, *results], rounds=1)
        return claim

    claim = run(make, job_store)
    page = browser.get(f"/board/jobs/{claim.job.id}").text
    assert "<code>tool_299</code></a>" in page
    assert "<code>tool_100</code></a>" in page
    assert page.count("<article") == WINDOW


@table(
    ("entries", "begin", "before", "expected"),
    [
        (0, 0, 0, (0, 0, True)),
        (10, 0, 0, (0, 10, True)),
        (1000, 0, 0, (800, 1000, True)),
        (1000, 0, 801, (600, 800, False)),
        (1000, 0, 101, (0, 100, False)),
        (1000, 301, 0, (300, 500, False)),
        (1000, 900, 0, (899, 1000, True)),
        (1000, 5000, 0, (999, 1000, True)),
        (10, 0, 5000, (0, 10, True)),
        (10, 0, 1, (0, 10, True)),
    ],
)
def test_which_entries_a_page_has(entries, begin, before, expected):
    assert choose_window(entries, begin, before) == expected


def position(page):
    return re.search(r'data-live="([^"]+)"', page)[1]


def numbers(messages):
    return re.findall(
        r'<article id="e-(\d+)"', "".join(data["html"] for event, data, _ in messages if event == "entries")
    )


def test_a_stream_goes_on_behind_the_page(run, job_store, browser, follow):
    claim = run(make_job, job_store)
    page = browser.get(f"/board/jobs/{claim.job.id}").text

    async def go_on():
        await claim.end_call(ResultCanister("shipped", invocation_id="call_1"))
        await claim.append([AssistantCanister("Done.")], rounds=2)
        await claim.end("completed", output={"text": "Done."})

    messages = follow(position(page), lambda came: "completed" in str(came[-1][1].get("state")), go_on)
    assert numbers(messages) == ["4", "5"]
    assert "shipped" in str(messages)
    assert "<code>deploy</code></a> prod" in str(messages)
    assert "Retry as a new job" in messages[-1][1]["actions"]
    assert "Done." in messages[-1][1]["outcome"]


def test_after_a_reconnect_each_entry_is_seen_once(run, job_store, browser, follow):
    claim = run(make_job, job_store)
    page = browser.get(f"/board/jobs/{claim.job.id}").text
    run(claim.append, [AssistantCanister("One.")], rounds=2)
    first = follow(position(page), numbers)
    (last,) = [identifier for event, _, identifier in first if event == "entries"]
    run(claim.append, [UserCanister("More."), AssistantCanister("Two.")], rounds=3)
    second = follow(position(page), numbers, last_event_id=last)
    assert numbers(first) == ["4"]
    assert numbers(second) == ["5", "6"]


@pytest.mark.parametrize("position", ["", "x", "000000000000-3", "é-1"])
def test_a_position_of_another_epoch_loads_the_page_anew(run, job_store, follow, position):
    claim = run(make_job, job_store)
    path = f"/board/jobs/{claim.job.id}/live?position={quote(position)}"
    assert follow(path, lambda came: True) == [("reload", None, "")]


@pytest.fixture
def slow_model(monkeypatch):
    """A model that pauses for longer than a stream waits until it looks at the job again."""
    monkeypatch.setattr("callboard.servers.board.job_page.POLL_SECONDS", 0.001)


@pytest.mark.usefixtures("slow_model")
def test_pieces_are_shown_until_their_entries_come(run, job_store, browser, follow, board):
    claim = run(make_job, job_store)
    page = browser.get(f"/board/jobs/{claim.job.id}").text

    async def say():
        board.jobs.streams.announce(claim.job.id, claim.job.entries)
        for text in ("It <b>", "ships"):
            board.jobs.streams.publish(claim.job.id, TextPiece(text))
            await asyncio.sleep(0.05)

    messages = follow(position(page), lambda came: "ships" in str(came), say)
    told = [each for event, data, _ in messages if event == "pieces" for each in data]
    assert "".join(each.get("text", "") for each in told) == "It <b>ships"
    assert [each["title"] for each in told if "title" in each] == ["Model"]


async def make_waiting(store, **fields):
    claim = await make_job(store)
    approval = {"why": "it is live", "digest": "d1", "arguments": {"to": "prod"}, **fields}
    await claim.wait([Approval(call_id="call_1", name="deploy", **approval)])
    return claim.job


def test_a_waiting_call_is_separate_from_the_conversation(run, job_store, browser):
    job = run(make_waiting, job_store, why=HOSTILE)
    page = browser.get(f"/board/jobs/{job.id}").text
    before, _, behind = page.partition('id="log"')
    assert before.count('name="verdict"') == 3
    assert 'name="verdict"' not in behind
    assert 'value="d1"' in before
    assert "Allow <code>deploy</code>?" in before
    assert "<script>alert" not in page


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ({"text": "", "files": []}, None),
        ({"text": "Mended.", "tests": f"{UNTESTED}: no pytest"}, "not tested: no pytest"),
        ({"text": "Mended.", "tests": "2 passed"}, "Tests: 2 passed"),
    ],
)
def test_an_outcome_says_if_nothing_was_tested(run, job_store, browser, output, words):
    job = run(make_ended, job_store, output=output).job
    page = browser.get(f"/board/jobs/{job.id}").text
    assert ("outcome-title" in page) == (words is not None)
    assert words is None or f"{words}</span>" in page
    assert ('class="state waiting"' in page) == ("not tested" in page)


def test_a_fork_names_its_origin(run, job_store, browser):
    origin = run(make_ended, job_store, AssistantCanister("Done.")).job
    page = browser.get(f"/board/jobs/{run(job_store.fork, origin.id, 1).id}").text
    assert f'<a href="/board/jobs/{origin.id}">{origin.title} after round 1</a>' in page


def test_questions_that_are_open_are_counted(run, job_store, browser):
    async def wait():
        claim = await make_job(job_store)
        calls = [Approval(call_id=f"c{number}", name="deploy", digest=f"d{number}") for number in (1, 2)]
        question = Approval(call_id="q", name="ask", digest="q", is_question=True)
        await claim.wait([*calls, question], reason="3 calls wait")
        return claim.job.id

    async def answer(call, verdict, **fields):
        await job_store.answer(job, call, verdict, digest=call.replace("c", "d"), **fields)

    job = run(wait)
    words = []
    for call in ("c1", "c2", None):
        words.append(
            [re.search(r'Needs [^<"]*', browser.get(path).text)[0] for path in (f"/board/jobs/{job}", "/board/jobs")]
        )
        if call:
            run(answer, call, "allow")
    assert [page.strip() for page, _ in words] == [
        "Needs your approval (2 calls) and your answer (1 question)",
        "Needs your approval (1 call) and your answer (1 question)",
        "Needs your answer (1 question)",
    ]
    assert [each.partition(",")[0] for _, each in words] == [page.strip() for page, _ in words]


def test_nothing_of_what_waits_is_invisible_or_turned_around(run, job_store, browser):
    job = run(make_waiting, job_store, arguments={"to": "test\u202eprod\u200b", "n": ["\u2028"]})
    page = browser.get(f"/board/jobs/{job.id}").text
    assert "test\\u202eprod\\u200b" in page.partition('id="log"')[0]


def test_invisible_characters_are_spelled_out(run, job_store, browser):
    job = run(make_waiting, job_store, arguments={"command": "ls\u3164\u2800", "flag\ufe0f": "a\U000e0100b"})
    page = browser.get(f"/board/jobs/{job.id}").text
    for text in ("ls\\u3164\\u2800", "flag\\ufe0f", "a\\U000e0100b"):
        assert text in page.partition('id="log"')[0]


def test_what_is_to_be_edited_is_visible_and_stays_what_it_was(run, job_store, browser):
    arguments = {"to": "test\u202eprod\n\tü", "flag\ufe0f": "\U000e0100\u3164"}
    page = browser.get(f"/board/jobs/{run(make_waiting, job_store, arguments=arguments).id}").text
    shown = html.unescape(re.search(r'<textarea[^>]* name="arguments"[^>]*>(.*?)</textarea>', page, re.DOTALL)[1])
    assert json.loads(shown) == arguments
    assert "ü" in shown
    for char in "\u202e\ufe0f\U000e0100\u3164":
        assert char not in shown


def test_how_much_there_is_to_decide_on_is_said(run, job_store, browser):
    job = run(make_waiting, job_store, arguments={"command": "ls" + "\n" * 1999 + "rm -r ."})
    page = browser.get(f"/board/jobs/{job.id}").text
    assert "command (2,000 lines, 2,008 characters)" in page.partition('id="log"')[0]


def test_the_enter_key_presses_no_button_of_another_answer(run, job_store, browser):
    page = browser.get(f"/board/jobs/{run(make_waiting, job_store).id}").text
    forms = re.findall(r"<form.*?</form>", page.partition('id="log"')[0], re.DOTALL)
    assert [re.findall(r'name="verdict" value="(\w+)"', each) for each in forms if "verdict" in each] == [
        ["allow"],
        ["edit"],
        ["deny"],
    ]


def test_a_stream_tells_what_waits(run, job_store, follow, browser):
    claim = run(make_job, job_store)
    page = browser.get(f"/board/jobs/{claim.job.id}").text

    async def ask():
        asked = Approval(call_id="call_1", name="ask", arguments={"text": "Which colour?"}, is_question=True)
        await claim.wait([asked], waits_for="question")

    messages = follow(position(page), lambda came: "Which colour?" in str(came), ask)
    assert "A question for you" in messages[-1][1]["waits"]


def test_a_stream_tells_that_one_of_several_calls_was_answered(run, job_store, follow, browser):
    claim = run(make_job, job_store)
    asked = [Approval(call_id=f"call_{n}", name="deploy", digest=f"d{n}", arguments={"to": str(n)}) for n in (1, 2)]
    run(claim.wait, asked)
    page = browser.get(f"/board/jobs/{claim.job.id}").text

    async def answer():
        await job_store.answer(claim.job.id, "call_1", "deny", digest="d1")

    messages = follow(position(page), lambda came: "digest d1" not in came[-1][1].get("waits", "digest d1"), answer)
    before, after = messages[0][1]["waits"], messages[-1][1]["waits"]
    assert "digest d1" in before
    assert "Somebody else denied this call" in after
    assert after.index("Somebody else") < after.index("digest d2")
    calls = [re.findall(r'data-call="([^"]*)"', each) for each in (before, after)]
    assert calls[0] == calls[1]
    looks = [re.findall(r'name="look" value="([^"]*)"', each) for each in (before, after)]
    assert set(looks[1]) < set(looks[0])  # the second call was shown since the page was loaded
    assert any("Denied" in str(each[1]) for each in messages if each[0] == "entries")

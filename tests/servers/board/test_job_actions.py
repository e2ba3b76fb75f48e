"""What is done with a job on the board."""

import asyncio
import html
import re
from dataclasses import replace
from urllib.parse import urlencode

import pytest
from tests.servers.board.conftest import ORIGIN
from tests.servers.board.test_job_page import CALL, make_ended, make_job, make_waiting

from callboard.core import AssistantCanister, InvocationCanister, ResultCanister, ToolDeclaration, UserCanister
from callboard.evaluation.kept_tests import TaskFile
from callboard.evaluation.suites import load_file, recorded_path
from callboard.jobs.job import Approval
from callboard.servers.board.app import board_application
from callboard.servers.board.job_page import look_subject
from callboard.servers.board.login import LOOK_SECONDS


@pytest.fixture
def session(browser, login):
    return login.find_session(browser.cookies[login.cookie])


@pytest.fixture
def look(login, session):
    """The token of a question that is shown now."""
    return lambda job, call, digest: login.make_look_token(session, look_subject(job.id, call, digest))


@pytest.fixture
def post(browser, token, look, clock):
    """Sends a form that was shown for long enough, unless it has a `look` of its own."""

    def send(job, action, **fields):
        if action == "answer" and "look" not in fields:
            fields["look"] = look(job, fields.get("call", ""), fields.get("digest", ""))
            clock.now += LOOK_SECONDS
        data = {"token": token, **fields}
        return browser.post(f"/board/jobs/{job.id}/{action}", data=data, follow_redirects=False)

    return send


@pytest.fixture
def ended(run, job_store):
    return run(make_ended, job_store, AssistantCanister("Done.")).job


def read(run, job_store, job):
    return run(job_store.get, job.id), run(job_store.read_approvals, job.id)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"verdict": "allow", "reason": "no"}, {"verdict": "allow", "reason": "", "edited": None}),
        ({"verdict": "deny", "reason": "not today"}, {"verdict": "deny", "reason": "not today"}),
        ({"verdict": "edit", "arguments": '{"to": "test"}'}, {"verdict": "allow", "edited": {"to": "test"}}),
        ({"verdict": "answer", "text": "blue"}, {"verdict": "allow", "text": "blue"}),
    ],
)
def test_an_answer_lets_the_job_go_on(run, job_store, post, form, expected):
    waiting = run(make_waiting, job_store)
    answer = post(waiting, "answer", call="call_1", digest="d1", **form)
    assert answer.headers["location"] == f"/board/jobs/{waiting.id}?answered=1"
    job, (approval,) = read(run, job_store, waiting)
    assert job.state == "pending"
    assert {name: getattr(approval, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"digest": "d0", "verdict": "allow"}, "the call has changed since"),
        ({"digest": "d1", "verdict": "allow", "call": "call_9"}, "asks about no such call"),
        ({"digest": "d1", "verdict": "edit", "arguments": "[1]"}, "as one object"),
        ({"digest": "d1", "verdict": "perhaps"}, "choose allow or deny"),
        ({"digest": "d1"}, "choose allow or deny"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_with_the_reason(run, job_store, post, form, why):
    waiting = run(make_waiting, job_store)
    answer = post(waiting, "answer", **{"call": "call_1", **form})
    assert answer.status_code in {400, 409, 422}
    assert why in answer.text
    job, (approval,) = read(run, job_store, waiting)
    assert (job.state, approval.verdict) == ("waiting", "")


PAYMENT = {
    "type": "object",
    "properties": {
        "iban": {"type": "string", "minLength": 3},
        "cents": {"type": "integer", "description": "in cents"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "urgent": {"type": "boolean"},
    },
    "required": ["iban", "cents"],
    "additionalProperties": False,
}


@pytest.fixture
def paying(run, job_store, post):
    """A payment that waits, and what the form with the edited arguments does."""
    arguments = {"iban": "DE1\nfirst", "cents": 0, "tags": ["a"]}
    job = run(make_waiting, job_store, arguments=arguments, parameters=PAYMENT)

    def edit(typed):
        form = {f"argument:{name}": text for name, text in typed.items()}
        return post(job, "answer", call="call_1", digest="d1", verdict="edit", **form)

    return job, edit


def read_fields(page):
    """What stands in each field of the arguments, and what is wrong with it."""
    found = re.findall(
        r'<textarea[^>]* name="argument:(\w+)"[^>]*>\n(.*?)</textarea>\n(?:<p class="mistake"[^>]*>(.*?)</p>)?',
        page,
        re.DOTALL,
    )
    return {name: (html.unescape(text), html.unescape(mistake)) for name, text, mistake in found}


@pytest.mark.parametrize(
    "given",
    [
        ({}, {"cents": 0, "tags": ["a"]}),
        ({"iban": "XX9\r\nsecond", "tags": ""}, {"iban": "XX9\nsecond", "cents": 0}),
        ({"cents": "12", "tags": '[\n"b"]', "urgent": "true"}, {"cents": 12, "tags": ["b"], "urgent": True}),
    ],
)
def test_arguments_are_edited_field_by_field(run, job_store, browser, paying, given):
    typed, expected = given
    job, edit = paying
    fields = read_fields(browser.get(f"/board/jobs/{job.id}").text)
    assert fields["urgent"] == ("", "")
    untouched = {name: text.replace("\n", "\r\n") for name, (text, _) in fields.items()}  # as a browser sends it
    assert edit(untouched | typed).status_code == 303
    _, (approval,) = read(run, job_store, job)
    assert approval.edited == {"iban": "DE1\nfirst", **expected}


@pytest.mark.parametrize(
    ("typed", "mistakes"),
    [
        ({"cents": "a lot"}, {"cents": "not valid JSON"}),
        ({"cents": '"a lot"'}, {"cents": "valid integer"}),
        ({"cents": ""}, {"cents": "required"}),
        ({"iban": "D", "tags": "[null]"}, {"iban": "at least 3", "tags": "tags.0: "}),
    ],
)
def test_a_mistake_stands_at_its_field_and_what_was_typed_stays(run, job_store, paying, typed, mistakes):
    waiting, edit = paying
    answer = edit(typed)
    assert answer.status_code == 422
    fields = read_fields(answer.text)
    assert {name for name, (_, mistake) in fields.items() if mistake} == mistakes.keys()
    assert all(each in fields[name][1] for name, each in mistakes.items())
    assert {name: fields[name][0] for name in typed} == typed
    job, (approval,) = read(run, job_store, waiting)
    assert (job.state, approval.verdict) == ("waiting", "")


def test_the_second_of_two_tabs_is_told(run, job_store, post):
    waiting = run(make_waiting, job_store)
    form = {"call": "call_1", "digest": "d1", "verdict": "allow"}
    post(waiting, "answer", **form)
    answer = post(waiting, "answer", **{**form, "verdict": "deny"})
    assert answer.status_code == 409
    assert "it was answered already: Allowed by session " in answer.text
    assert len(run(job_store.read_answers, waiting.id)) == 1


async def submit(board, login, cookie, job, messages):
    """Send the parts of an answer to the board. Return the status and the text."""
    messages, sent = [*messages], []

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/board/jobs/{job.id}/answer",
        "query_string": b"",
        "root_path": "",
        "headers": [
            (b"host", ORIGIN.removeprefix("http://").encode()),
            (b"cookie", f"{login.cookie}={cookie}".encode()),
        ],
    }
    await board_application(board)(scope, receive, send)
    return sent[0]["status"], b"".join([each.get("body", b"") for each in sent]).decode()


@pytest.fixture
def fill(login, clock):
    """Returns the form with a person's answer to a question that was shown for long enough."""

    def make(cookie, job, verdict):
        session = login.find_session(cookie)
        shown = login.make_look_token(session, look_subject(job.id, "call_1", "d1"))
        clock.now += LOOK_SECONDS
        form = {"token": login.form_token(session), "call": "call_1", "digest": "d1", "look": shown, "verdict": verdict}
        return urlencode(form).encode()

    return make


def test_of_two_people_who_answer_at_once_one_is_told(run, job_store, browser, fill, *, board, login):
    browser.get("/board/jobs")
    waiting = run(make_waiting, job_store)
    people = [login.begin_session() for _ in range(2)]
    forms = [fill(cookie, waiting, verdict) for cookie, verdict in zip(people, ("allow", "deny"), strict=True)]

    async def answer():
        both = zip(people, forms, strict=True)
        sent = [
            submit(board, login, cookie, waiting, [{"type": "http.request", "body": form}]) for cookie, form in both
        ]
        return await asyncio.gather(*sent)

    (first, _), (second, why) = sorted(run(answer))
    assert (first, second) == (303, 409)
    assert "it was answered already" in why
    assert len(run(job_store.read_answers, waiting.id)) == 1


def test_an_answer_that_is_cut_off_does_nothing(run, job_store, browser, fill, *, board, login):
    browser.get("/board/jobs")
    waiting = run(make_waiting, job_store)
    cookie = browser.cookies[login.cookie]
    form = {"type": "http.request", "body": fill(cookie, waiting, "allow"), "more_body": True}
    status, _ = run(submit, board, login, cookie, waiting, [form, {"type": "http.disconnect"}])
    assert status == 400
    assert read(run, job_store, waiting)[1][0].verdict == ""


@pytest.mark.parametrize("seconds", [0, 0.25, 0.5, 0.9, 1.4])
@pytest.mark.parametrize("verdict", ["allow", "edit", "deny", "answer"])
def test_an_answer_within_a_moment_of_the_question_does_nothing(run, job_store, post, *, look, clock, seconds, verdict):
    waiting = run(make_waiting, job_store)
    shown = look(waiting, "call_1", "d1")
    clock.now += seconds
    form = {"call": "call_1", "digest": "d1", "look": shown, "verdict": verdict, "arguments": "{}"}
    answer = post(waiting, "answer", **form)
    assert answer.status_code == 409
    assert "not shown for long enough" in answer.text
    assert read(run, job_store, waiting)[1][0].verdict == ""
    clock.now += LOOK_SECONDS - seconds
    assert post(waiting, "answer", **form).status_code == 303


def test_a_clock_that_is_set_back_an_hour_asks_to_log_in_again(run, job_store, browser, fill, clock, *, board, login):
    browser.get("/board/jobs")
    waiting = run(make_waiting, job_store)
    cookie, form = browser.cookies[login.cookie], fill(browser.cookies[login.cookie], waiting, "allow")
    clock.now -= 3600
    status, _ = run(submit, board, login, cookie, waiting, [{"type": "http.request", "body": form}])
    assert (status, read(run, job_store, waiting)[1][0].verdict) == (401, "")
    cookie = login.begin_session()
    form = fill(cookie, waiting, "allow")
    status, _ = run(submit, board, login, cookie, waiting, [{"type": "http.request", "body": form}])
    assert (status, read(run, job_store, waiting)[1][0].verdict) == (303, "allow")


def test_looking_at_one_question_does_not_count_for_another(run, job_store, post, *, look, login, clock):
    waiting, other = run(make_waiting, job_store), run(make_waiting, job_store)
    looks = [
        "",
        "1.x",
        "\ud800",
        look(other, "call_1", "d1"),
        look(waiting, "call_1", "d0"),
        look(waiting, "call_2", "d1"),
        login.make_look_token("another session", look_subject(waiting.id, "call_1", "d1")),
        look(waiting, "call_1", "d1").replace("1", "2", 1),
    ]
    clock.now += 60
    for each in looks:
        answer = post(
            waiting, "answer", call="call_1", digest="d1", verdict="allow", look=each.encode(errors="replace")
        )
        assert answer.status_code == 400, each
    assert read(run, job_store, waiting)[1][0].verdict == ""


def test_the_page_after_an_answer_has_no_question(run, job_store, browser, post):
    claim = run(make_job, job_store)
    asked = [Approval(call_id=f"call_{n}", name="pay", digest=f"d{n}", arguments={"eur": n}) for n in (1, 2)]
    run(claim.wait, asked)
    location = post(claim.job, "answer", call="call_1", digest="d1", verdict="allow").headers["location"]
    page = browser.get(location).text
    assert "<button" not in page.partition("<main")[2].partition('id="log"')[0]
    assert "You allowed this call" in page
    assert f'<a href="/board/jobs/{claim.job.id}">Look at the next call</a>' in page
    page = browser.get(f"/board/jobs/{claim.job.id}").text
    assert page.index("You allowed this call") < page.index('name="verdict"')


def test_who_answered_and_what_was_changed_stands_on_the_page_and_in_the_log(run, job_store, browser, post):
    waiting = run(make_waiting, job_store)
    post(waiting, "answer", call="call_1", digest="d1", verdict="edit", arguments='{"to": "test", "n": 1}')
    page = html.unescape(browser.get(f"/board/jobs/{waiting.id}").text)
    above, _, log = page.partition('id="log"')
    for text in (above, log):
        assert re.search(r"Allowed by session [0-9a-f]{8} \(board\) at [-0-9]{10} [:0-9]{8} UTC", text)
        assert 'to: "prod" -> "test"; n: nothing -> 1' in text
    other = run(make_waiting, job_store)
    run(job_store.answer, other.id, "call_1", "deny", digest="d1", reason="no", by="mallory\u202e", via="terminal")
    page = browser.get(f"/board/jobs/{other.id}").text
    assert "Somebody else denied this call" in page
    assert "Denied by mallory\\u202e (terminal)" in page


def test_a_job_that_waits_is_cancelled_at_once(run, job_store, post):
    waiting = run(make_waiting, job_store)
    assert post(waiting, "cancel").status_code == 303
    job, _ = read(run, job_store, waiting)
    assert (job.state, job.reason) == ("cancelled", "cancelled on the board")
    assert post(waiting, "resume").status_code == 303
    assert read(run, job_store, waiting)[0].state == "pending"


def test_a_job_is_retried_and_forked_as_a_new_one(run, job_store, post, ended):
    for action, fields, parent in [("retry", {}, "@0"), ("fork", {"round": "1"}, "@1")]:
        location = post(ended, action, **fields).headers["location"]
        job = run(job_store.get, location.rpartition("/")[2])
        assert job.parent == f"{ended.id}{parent}"


SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
TOOLS = (ToolDeclaration("deploy", "Deploy.", SCHEMA), ToolDeclaration("look", "Look."))


@pytest.fixture
def tests(board, monkeypatch, tmp_path):
    """Lets the board keep tests, and returns the kept ones."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    board.parts = replace(board.parts, tests=TaskFile())
    return lambda: load_file(recorded_path()) if recorded_path().is_file() else []


def make_called(run, job_store):
    """A job that has ended with a call, and declared two tools."""

    async def make():
        job = await job_store.create("agent", description="Ship it", items=[UserCanister("Ship it")])
        claim = await job_store.claim(job.id, 1, "worker")
        claim.declare(TOOLS)
        await claim.append([CALL, ResultCanister("shipped", invocation_id="call_1")], rounds=1)
        await claim.end("failed", "cancelled")
        return claim.job

    return run(make)


def test_a_job_is_kept_as_a_test_with_all_tools_that_its_model_saw(tests, run, job_store, browser, post):
    job = make_called(run, job_store)
    assert "Keep as a test" in browser.get(f"/board/jobs/{job.id}").text
    form = browser.get(f"/board/jobs/{job.id}/keep").text
    assert "2 declared tools" in form
    assert '<option value="deploy" selected>' in form
    wrong = post(job, "keep", **{"tool-0": "deploy", "arguments-0": '{"to": 1}', "tool-1": "look", "arguments-1": "{"})
    assert wrong.status_code == 422
    assert "to: " in wrong.text
    assert "This is not a JSON object." in wrong.text
    assert tests() == []
    fields = {"tool-0": "deploy", "arguments-0": '{"to": "test"}', "tool-1": "look", "arguments-1": ""}
    answer = post(job, "keep", **fields)
    [task] = tests()
    assert answer.headers["location"] == f"/board/tests?kept={task.identifier}"
    assert task.tools == TOOLS
    assert [(call.name, call.arguments) for call in task.steps[0].expected] == [
        ("deploy", {"to": ("test",)}),
        ("look", {}),
    ]


def test_a_reply_with_many_calls_is_kept_whole(tests, run, job_store, browser, post):
    calls = [InvocationCanister(f"call_{number}", "look", {"at": number}, "") for number in range(60)]
    job = run(make_ended, job_store, *calls).job
    page = browser.get(f"/board/jobs/{job.id}/keep").text
    tools = re.findall(r'<select [^>]*name="(tool-\d+)"', page)
    arguments = re.findall(r'<textarea [^>]*name="(arguments-\d+)"[^>]*>\n([^<]*)<', page)
    fields = {name: html.unescape(text) for name, text in arguments} | dict.fromkeys(tools[:-1], "look")
    assert post(job, "keep", **fields, **{tools[-1]: ""}).status_code == 303
    [task] = tests()
    assert [call.arguments["at"] for call in task.steps[0].expected] == [(number,) for number in range(60)]


def test_a_reply_without_a_call_is_kept_and_expects_none(tests, browser, post, ended):
    assert "selected" not in browser.get(f"/board/jobs/{ended.id}/keep").text
    assert post(ended, "keep", **{"tool-0": "", "arguments-0": "{}"}).status_code == 303
    [task] = tests()
    assert task.steps[0].expected == ()
    assert not recorded_path().with_name("vectors.jsonl").exists()


def test_a_job_without_a_reply_is_not_kept(tests, run, job_store, browser):
    async def make():
        job = await job_store.create("agent", description="Ship it", items=[UserCanister("Ship it")])
        return await job_store.request_cancel(job.id)

    job = run(make)
    assert "Keep as a test" not in browser.get(f"/board/jobs/{job.id}").text
    assert "the model has said nothing" in browser.get(f"/board/jobs/{job.id}/keep").text
    assert tests() == []


def test_a_board_without_tests_keeps_none(browser, post, ended):
    assert browser.get(f"/board/jobs/{ended.id}/keep").status_code == 404
    assert post(ended, "keep").status_code == 404
    assert "Keep as a test" not in browser.get(f"/board/jobs/{ended.id}").text


def test_kept_tests_are_listed_deleted_and_restored(tests, browser, token, post, ended):
    post(ended, "keep", **{"tool-0": ""})
    [task] = tests()
    page = browser.get("/board/tests").text
    for text in (task.identifier, "Expects no call", "Ship it", "callboard eval MODEL --suite recorded"):
        assert text in page
    fields = {"token": token, "name": task.identifier}
    page = browser.post("/board/tests/remove", data=fields).text
    assert "Undo" in page
    assert "There are no kept tests." in page
    page = browser.post("/board/tests/restore", data=fields).text
    assert f"Kept: <code>{task.identifier}</code>" in page
    assert browser.post("/board/tests/remove", data={**fields, "name": "x"}).status_code == 409
    refused = browser.post("/board/tests/run", data={**fields, "model": "command:rm"})
    assert "cannot be run from here" in refused.text


@pytest.mark.parametrize(
    ("action", "fields", "status"),
    [("fork", {"round": "9"}, 409), ("fork", {"round": "x"}, 400), ("fork", {}, 400), ("resume", {}, 409)],
)
def test_what_cannot_be_done_is_refused(ended, post, action, fields, status):
    assert post(ended, action, **fields).status_code == status


def test_get_and_a_missing_token_change_nothing(run, job_store, browser):
    claim = run(make_job, job_store)
    for action in ("cancel", "retry", "fork", "answer", "resume"):
        assert browser.get(f"/board/jobs/{claim.job.id}/{action}").status_code in {404, 405}
        assert browser.post(f"/board/jobs/{claim.job.id}/{action}").status_code == 403


def test_a_worker_is_started_for_a_job_that_goes_on(run, job_store, post, board):
    started = []
    object.__setattr__(board.parts, "start_worker", lambda client, job: started.append(job.id))
    waiting = run(make_waiting, job_store)
    post(waiting, "answer", call="call_1", digest="d1", verdict="allow")
    assert started == [waiting.id]


def test_a_job_runs_again_from_a_changed_entry(run, job_store, browser, token):
    job = run(make_ended, job_store, CALL, ResultCanister("shipped", invocation_id="call_1")).job
    form = browser.get(f"/board/jobs/{job.id}/entries/2/change").text
    assert "{&#34;to&#34;:&#34;prod&#34;}" in form
    path = f"/board/jobs/{job.id}/change"
    answer = browser.post(
        path, data={"token": token, "entry": "2", "text": '{"to":\r\n"test"}'}, follow_redirects=False
    )
    forked = run(job_store.get, answer.headers["location"].rpartition("/")[2])
    entries = run(job_store.read_entries, forked.id)
    assert (forked.state, forked.parent, entries[-1].item.arguments) == ("pending", f"{job.id}@1", {"to": "test"})
    refused = browser.post(path, data={"token": token, "entry": "2", "text": "{"})
    assert "not a JSON object" in refused.text
    assert browser.get(f"/board/jobs/{job.id}/entries/99/change").status_code == 404


def test_a_job_runs_again_with_another_prompt_and_model(run, job_store, browser, token):
    job = run(make_ended, job_store, CALL, ResultCanister("shipped", invocation_id="call_1")).job
    page = browser.get(f"/board/jobs/{job.id}").text
    assert "Run again after round 1" in page
    assert "Run again with changes" in page
    form = browser.get(f"/board/jobs/{job.id}/again?round=1").text
    assert "Run again after round 1" in form
    assert "Ship it</textarea>" in form
    fields = {"token": token, "entry": "1", "round": "1", "text": "Ship less", "model": "openai:gpt-5"}
    path = f"/board/jobs/{job.id}/change"
    answer = browser.post(path, data=fields, follow_redirects=False)
    forked = run(job_store.get, answer.headers["location"].rpartition("/")[2])
    assert (forked.parent, forked.title, forked.model) == (f"{job.id}@1", "Ship less", "openai:gpt-5")
    assert len(run(job_store.read_entries, forked.id)) == 3
    refused = browser.post(path, data={**fields, "model": "command:rm"})
    assert "a program or a file cannot be chosen" in refused.text

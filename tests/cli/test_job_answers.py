"""Approvals and questions of a job that waits, answered by commands."""

import asyncio
import json

import pytest
from tests.cli.durable import ANOTHER, ask, begin, hold_lease, make, make_ended, make_waiting, read, store_of_user

from callboard.core import InvocationCanister
from callboard.errors import CallerError


@pytest.fixture
def refuse(invoke):
    """The error of a command that is refused."""

    def refuse(*arguments):
        done = invoke(*arguments)
        assert isinstance(done.exception, CallerError), done.output
        return str(done.exception)

    return refuse


def approvals(job):
    return read(lambda store: store.read_approvals(job.id))


def test_what_will_run_is_shown_with_its_digest_and_the_job_goes_on(invoke):
    job = make(make_waiting)
    done = invoke("jobs", "approve", job.id, "--digest", "d-call_1")
    assert done.exit_code == 0, done.exception
    assert done.stderr.splitlines() == [
        "it is live",
        'Run deploy? {"to": "prod"}',
        "call call_1, digest d-call_1",
        f"Continuing. Follow it with: callboard jobs watch {job.id}",
    ]
    assert [(each.verdict, each.edited) for each in approvals(job)] == [("allow", None)]
    job = read(lambda store: store.get(job.id))
    assert (job.state, job.segment) == ("pending", 2)


def test_what_is_invisible_is_spelled_out_before_it_is_approved(invoke):
    call = InvocationCanister(identifier="c1", name="deploy\u3164", arguments={})
    job = make(make_waiting, ask(call, why="it is\u202e live\ufe0f", digest=""))
    done = invoke("jobs", "approve", job.id, "--yes")
    assert done.stderr.splitlines()[:2] == ["it is\\u202e live\\ufe0f", "Run deploy\\u3164? {}"]


def test_arguments_can_be_edited(invoke):
    job = make(make_waiting)
    done = invoke("jobs", "approve", job.id[:-2], "--edit", '{"to": "test"}', "--yes", "--json")
    assert done.exit_code == 0, done.exception
    assert 'Run deploy? {"to": "test"}' in done.stderr
    assert json.loads(done.stdout)["state"] == "pending"
    assert [each.edited for each in approvals(job)] == [{"to": "test"}]


def test_a_denial_has_a_reason(invoke):
    job = make(make_waiting)
    assert invoke("jobs", "deny", job.id, "--reason", "not on a Friday").exit_code == 0
    assert [(each.verdict, each.reason) for each in approvals(job)] == [("deny", "not on a Friday")]


def test_a_question_gets_a_text(invoke):
    job = make(make_waiting, ask(is_question=True))
    assert invoke("jobs", "answer", job.id, "-", input="port\n8080").exit_code == 0
    assert [(each.verdict, each.text) for each in approvals(job)] == [("allow", "port\n8080")]


def test_of_several_one_is_named_and_the_job_waits_for_the_rest(invoke, refuse):
    job = make(make_waiting, ask(), ask(ANOTHER))
    assert "several calls wait: call_1 (deploy), call_2 (deploy)" in refuse("jobs", "deny", job.id)
    assert "Waiting for more answers" in invoke("jobs", "deny", job.id, "call_2").stderr
    assert invoke("jobs", "deny", job.id).exit_code == 0
    assert [each.verdict for each in approvals(job)] == ["deny", "deny"]


def test_nobody_allows_what_was_not_shown(refuse):
    job = make(make_waiting)
    why = refuse("jobs", "approve", job.id)
    assert "no terminal to confirm in" in why
    assert f"callboard jobs approve {job.id} call_1 --digest d-call_1" in why
    assert [each.verdict for each in approvals(job)] == [""]


def test_a_call_that_changed_since_is_not_approved(refuse):
    job = make(make_waiting)
    assert "the digest of the call is d-call_1" in refuse("jobs", "approve", job.id, "--digest", "d-old")
    assert [each.verdict for each in approvals(job)] == [""]


def answered():
    async def build(store):
        job = await make_waiting(store, ask(), ask(ANOTHER))
        return await store.answer(job.id, "call_1", "deny", digest="d-call_1")

    return make(build)


def running():
    async def build(store):
        job = (await begin(store)).job
        hold_lease(store.database)
        return job

    return make(build)


@pytest.mark.parametrize(
    ("build", "arguments", "told"),
    [
        (answered, ("deny", "JOB", "call_1"), "it was answered already: Denied"),
        (running, ("deny", "JOB"), "the job is running and asks nothing"),
        (lambda: make(make_ended), ("approve", "JOB"), "the job is completed and asks nothing"),
        (lambda: make(make_waiting), ("approve", "JOB", "call_9"), "the job does not ask about this call"),
        (lambda: make(make_waiting), ("answer", "JOB", "yes"), "it is not a question"),
        (lambda: make(make_waiting, ask(is_question=True)), ("approve", "JOB"), "it is a question"),
        (lambda: make(make_waiting), ("approve", "JOB", "--edit", "[1]"), "not a JSON object"),
        (lambda: make(make_waiting), ("approve", "20200101"), "no such job"),
    ],
)
def test_an_answer_that_cannot_be_taken_is_refused_with_the_reason(refuse, build, arguments, told):
    job = build()
    assert told in refuse("jobs", *[job.id if each == "JOB" else each for each in arguments])


def test_the_answer_queues_the_next_segment(invoke):
    job = make(make_waiting)
    invoke("jobs", "deny", job.id)
    with store_of_user() as store:
        query = "select job, segment from callboard_segments"
        rows = asyncio.run(store.database.read(lambda connection: connection.exec_driver_sql(query).all()))
    assert [*rows] == [(job.id, 1), (job.id, 2)]  # nobody has taken the first one in this test

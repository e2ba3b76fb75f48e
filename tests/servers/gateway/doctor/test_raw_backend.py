"""What is read of a backend that is asked without the gateway, whatever it answers."""

from __future__ import annotations

import pytest
from tests.tables import table

from callboard.providers import Transport
from callboard.servers.gateway.doctor.probes import BudgetSpent, DoctorBudget
from callboard.servers.gateway.doctor.raw_backend import MAX_BYTES, RawBackend
from callboard.servers.gateway.doctor.raw_checks import CONTROL
from callboard.testing import FakeBackend, Html, Raw, Silence, StatusReply

HELLO = {"choices": [{"message": {"content": "ready"}}], "usage": {"prompt_tokens": 3}}


async def ask(replies, *, url="", budget=None, renamed=None):
    transport = Transport(retries=0, statuses=())
    try:
        async with FakeBackend(replies) as backend:
            raw = RawBackend(transport, url or backend.url, {}, "m", budget or DoctorBudget())
            raw.renamed_fields.update(renamed or {})
            return await raw.ask(CONTROL), backend.requests
    finally:
        await transport.aclose()


async def test_a_reply_is_read_as_it_is():
    reply, (request,) = await ask([Raw([HELLO])])
    assert (reply.text, reply.prompt_tokens, reply.fault, reply.calls) == ("ready", 3, "", [])
    assert request.body == {"model": "m", "temperature": 0, **CONTROL}


@table(
    ("answer", "fault", "refusal"),
    [
        (Html(), "not a JSON object: <!doctype html>", False),
        (Raw(["[1]"]), "not a JSON object: [1]", False),
        (StatusReply(400, {"error": {"message": "no\nsuch field"}}), "400: no such field", True),
        (StatusReply(500, {"detail": "template"}), "500: template", True),
        (StatusReply(429, "slow down"), "429: slow down", False),
        (StatusReply(401, b"\xff\x00"), "401: \ufffd", False),
        (StatusReply(400, {"error": {"message": {"a": 1}}}), '400: {"error":', True),
    ],
)
async def test_what_is_no_reply_says_why(answer, fault, refusal):
    reply, _ = await ask([answer])
    assert reply.fault.startswith(fault)
    assert bool(reply.refusal) == refusal


async def test_a_body_of_ten_megabytes_is_left():
    content = "x" * 10_000_000
    assert (await ask([Raw([content])]))[0].fault == f"the answer has more than {MAX_BYTES} bytes"


async def test_a_backend_that_hangs_is_waited_for_as_long_as_the_budget_says():
    reply, _ = await ask([Silence()], budget=DoctorBudget(0.3))
    assert reply.fault == "no answer within 0.1 s"
    assert reply.refusal == ""


async def test_one_that_is_not_there():
    reply, _ = await ask([], url="http://127.0.0.1:9/v1")
    assert reply.fault


async def test_a_model_that_takes_no_temperature_is_asked_without():
    refusal = StatusReply(400, {"error": {"message": "Unsupported value: 'temperature'"}})
    reply, requests = await ask([refusal, Raw([HELLO])], renamed={"max_tokens": "max_completion_tokens"})
    assert reply.text == "ready"
    assert [sorted(each.body) for each in requests] == [
        ["max_completion_tokens", "messages", "model", "temperature"],
        ["max_completion_tokens", "messages", "model"],
    ]


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_no_request_begins_once_the_seconds_are_spent():
    clock = Clock()
    budget = DoctorBudget(90, 10, clock)
    assert budget.take() == 30.0
    clock.now = 80.0
    assert budget.take() == 10.0
    clock.now = 90.0
    assert (budget.is_spent, budget.reason) == (True, "90 s passed")
    with pytest.raises(BudgetSpent):
        budget.take()


def test_nor_once_the_requests_are():
    budget = DoctorBudget(90, 1, Clock())
    budget.take()
    assert (budget.is_spent, budget.reason) == (True, "1 request sent")
    with pytest.raises(BudgetSpent):
        budget.take()

"""What is learned of a model from one client's request, for that client alone, and what is believed of its name."""

from __future__ import annotations

import pytest
from tests.tables import table

from callboard.providers import Transport
from callboard.servers.gateway import BackendSettings
from callboard.servers.gateway.auth import digest
from callboard.servers.gateway.backend import LEARNED_SECONDS, Backend, LearnedFacts
from callboard.servers.gateway.circuit_breaker import SharedCircuitBreaker
from callboard.testing import FakeBackend, StatusReply

KEYS = {"ann": digest("key-of-ann-12345678"), "bob": digest("key-of-bob-12345678")}
ANN, BOB = ({"authorization": f"Bearer key-of-{name}-12345678"} for name in ("ann", "bob"))
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
ASK = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [TOOL]}
NO_TOOLS = StatusReply(400, {"error": {"message": "this model does not support tools"}})


def no_tools(body):
    """A model that takes none."""
    return NO_TOOLS if "tools" in body else "Hello"


def echoing(body):
    """A backend that says what it was sent, where it takes it no more than anything else."""
    if limit := body.get("top_k"):
        return StatusReply(400, {"error": {"message": f"top_k {limit!r} of tools is not supported"}})
    return "Hello"


def tools_sent(backend):
    return ["tools" in each.body for each in backend.requests if each.method == "POST"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_lesson_from_one_key_holds_for_that_key_alone(serving, stream):
    async with FakeBackend(no_tools) as backend, serving(backend, keys=KEYS) as served:
        answers = [await served.post("chat", {**ASK, "stream": stream}, key) for key in (ANN, ANN, BOB, BOB)]
        sent = tools_sent(backend)
    assert [answer.status for answer in answers] == [200] * 4
    assert sent == [True, False, False, True, False, False]


@pytest.mark.parametrize("stream", [False, True])
async def test_nothing_is_learned_unless_the_request_succeeds_without_tools(serving, stream):
    async with FakeBackend(echoing) as backend, serving(backend, keys=KEYS) as served:
        for _ in range(3):
            answer = await served.post("chat", {**ASK, "stream": stream, "top_k": 3}, ANN)
            assert answer.status == 400
        before = len(backend.requests)
        for key in (BOB, ANN):
            assert (await served.post("chat", {**ASK, "stream": stream}, key)).status == 200
        sent, learned = (
            [("tools" in each.body) for each in backend.requests[before:]],
            served.gateway.backends[0]._learned,
        )
    assert sent == [True, True]
    assert len(learned) == 0


async def test_without_keys_of_the_gateway_clients_learn_by_their_own_keys(serving):
    async with FakeBackend(no_tools) as backend, serving(backend) as served:
        for key in ("sk-ann", "sk-bob", "sk-ann"):
            await served.post("chat", ASK, {"authorization": f"Bearer {key}"})
        outcome = tools_sent(backend)
    assert outcome == [True, False, True, False, False]


async def test_what_is_learned_is_tried_again_after_a_while(serving):
    now = [0.0]

    async with FakeBackend(no_tools) as backend, serving(backend) as served:
        served.gateway.backends[0]._learned = LearnedFacts(lambda: now[0])
        for passed in (0.0, LEARNED_SECONDS - 1, 1.0):
            now[0] += passed
            await served.post("chat", ASK)
        outcome = tools_sent(backend)
    assert outcome == [True, False, False, True, False]


async def test_names_that_a_client_makes_up_push_out_nothing_of_others(serving):
    async with FakeBackend(no_tools) as backend, serving(backend, keys=KEYS) as served:
        await served.post("chat", ASK, BOB)
        for number in range(300):
            await served.post("chat", {**ASK, "model": f"junk-{number}"}, ANN)
        before = len(backend.requests)
        await served.post("chat", ASK, BOB)
        await served.post("chat", {**ASK, "model": "another"}, BOB)
        await served.post("chat", {**ASK, "model": "another"}, BOB)
        kept, sent = len(served.gateway.backends[0]._learned), tools_sent(backend)[before - len(backend.requests) :]
    assert kept <= 32
    assert sent == [False, True, False, False]


def test_owners_that_are_made_up_are_bounded():
    learned = LearnedFacts(lambda: 0.0)
    for number in range(5000):
        learned.add(f"client-{number}", "m", {"mode": "validated"})
    assert len(learned) <= 256
    assert learned.facts("client-4999", "m") == {"mode": "validated"}


LATE = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello."},
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "And?"},
]


def picky(body):
    """A template that wants one system message, on a server that does not know `stream_options`."""
    if any(each["role"] == "system" for each in body["messages"][1:]):
        return StatusReply(500, {"error": {"message": "Jinja Exception: System message must be at the beginning."}})
    if "stream_options" in body:
        return StatusReply(400, {"error": {"message": "stream_options: Extra inputs are not permitted"}})
    return "Fine."


@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_refused_is_learned_once_for_each_model_and_shown(serving, stream):
    async with FakeBackend(picky) as backend, serving(backend, keys=KEYS) as served:
        asked = {"model": "m", "messages": LATE, "stream": stream}
        answers = [(await served.post("chat", asked, key)).status for key in (ANN, ANN, BOB)]
        health = [(await served.get("/health", **key)).body for key in (ANN, BOB, {})]
        posted = [each for each in backend.requests if each.method == "POST"]
        count, learned = len(posted), [each["backends"][0].get("learned") for each in health]
    facts = {"merge_system_messages": True} | ({"reports_usage": False} if stream else {})
    assert answers == [200, 200, 200]
    assert count == (3 + 1 + 3 if stream else 2 + 1 + 2)
    assert learned == [{"m": facts}, {"m": facts}, None]


async def test_a_narrower_way_is_tried_before_the_tools_are_taken_away(serving):
    def reply(body):
        refuses = any("strict" in each["function"] for each in body.get("tools", ()))
        return StatusReply(400, {"error": {"message": "strict of tools is not supported"}}) if refuses else "Fine."

    async with FakeBackend(reply) as backend, serving(backend) as served:
        function = {**TOOL["function"], "strict": True}
        await served.post("chat", {**ASK, "tools": [{"type": "function", "function": function}]})
        outcome = tools_sent(backend)
    assert outcome == [True, True]


async def test_a_profile_that_was_written_spares_the_refusal(serving):
    profiles = {"m": {"merge_system_messages": True}}
    async with FakeBackend(picky) as backend, serving(backend, profiles=profiles) as served:
        answer = await served.post("chat", {"model": "m", "messages": LATE})
        outcome = answer.status, len([each for each in backend.requests if each.method == "POST"])
    assert outcome == (200, 1)


@table(
    ("url", "model", "facts", "watched"),
    [
        # Clients ask for names that they know, whatever answers to them.
        ("http://127.0.0.1:8080/v1", "gpt-5.5", {}, "auto"),
        ("https://models.example/v1", "claude-sonnet-4-5", {}, "auto"),
        ("https://api.openai.com/v1", "gpt-5.5", {}, None),
        ("https://api.anthropic.com", "claude-sonnet-4-5", {}, None),
        ("http://127.0.0.1:8080/v1", "gpt-5.5", {"watch": ""}, None),
        ("http://127.0.0.1:8080/v1", "gpt-5.5", {"watch": "hermes"}, "hermes"),
        ("https://api.openai.com/v1", "mystery", {}, "auto"),
    ],
)
def test_whose_text_is_watched(url, model, facts, watched):
    backend = Backend(BackendSettings(url=url, profile=facts), Transport(), SharedCircuitBreaker())
    found = backend.model(model).plan
    assert found.mode.name == "native"
    assert (found.watched and found.watched.name) == watched

"""A model with a gate: whoever asks it sees one reply, in the library and behind the gateway."""

from __future__ import annotations

import asyncio
import shlex
import sys

import pytest
from tests.tables import table

from callboard import Agent, core, tool
from callboard.modes import make_plan
from callboard.profiles import resolve
from callboard.providers import HttpModel, Transport, registry
from callboard.providers.registry import DecidingModel
from callboard.testing import Call, FakeBackend, ScriptedModel

GATED = {"gate": "confidence", "uses_tools": True, "supports_logprobs": True}
WRITTEN = '```json\n{"name": "weather", "arguments": {"city": "Oslo"}}\n```'


def first_token(token):
    """A reply of one token, of which the model is certain."""
    return [
        core.ReplyStarted("r"),
        core.Logprobs(({"token": token, "logprob": -0.01},)),
        core.TextPiece(token),
        core.Usage(30, 1),
        core.ReplyEnded("length"),
    ]


CALLS, SPEAKS = first_token("```"), first_token("To")
READ_BY_SERVER = [
    core.ReplyStarted("r1"),
    core.InvocationStarted(0, "call_1", "weather", known=True),
    core.ArgumentsPiece(0, '{"city":"Oslo"}'),
    core.InvocationEnded(0, "call_1", "weather", {"city": "Oslo"}, '{"city":"Oslo"}'),
    core.ReplyEnded("invocations"),
]


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"cold in {city}"


def ask(replies, prompt="The weather in Oslo?", profile=GATED, strict=(), **options):
    async def scenario():
        async with FakeBackend(replies, strict=strict) as backend:
            agent = Agent("qwen2.5-coder-1.5b", [weather], base_url=backend.url, profile=profile, **options)
            run = agent.stream(prompt)
            events = [event async for event in run]
            return events, run.result, backend.requests

    return asyncio.run(scenario())


@table("call", [WRITTEN, READ_BY_SERVER])
def test_a_call_that_the_model_is_sure_of_is_made(call):
    _, result, requests = ask([call, CALLS, "It is cold."])
    assert result.output == "It is cold."
    draft, question, _ = [request.body for request in requests]
    assert question["messages"] == draft["messages"]
    assert question["tools"] == draft["tools"]
    assert question["max_tokens"] == 1
    assert question["logprobs"] is True


def test_a_call_that_is_stopped_is_an_answer_that_was_asked_for_without_tools():
    events, result, requests = ask([WRITTEN, SPEAKS, "I do not know."], "Who wrote Faust, and where is Oslo?")
    assert result.output == "I do not know."
    assert [each.code for each in events if isinstance(each, core.Note)] == ["stopped_call"]
    assert "".join([each.text for each in events if isinstance(each, core.TextPiece)]) == "I do not know."
    assert "tools" not in requests[2].body
    assert len(result.canisters) == 2  # the question and its answer: nothing of what was stopped


def test_the_usage_is_that_of_all_that_was_asked():
    _, plain, _ = ask(["Hm."], profile={"uses_tools": True})
    _, gated, _ = ask([WRITTEN, SPEAKS, "Hm."])
    assert gated.usage.input > 2 * plain.usage.input


def test_values_alone_cost_no_question():
    profile = {"gate": "grounding", "gate_threshold": -1.0, "uses_tools": True}
    _, result, requests = ask([WRITTEN, "I do not know."], "Who wrote Faust?", profile)
    assert (result.output, len(requests)) == ("I do not know.", 2)
    _, result, requests = ask([WRITTEN, "It is cold."], "The weather in Oslo?", profile)
    assert (result.output, len(requests)) == ("It is cold.", 2)
    assert isinstance(result.canisters[0], core.UserCanister)


def test_a_question_is_asked_with_the_effort_of_the_request_and_an_answer_with_all_controls():
    controls = core.Controls(top_p=0.5, max_tokens=50, seed=7, stop=("END",), effort="none")
    _, _, requests = ask([WRITTEN, SPEAKS, "Hm."], controls=controls)
    draft, question, answer = [request.body for request in requests]
    assert (question["reasoning_effort"], question["max_tokens"], question.get("stop")) == ("none", 1, None)
    asked_with = {field: draft[field] for field in ("top_p", "max_tokens", "seed", "stop", "reasoning_effort")}
    assert {field: answer[field] for field in asked_with} == asked_with


def test_a_question_in_structured_mode_is_not_held_to_the_form_of_a_call():
    call = '{"action": {"tool": "weather", "arguments": {"city": "Oslo"}}}'
    _, result, requests = ask([call, SPEAKS, "Hm."], mode="structured")
    assert result.output == "Hm."
    assert ["response_format" in request.body for request in requests] == [True, False, False]


async def test_closing_a_reply_without_a_gate_closes_its_connection():
    """Of a request without tools, of which nothing is judged."""
    closed = []

    class Spied(HttpModel):
        async def batches(self, request, /, **options):
            try:
                yield [core.ReplyStarted()]
            finally:
                closed.append(request)

    class SpiedDecidingModel(DecidingModel, Spied):
        pass

    resolution = resolve("some-model", {"gate": "grounding"})
    model = SpiedDecidingModel(resolution, make_plan(resolution), Transport(), base_url="http://127.0.0.1:9/v1")
    reply = model.batches(core.Request("m", [core.UserCanister("Hi")]))
    await anext(reply)
    await reply.aclose()
    assert len(closed) == 1


class PluggedModel(ScriptedModel):
    async def aclose(self):
        """Nothing is open."""


class Plugged:
    """A provider of a plug-in."""

    name = "ollama"

    def __init__(self, replies):
        self.model = PluggedModel(replies)

    def access(self, resolution, plan, **_):
        return self.model


@pytest.fixture
def ask_plugged(monkeypatch):
    def ask_plugged(replies, prompt, **facts):
        provider = Plugged(replies)
        monkeypatch.setattr(registry, "plugins", lambda group: [provider])
        result = asyncio.run(Agent("ollama:m", [weather], profile=facts).run(prompt))
        provider.model.assert_complete()
        return result, provider.model.requests

    return ask_plugged


MADE_UP = "Who wrote Faust?"


@pytest.mark.parametrize("gate", ["grounding", "confidence"])
def test_values_decide_over_the_calls_of_a_plug_ins_model(ask_plugged, gate):
    call, facts = Call("weather", {"city": "Oslo"}), {"gate": gate, "gate_threshold": -1.0}
    result, requests = ask_plugged([call, "Goethe."], MADE_UP, **facts)
    assert (result.output, requests[1].tools) == ("Goethe.", ())
    result, requests = ask_plugged([call, "It is cold."], "The weather in Oslo?", **facts)
    assert (result.output, len(requests)) == ("It is cold.", 2)
    assert result.canisters[-2].text == "cold in Oslo"


def test_the_calls_of_a_command_are_judged(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(f"import sys\nprint({WRITTEN!r} if 'weather' in sys.stdin.read() else 'Goethe.')")
    name = f"command:{shlex.quote(sys.executable)} -I {shlex.quote(str(path))}"
    agent = Agent(name, [weather], profile={"gate": "grounding", "gate_threshold": -1.0})
    result = asyncio.run(agent.run(MADE_UP))
    assert result.output.strip() == "Goethe."


def test_an_endpoint_without_log_probabilities_is_not_asked_how_sure_it_was():
    profile = {"gate": "confidence", "gate_threshold": -1.0, "uses_tools": True}
    _, result, requests = ask([WRITTEN, "Goethe."], MADE_UP, profile)
    assert (result.output, len(requests)) == ("Goethe.", 2)

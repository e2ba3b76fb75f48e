"""What a run tells: a tree of spans and the metrics beside them, and no word of its content unless that is asked for."""

import asyncio
import json

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from tests.telemetry.test_content import is_valid

from callboard import Agent
from callboard.core import InvocationEnded, InvocationStarted, ReplyEnded, Usage
from callboard.errors import CallerError
from callboard.providers import Transport, open_model
from callboard.telemetry import NO_SPAN, current_headers, enable, open_span, switch, trace_identifiers
from callboard.telemetry.turn_on import CAPTURE_VARIABLE
from callboard.testing import FakeBackend, StatusReply

SCHEMAS = {
    "gen_ai.input.messages": "input-messages",
    "gen_ai.output.messages": "output-messages",
    "gen_ai.tool.definitions": "tool-definitions",
    "gen_ai.tool.call.arguments": "tool-call-arguments",
    "gen_ai.tool.call.result": "tool-call-result",
}
KEY = "sk-abcdefghijklmnopqrstuvwxyz"
CALLS = [
    InvocationStarted(0, "c1", "divide"),
    InvocationEnded(0, "c1", "divide", {"a": 1, "b": 2}, '{"a": 1, "b": 2}'),
    InvocationStarted(1, "c2", "divide"),
    InvocationEnded(1, "c2", "divide", {"a": 1, "b": 0}, '{"a": 1, "b": 0}'),
    Usage(10, 5, 4),
    ReplyEnded("invocations"),
]


def divide(a: int, b: int) -> float:
    """Divide."""
    return a / b


def run(replies, tools=(divide,), **options):
    async def go():
        transport = Transport(retries=0)
        async with FakeBackend(replies) as backend:
            model = open_model("openai:gpt-x", base_url=backend.url, api_key=KEY, transport=transport)
            run = Agent(model, tools).stream(f"divide; the key is {KEY}", **options)
            async for _ in run:
                pass
        await transport.aclose()
        return run.result, backend

    return asyncio.run(go())


def test_the_spans_of_a_run_are_a_tree(telemetry):
    told = telemetry()
    _, backend = run([CALLS, "done"])
    agent = told.named("invoke_agent")
    chats = [each for each in told.spans if each.name == "chat gpt-x"]
    tools = [each for each in told.spans if each.name == "execute_tool divide"]
    assert (len(chats), len(tools), len(told.spans)) == (2, 2, 5)
    assert agent.parent is None
    assert {each.parent.span_id for each in (*chats, *tools)} == {agent.context.span_id}
    assert {each.kind for each in chats} == {SpanKind.CLIENT}
    headers = [each.headers["traceparent"] for each in backend.requests]
    ids = [(each.context.trace_id, each.context.span_id) for each in chats]
    assert [(int(each.split("-")[1], 16), int(each.split("-")[2], 16)) for each in headers] == ids


def test_attributes_are_those_of_the_conventions(telemetry):
    told = telemetry()
    run([CALLS, "done"])
    chat = next(each for each in told.spans if each.name == "chat gpt-x")
    about = dict(chat.attributes)
    assert about.pop("gen_ai.response.time_to_first_chunk") > 0
    assert about.pop("server.port") > 0
    assert about == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-x",
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ("tool_call",),
        "gen_ai.response.id": "fake-0",
        "gen_ai.response.model": "gpt-x",
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "server.address": "127.0.0.1",
    }
    good, bad = sorted(
        [each for each in told.spans if each.name == "execute_tool divide"],
        key=lambda each: each.attributes["gen_ai.tool.call.id"],
    )
    assert dict(good.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "divide",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Divide.",
    }
    assert bad.attributes["error.type"] == "execution"
    assert bad.status.status_code is StatusCode.ERROR
    agent = told.named("invoke_agent")
    assert agent.attributes["callboard.run.state"] == "completed"
    assert agent.attributes["callboard.run.rounds"] == 2
    assert agent.attributes["gen_ai.usage.input_tokens"] >= 10


def test_metrics(telemetry):
    told = telemetry()
    run([CALLS, "done"])
    metrics = told.metrics
    assert sorted(metrics) == [
        "gen_ai.client.operation.duration",
        "gen_ai.client.operation.time_to_first_chunk",
        "gen_ai.client.token.usage",
        "gen_ai.execute_tool.duration",
        "gen_ai.invoke_agent.duration",
    ]
    points = metrics["gen_ai.execute_tool.duration"].data.data_points
    assert sorted(each.attributes.get("error.type", "") for each in points) == ["", "execution"]
    assert metrics["gen_ai.client.operation.duration"].data.data_points[0].explicit_bounds[0] == 0.01
    tokens = {each.attributes["gen_ai.token.type"] for each in metrics["gen_ai.client.token.usage"].data.data_points}
    assert tokens == {"input", "output"}


def test_nothing_of_the_content_is_told_unless_it_is_asked_for(telemetry):
    told = telemetry()
    run([CALLS, "a secret answer"])
    everything = " ".join([each.to_json() for each in told.spans])
    assert KEY not in everything
    assert "secret" not in everything
    assert "divide; the" not in everything
    assert '"b"' not in everything


@pytest.mark.parametrize("by", ["key", "variable"])
def test_content_is_told_where_it_is_asked_for(by, telemetry, monkeypatch):
    if by == "variable":
        settings = {}
        monkeypatch.setattr("callboard.telemetry.turn_on.os.environ", {CAPTURE_VARIABLE: "SPAN_ONLY"})
    else:
        settings = {"capture_content": True}
    told = telemetry(**settings)
    run([CALLS, "the answer"])
    assert KEY not in " ".join([each.to_json() for each in told.spans])
    first, second = [each for each in told.spans if each.name == "chat gpt-x"]
    said = json.loads(first.attributes["gen_ai.input.messages"])
    assert said == [{"role": "user", "parts": [{"type": "text", "content": "divide; the key is ***"}]}]
    (answer,) = json.loads(second.attributes["gen_ai.output.messages"])
    assert answer["parts"] == [{"type": "text", "content": "the answer"}]
    assert json.loads(first.attributes["gen_ai.tool.definitions"])[0]["name"] == "divide"
    good = next(each for each in told.spans if each.attributes.get("gen_ai.tool.call.id") == "c1")
    assert json.loads(good.attributes["gen_ai.tool.call.arguments"]) == {"a": 1, "b": 2}
    assert json.loads(good.attributes["gen_ai.tool.call.result"]) == {"content": "0.5"}
    checked = set()
    for key, value in [pair for each in told.spans for pair in each.attributes.items() if pair[0] in SCHEMAS]:
        checked.add(key)
        assert is_valid(SCHEMAS[key], json.loads(value)), (key, value)
    assert checked == set(SCHEMAS)


def test_a_failure_is_a_word_and_no_message(telemetry):
    told = telemetry()
    result, _ = run([StatusReply(500, "the backend repeats sk-secret")])
    assert result.state == "failed"
    chat, agent = told.named("chat gpt-x"), told.named("invoke_agent")
    assert chat.attributes["error.type"] == agent.attributes["error.type"] == "server_error"
    assert chat.status.description is None
    assert not chat.events
    (point,) = told.metrics["gen_ai.client.operation.duration"].data.data_points
    assert point.attributes["error.type"] == "server_error"


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/v1", "http://[bad/v1"])
def test_what_is_no_address_is_refused_as_without_telemetry(url, telemetry):
    told = telemetry()
    with pytest.raises(CallerError, match="not a URL"):
        asyncio.run(Agent(open_model("openai:gpt-x", base_url=url, api_key=KEY)).run("go"))
    assert "server.address" not in told.named("chat gpt-x").attributes


def test_a_run_that_is_left_ends_its_spans_and_keeps_its_callers_context(telemetry):
    told = telemetry()

    async def go():
        async with FakeBackend(["a long answer in many pieces"]) as backend:
            agent = Agent(open_model("openai:gpt-x", base_url=backend.url, api_key=KEY), [divide])
            async with agent.stream("go") as events:
                async for _ in events:
                    assert not trace.get_current_span().get_span_context().is_valid
                    break
            await agent.model.aclose()

    asyncio.run(go())
    assert told.named("invoke_agent").attributes["error.type"] == "cancelled"


def test_a_run_within_a_tool_is_below_the_tool(telemetry):
    told = telemetry()

    call = [InvocationStarted(0, "1", "ask"), InvocationEnded(0, "1", "ask", {}, "{}"), ReplyEnded("invocations")]

    async def go():
        def reply(body):
            if body["messages"][-1]["content"] == "inner":
                return "inner"
            return call if body["messages"][-1]["content"] == "go" else "done"

        async with FakeBackend(reply) as backend:
            model = open_model("openai:gpt-x", base_url=backend.url, api_key=KEY)

            async def ask() -> str:
                """Ask another agent."""
                return (await Agent(model).run("inner")).text

            await Agent(model, [ask]).run("go")
            await model.aclose()

    asyncio.run(go())
    inner, outer = [each for each in told.spans if each.name == "invoke_agent"]
    assert inner.parent.span_id == told.named("execute_tool ask").context.span_id
    assert inner.context.trace_id == outer.context.trace_id


def test_while_it_is_off_nothing_is_told():
    assert switch.recorder is None
    assert open_span("x") is NO_SPAN
    assert current_headers() == trace_identifiers() == {}
    with open_span("x") as span:
        span.set({"a": 1})
        span.fail("x")
        span.set_content("x", {})
        assert asyncio.run(span.during(asyncio.sleep(0, 5))) == 5
    span.end()


def look_and_fail(span):
    assert current_headers() == span.headers
    assert trace_identifiers()["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert "baggage" not in span.headers
    raise KeyError("a message with sk-secret")


def test_a_span_and_its_headers(telemetry):
    told = telemetry()
    parent = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "baggage": "user=alice"}
    with pytest.raises(KeyError), open_span("outer", "server", parent=parent) as outer:
        look_and_fail(outer)
    span = told.named("outer")
    assert span.attributes["error.type"] == "KeyError"
    assert "sk-secret" not in span.to_json()


def test_a_broken_traceparent_begins_a_trace(telemetry):
    told = telemetry()
    open_span("x", parent={"traceparent": "00-nonsense"}).end()
    assert told.named("x").parent is None


def test_turning_it_on_twice_is_turning_it_on_once(telemetry):
    telemetry()
    recorder = switch.recorder
    enable()
    assert switch.recorder is recorder

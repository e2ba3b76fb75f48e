"""One trace from the client through the gateway to its backend, figures for Prometheus, and log lines as JSON."""

import io
import json
import logging

import pytest
from tests.servers.gateway.fronts import call_events, reply

from callboard.servers.gateway import GatewayLimits
from callboard.telemetry.logs import JsonLines, sanitize_records
from callboard.testing import FakeBackend, StatusReply

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
HELLO = {"model": "m", "messages": [{"role": "user", "content": "a very private question"}]}
MODULE = """
from callboard import tool

@tool
def divide(a: int, b: int) -> float:
    return a / b
"""
SECRET = "sk-abcdefghijklmnopqrstuvwxyz"


async def ask(serving, replies, body=HELLO, headers=None, front="chat", **settings):
    async with FakeBackend(replies) as backend, serving(backend, **settings) as gateway:
        answer = await gateway.post(front, body, {"traceparent": PARENT, **(headers or {})})
        figures = await gateway.get("/metrics")
        return answer, backend.requests, figures.text


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_is_in_its_clients_trace_and_its_backend_is_too(serving, telemetry, stream):
    told = telemetry()
    answer, requests, _ = await ask(serving, ["hello"], {**HELLO, "stream": stream}, {"baggage": "user=alice"})
    assert answer.status == 200
    server, chat = told.named("POST /v1/chat/completions"), told.named("chat m")
    assert format(server.context.trace_id, "032x") == TRACE
    assert format(server.parent.span_id, "016x") == "00f067aa0ba902b7"
    assert chat.parent.span_id == server.context.span_id
    assert requests[-1].headers["traceparent"] == f"00-{TRACE}-{chat.context.span_id:016x}-01"
    assert "baggage" not in requests[-1].headers
    assert server.attributes["callboard.gateway.request_id"] == answer.headers["x-request-id"]
    about = dict(server.attributes)
    del about["callboard.gateway.request_id"]
    assert about.pop("callboard.gateway.backend")
    assert about == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "callboard.gateway.front": "chat",
        "gen_ai.request.model": "m",
    }
    assert "private" not in " ".join([each.to_json() for each in told.spans])


async def test_a_failure_is_one_of_both_spans(serving, telemetry):
    told = telemetry()
    answer, _, _ = await ask(serving, [StatusReply(500, f"it says {SECRET}")])
    assert answer.status >= 500
    assert told.named("chat m").attributes["error.type"] == "server_error"
    assert told.named("POST /v1/chat/completions").status.status_code.name == "ERROR"
    assert SECRET not in " ".join([each.to_json() for each in told.spans])


async def test_without_telemetry_no_header_is_added(serving):
    _, requests, _ = await ask(serving, ["hello"])
    assert "traceparent" not in requests[-1].headers


async def test_tools_that_run_here_are_counted_and_below_the_request(serving, telemetry, tmp_path, monkeypatch):
    (tmp_path / "fractions_of_test.py").write_text(MODULE)
    (tmp_path / "math.toml").write_text(
        '[ensemble]\nname = "math"\nmodule = "fractions_of_test"\n[[invokers]]\nname = "divide"\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    told = telemetry()
    call = reply(*call_events("divide", {"a": 1, "b": 0}))
    _, _, figures = await ask(serving, [call, "done"], ensembles=(str(tmp_path),))
    span = next(each for each in told.spans if each.name.startswith("execute_tool"))
    run = told.named("invoke_agent")
    assert span.parent.span_id == run.context.span_id
    assert run.parent.span_id == told.named("POST /v1/chat/completions").context.span_id
    assert 'callboard_tool_calls_total{failure="execution",tool="divide"}' in figures
    assert 'callboard_tool_seconds_count{tool="divide"}' in figures


async def test_log_lines_as_json(serving, telemetry):
    telemetry()
    there = io.StringIO()
    handler = logging.StreamHandler(there)
    handler.setFormatter(JsonLines())
    sanitize_records(handler)
    log = logging.getLogger("callboard.gateway")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        answer, _, _ = await ask(serving, ["hello"], {**HELLO, "model": f"m-{SECRET}"})
        log.warning("it said password=hunter2hunter")
        log.error("it broke", exc_info=ValueError(f"the key is {SECRET}"))
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    lines = [json.loads(line) for line in there.getvalue().splitlines()]
    (line,) = [each for each in lines if each.get("request")]
    assert line["request"] == answer.headers["x-request-id"]
    assert line["trace_id"] == TRACE
    assert line["level"] == "info"
    assert line["logger"] == "callboard.gateway"
    assert len(line["span_id"]) == 16
    assert SECRET not in there.getvalue()
    assert "hunter2hunter" not in there.getvalue()
    assert "ValueError" in lines[-1]["exception"]


async def test_a_request_that_is_refused_has_a_span_too(serving, telemetry):
    told = telemetry()
    answer, _, _ = await ask(
        serving, [], {**HELLO, "messages": [{"role": "user", "content": "x" * 5000}]}, limits=GatewayLimits(body=1000)
    )
    assert answer.status == 413
    assert told.named("POST /v1/chat/completions").attributes["http.response.status_code"] == 413

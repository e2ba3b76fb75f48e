"""The spans of what a client sends: names that are ours, and no text of the client or of a tool."""

from contextlib import suppress

import pytest
from mcp import MCPError
from opentelemetry.trace import SpanKind, StatusCode

from callboard import Ensemble, tool
from callboard.servers.mcp.server import ToolServer

TRACE = "0af7651916cd43dd8448eb211c80319c"


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool
def fail() -> str:
    """Fails."""
    raise ConnectionError("the password is hunter2")


@pytest.fixture
def sums():
    """A server."""
    return ToolServer([Ensemble("sums", [add, fail])])


async def test_a_call_has_a_span_below_that_of_its_client(sums, talk, telemetry):
    told = telemetry()
    async with talk(sums) as client:
        await client.call_tool("add", {"a": 1}, meta={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"})
    span = told.named("tools/call add")
    assert (span.kind, span.status.status_code) == (SpanKind.SERVER, StatusCode.UNSET)
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, "b7ad6b7169203331")
    assert told.named("execute_tool add").parent.span_id == span.context.span_id
    about = dict(span.attributes)
    assert about.pop("mcp.protocol.version")
    assert about == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
    }


@pytest.mark.parametrize(("name", "span_name", "kind"), [("fail", " fail", "tool_error"), ("hunter2", "", "-32602")])
async def test_a_failure_is_a_word_and_an_unknown_name_is_not_told(sums, talk, telemetry, name, span_name, kind):  # noqa: PLR0917
    told = telemetry()
    async with talk(sums) as client:
        with suppress(MCPError):
            assert (await client.call_tool(name, {})).is_error
    span = told.named(f"tools/call{span_name}")
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
    assert span.attributes["error.type"] == kind
    assert "hunter2" not in "".join([each.to_json() for each in told.spans])


@pytest.mark.parametrize("traceparent", [7, ["x"], {"a": 1}, "nonsense", None])
async def test_a_trace_that_is_none_is_passed_over(sums, talk, telemetry, traceparent):
    told = telemetry()
    async with talk(sums) as client:
        result = await client.call_tool("add", {"a": 1}, meta={"traceparent": traceparent, "tracestate": 3})
        assert not result.is_error
    assert told.named("tools/call add").parent is None

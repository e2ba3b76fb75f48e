"""The span of each message of a client, where telemetry is on: `METHOD`, and behind it the tool's name.

It takes the place of the SDK's, which has any name that a client calls in its own, and the message of an error, which may
quote a tool, in its status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mcp import MCPError
from mcp_types import INVALID_PARAMS
from mcp_types.methods import SPEC_CLIENT_METHODS, SPEC_CLIENT_NOTIFICATION_METHODS
from pydantic import ValidationError

from callboard.telemetry import Span, names, open_span, switch
from callboard.text.display import display

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.server.context import CallNext, HandlerResult

    from callboard.servers.mcp.call import Incoming

_CALL: Final = "tools/call"
_OTHER: Final = "_OTHER"
"""The method of a message that no server of the protocol answers."""
_MAX_VERSION: Final = 40


class RequestSpans:
    """A middleware of the SDK's server; `has_tool` says which names are those of tools."""

    def __init__(self, server: Server[Any], has_tool: Callable[[str], bool]) -> None:
        self._server = server
        self._has_tool = has_tool

    async def __call__(self, ctx: Incoming, call_next: CallNext) -> HandlerResult:
        if switch.recorder is None:
            return await call_next(ctx)
        with self._open(ctx) as span:
            try:
                result = await call_next(ctx)
            except (MCPError, ValidationError) as error:
                code = str(error.error.code if isinstance(error, MCPError) else INVALID_PARAMS)
                span.set({names.RPC_STATUS: code})
                span.fail(code)
                raise
            if ctx.method == _CALL and isinstance(result, dict) and result.get("isError") is True:
                span.fail("tool_error")
            return result

    def _open(self, incoming: Incoming) -> Span:
        method = incoming.method if self._is_known(incoming.method) else _OTHER
        about = {names.MCP_METHOD: method, names.MCP_PROTOCOL: display(incoming.protocol_version, _MAX_VERSION)}
        tool = (incoming.params or {}).get("name") if method == _CALL else None
        if method == _CALL:
            about[names.OPERATION] = names.EXECUTE_TOOL
        if isinstance(tool, str) and self._has_tool(tool):
            about[names.TOOL_NAME] = tool
            return open_span(f"{method} {tool}", "server", about, parent=_trace_headers(incoming.meta))
        return open_span(method, "server", about, parent=_trace_headers(incoming.meta))

    def _is_known(self, method: str) -> bool:
        in_protocol = method in SPEC_CLIENT_METHODS or method in SPEC_CLIENT_NOTIFICATION_METHODS
        return in_protocol or self._server.get_request_handler(method) is not None


def _trace_headers(meta: Mapping[str, Any] | None) -> Mapping[str, str]:
    headers = {name: (meta or {}).get(name) for name in ("traceparent", "tracestate")}
    return {name: value for name, value in headers.items() if isinstance(value, str)}

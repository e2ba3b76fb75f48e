"""Serve ensembles as an MCP server, over any of the SDK's transports.

Laws: tools have the names that models get on any wire. A call of an unknown tool is a protocol error. A failure of a
tool is a result that the model reads.

Encode a tool's result as MCP content.

Law: a failure is a result that the model reads, with its category in `_meta`.

With telemetry, each message of a client has a span: `METHOD`, followed by the tool's name.

Our span replaces the SDK's span. The SDK puts any name that a client calls into the span's name, and error messages,
which may quote a tool, into its status.

An agent can be served as one tool: each round reports progress, and each call is a log message.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import jsonschema_rs
import mcp_types as types
import msgspec
from mcp import MCPError
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp_types import INVALID_PARAMS
from mcp_types.methods import SPEC_CLIENT_METHODS, SPEC_CLIENT_NOTIFICATION_METHODS
from pydantic import ValidationError

from callboard import __version__
from callboard.agent import Agent
from callboard.core import (
    Content,
    Event,
    FileContent,
    InvocationCanister,
    InvocationEnded,
    Note,
    PictureContent,
    Request,
    ResultCanister,
    ResultReady,
    RoundStarted,
    TextualContent,
    error_result,
)
from callboard.errors import CallerError
from callboard.execution import ask_approval, run_invoker
from callboard.execution.parallel import DEFAULT_LIMIT
from callboard.servers.mcp.call import Incoming, ToolCall, WaitingCalls
from callboard.servers.mcp.client_proxy import (
    KEY,
    McpClientProxy,
    Session,
    Sessions,
    Upstream,
    instructions_of,
    output_schema,
    report_progress,
    upstream_tool,
)
from callboard.telemetry import Span, names, open_span, record, switch
from callboard.text.display import display
from callboard.text.suggest import suggest
from callboard.tools import Context, Ensemble, Invoker, InvokerRegistry, Policy, read_decision
from callboard.wires.common.tool_declarations import ToolNames

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult

    from callboard.servers.mcp.call import Incoming

LONGEST: Final = 86_400.0
"""Maximum seconds of a run. The agent has its own limits, and the client may cancel it."""

_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"prompt": {"type": "string", "description": "What the agent is to do"}},
    "required": ["prompt"],
    "additionalProperties": False,
}
DESCRIPTION: Final = "Asks an agent that works on its own, with tools of its own, and answers when it is done."


def agent_ensemble(agent: Agent[Any], *, name: str = "run", description: str = DESCRIPTION) -> Ensemble:
    """Return an ensemble with one tool that runs the agent. Each call is a separate conversation.

    An agent without `approve` asks the client's user, by elicitation.
    """

    async def run(context: Context, arguments: Mapping[str, Any]) -> Any:
        peer: McpClientProxy = context.auxdata[KEY]
        agent_run = agent.stream(arguments["prompt"], approve=agent.approve or peer.approve)
        async with agent_run:
            async for event in agent_run:
                await _report(peer, event)
        if agent_run.failure is not None:
            raise agent_run.failure
        if agent_run.result.state != "completed":
            raise CallerError(f"the agent gave no answer: {agent_run.result.why}", hint=agent_run.result.text)
        return agent_run.result.output

    return Ensemble("agent", [Invoker(name, run, _SCHEMA, description=description, timeout=LONGEST)])


async def _report(peer: McpClientProxy, event: Event) -> None:
    match event:
        case RoundStarted(number=number):
            await peer.progress(number, message=f"round {number}")
        case InvocationEnded(name=name, raw=raw):
            await peer.log("info", {"call": name, "arguments": raw}, "agent")
        case ResultReady(canister=result):
            text = result.error.message if result.error else result.text
            await peer.log("info", {"result": text[:1000], "error": result.error is not None}, "agent")
        case Note(kind=kind, text=text):
            await peer.log("warning" if kind == "alert" else "debug", {"note": kind, "text": text}, "agent")
        case _:
            pass


_CALL: Final = "tools/call"
_OTHER: Final = "_OTHER"
"""Method name for messages that no server of the protocol answers."""
_MAX_VERSION: Final = 40


class RequestSpans:
    """A middleware of the SDK's server. `has_tool` returns True for names of tools."""

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


CATEGORY = "callboard/category"
"""Key of a failure's category in `_meta`."""


def encode_result(
    result: ResultCanister, structured: Mapping[str, Any] | None = None, schema: Mapping[str, Any] | None = None
) -> types.CallToolResult:
    """Return the result of `tools/call`. `structured` defaults to the JSON object in the only text.

    A result that does not match the `schema`, which clients reject, becomes an error that says so.
    """
    content = [_block(part) for part in result.content]
    if result.error is not None:
        return types.CallToolResult(content=content, is_error=True, _meta={CATEGORY: result.error.category})
    structured = structured or _structured_content(result.content)
    if schema is not None and not jsonschema_rs.is_valid(dict(schema), structured):
        content.append(types.TextContent(text="This is not what the tool's outputSchema says."))
        return types.CallToolResult(content=content, is_error=True, _meta={CATEGORY: "execution"})
    return types.CallToolResult(content=content, structured_content=structured)


def _structured_content(content: tuple[Content, ...]) -> Mapping[str, Any] | None:
    match content:
        case (TextualContent(text=text),) if text.startswith("{"):
            try:
                value = msgspec.json.decode(text)
            except msgspec.DecodeError:
                return None
            return value if isinstance(value, dict) else None
        case _:
            return None


def _block(part: Content) -> types.ContentBlock:
    match part:
        case PictureContent(url="") as picture:
            return types.ImageContent(data=_text_of(picture.data), mime_type=picture.mime_type)
        case PictureContent(url=url, mime_type=mime_type):
            return types.ResourceLink(uri=url, name="picture", mime_type=mime_type)
        case FileContent(url="") as file:
            return _file(file)
        case FileContent(url=url, name=name, mime_type=mime_type):
            return types.ResourceLink(uri=url, name=name or "file", mime_type=mime_type)
        case _:
            return types.TextContent(text=part.text)


def _file(file: FileContent) -> types.ContentBlock:
    if file.mime_type.startswith("audio/"):
        return types.AudioContent(data=_text_of(file.data), mime_type=file.mime_type)
    uri = f"callboard:{quote(file.name or 'file', safe='')}"
    if file.mime_type.startswith("text/"):
        try:
            text = file.data.decode()
        except UnicodeDecodeError:
            pass
        else:
            contents = types.TextResourceContents(uri=uri, mime_type=file.mime_type, text=text)
            return types.EmbeddedResource(resource=contents)
    blob = types.BlobResourceContents(uri=uri, mime_type=file.mime_type, blob=_text_of(file.data))
    return types.EmbeddedResource(resource=blob)


def _text_of(data: bytes) -> str:
    return b64encode(data).decode("ascii")


CLOSE_SECONDS: Final = 2.0
"""Seconds that calls get to end at shutdown."""


class ToolServer:
    """Serves the tools of ensembles. The caller connects and disconnects the ensembles.

    `policy` decides which calls may run. If it says ask, the client's user is asked by elicitation; without elicitation
    the call is denied. At most `limit` calls run at once. A tool finds its client in `context.auxdata["mcp"]`, a
    `McpClientProxy`, next to the entries of `auxdata`. Tools with external results are not served. `upstream` asks the
    clients the questions of the servers that these tools belong to.

    `protocol` is the SDK's server, for any of its transports.
    """

    def __init__(
        self,
        ensembles: Iterable[Ensemble],
        *,
        name: str = "callboard",
        instructions: str = "",
        policy: Policy | None = None,
        auxdata: Mapping[str, Any] | None = None,
        limit: int = DEFAULT_LIMIT,
        upstream: Upstream | None = None,
    ) -> None:
        self._ensembles = tuple(ensembles)
        self._policy = policy or Policy()
        self._auxdata = dict(auxdata or {})
        self._upstream = upstream or Upstream()
        self._gate = asyncio.Semaphore(limit)
        self._waiting = WaitingCalls()
        self._sessions = Sessions()
        self._running: set[asyncio.Task[types.CallToolResult]] = set()
        self._changes = InMemorySubscriptionBus()
        self._listed: tuple[Invoker, ...] = ()
        self._invokers: dict[str, Invoker] = {}
        self._tools: list[types.Tool] = []
        self._refresh()
        self.protocol = _Protocol(
            name,
            version=__version__,
            instructions=instructions or instructions_of(self._ensembles) or None,
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_subscriptions_listen=ListenHandler(self._changes),
            get_tool_input_schema=self._schema,
        )
        self.protocol.middleware[:] = [RequestSpans(self.protocol, lambda name: name in self._invokers)]
        self.protocol.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)

    async def notify_changes(self) -> None:
        """Notify clients if the tools of the ensembles have changed."""
        if not self._refresh():
            return
        await self._changes.publish(ToolsListChanged())
        for channel in self._sessions.channels():
            await channel.send_tool_list_changed()

    async def aclose(self) -> None:
        """Cancel the running and waiting calls."""
        self._waiting.end()
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=CLOSE_SECONDS)

    def _refresh(self) -> bool:
        """Read the tools of the ensembles. Return True if they have changed."""
        invokers = tuple([each for ensemble in self._ensembles for each in ensemble.invokers.values()])
        if [*map(id, invokers)] == [*map(id, self._listed)]:
            return False
        self._listed = invokers
        registry = InvokerRegistry(self._ensembles)
        naming = ToolNames(Request("", (), registry.declarations))
        self._invokers = {naming.on_wire(name): each for name, each in registry.items() if not each.deferred}
        self._tools = [_tool(name, each) for name, each in self._invokers.items() if not self._policy.forbids(each)]
        return True

    def _schema(self, name: str) -> Mapping[str, Any] | None:
        # The SDK reads headers only from a dict, and an invoker's schema is read-only.
        return dict(self._invokers[name].arguments_schema) if name in self._invokers else None

    async def _list(self, incoming: Incoming, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        self._sessions.of(incoming)
        self._refresh()
        return types.ListToolsResult(tools=self._tools)

    async def _set_level(self, incoming: Incoming, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self._sessions.of(incoming).level = params.level
        return types.EmptyResult()

    async def _call(
        self, incoming: Incoming, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        if params.request_state is None:
            call = self._begin(incoming, params)
        else:
            call = self._waiting.take(params.request_state, params)
            call.resume(incoming, params.input_responses)
        outcome = await call.outcome()
        if isinstance(outcome, types.CallToolResult):
            return outcome
        return types.InputRequiredResult(input_requests=dict(outcome), request_state=self._waiting.keep(call))

    def _begin(self, incoming: Incoming, params: types.CallToolRequestParams) -> ToolCall:
        """Raise MCPError if no tool has the name (2025-11-25, server/tools: a protocol error)."""
        invoker = self._invokers.get(params.name)
        if invoker is None and self._refresh():
            invoker = self._invokers.get(params.name)
        if invoker is None:
            hint = suggest(params.name, self._invokers)
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name[:64]}; {hint}")
        call = ToolCall(incoming, params)
        task = call.start(self._run(call, invoker, self._sessions.of(incoming)))
        if switch.recorder is not None:
            task.add_done_callback(partial(_record_call, params.name, perf_counter()))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return call

    async def _run(self, call: ToolCall, invoker: Invoker, session: Session) -> types.CallToolResult:
        peer = McpClientProxy(call, session)
        permission, why = read_decision(self._policy, invoker, call.arguments)
        if permission == "ask":
            invocation = InvocationCanister(call.name, call.name, call.arguments)
            permission = "allow" if (await ask_approval(peer.approve, invocation, why)).verdict == "allow" else "deny"
            why = "the answer was no" if "elicitation" in peer.can else f"{why}, and this client cannot be asked"
        if permission != "allow":
            return encode_result(error_result(call.name, "permission", f"{call.name} may not run: {why}"))
        namespace = session.namespaces.setdefault(invoker.ensemble.name if invoker.ensemble else "", {})
        permits = self._policy.permits(invoker, call.arguments)
        asks = self._upstream.calling(peer) if upstream_tool(invoker) else nullcontext()
        async with self._gate, report_progress(peer) as progress:
            context = Context({**self._auxdata, KEY: peer}, namespace, invoker, progress, permits)
            with asks:
                result = await run_invoker(invoker, call.arguments, context, identifier=call.name, on_error="feedback")
        if peer.lacked is not None and result.error is not None and call.modern:
            raise peer.lacked  # 2026-07-28: what needs a capability that the client lacks is a protocol error
        return encode_result(result, peer.structured, invoker.output_schema)


def _record_call(name: str, begun: float, task: asyncio.Task[types.CallToolResult]) -> None:
    """Record the metric of a finished call, over all its requests. Each request has a span."""
    about = {names.MCP_METHOD: "tools/call", names.OPERATION: names.EXECUTE_TOOL, names.TOOL_NAME: name}
    error_type = ""
    if task.cancelled():
        error_type = "cancelled"
    elif (error := task.exception()) is not None:
        error_type = type(error).__qualname__
    elif getattr(task.result(), "is_error", False):
        error_type = "tool_error"
    failed = {names.ERROR_TYPE: error_type} if error_type else {}
    record(names.MCP_SERVER_DURATION, perf_counter() - begun, {**about, **failed})


class _Protocol(Server[Any]):
    def create_initialization_options(self, notification_options: Any = None, *args: Any, **options: Any) -> Any:
        """Declare that the list of tools may change, for every transport."""
        notifications = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(notifications, *args, **options)


def _tool(name: str, invoker: Invoker) -> types.Tool:
    described = types.Tool(
        name=name,
        description=invoker.description or None,
        input_schema=dict(invoker.arguments_schema),
        annotations=types.ToolAnnotations(idempotent_hint=True) if invoker.idempotent else None,
    )
    if (tool := upstream_tool(invoker)) is None:
        schema = invoker.output_schema
        return described.model_copy(update={"output_schema": dict(schema)}) if schema else described
    update = {"annotations": tool.annotations or described.annotations, "output_schema": output_schema(tool)}
    return described.model_copy(update=update)

"""The client of a call as its tool sees it: `context.auxdata["mcp"]`.

Law: a client is asked only if it declares the capability. Its answer proves nothing.

The state of a client between its calls: log level and namespaces.

Law: clients never share state. Over HTTP, the session identifier finds the session. Without one, as from 2026-07-28 on,
each call has its own session.

Serve the tools of other MCP servers again.

Questions of those servers go to the client whose call is running. The tools' annotations and the servers' instructions
are passed on.

Law: a question goes only to the client with a running call of these servers. If several clients have one, the question
is declined, because the protocol does not say which client it belongs to.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import mcp_types as types
from mcp import MCPError
from mcp.server.connection import allowed_log_levels
from mcp.server.session import ServerSession

from callboard.core import Allow, Answer, Deny, InvocationCanister
from callboard.errors import CallerError, SchemaError
from callboard.execution.approval import EarlierAnswers
from callboard.mcp import McpEnsemble
from callboard.mcp.elicitation import ElicitAction
from callboard.mcp.ensemble import SERVED
from callboard.mcp.sanitize import clean_schema
from callboard.schema import compile_schema
from callboard.servers.mcp.call import Questions, ToolCall
from callboard.tools import Ensemble, Invoker
from callboard.tools.context import ReportProgress

if TYPE_CHECKING:
    from callboard.servers.mcp.call import Incoming

_MAX_TEXT: Final = 4096
"""Maximum bytes of a text in a schema."""


class Upstream:
    """Asks the clients of a ToolServer the questions of its upstream servers. See McpEnsemble for the callbacks."""

    def __init__(self) -> None:
        self._calling: list[McpClientProxy] = []

    @contextmanager
    def calling(self, peer: McpClientProxy) -> Generator[None]:
        """Mark a call of the peer as running at an upstream server."""
        self._calling.append(peer)
        try:
            yield
        finally:
            self._calling.remove(peer)

    async def elicit(self, text: str, schema: Mapping[str, Any]) -> tuple[ElicitAction, Mapping[str, Any] | None]:
        """Return the answer of the client's user. URLs to open are not passed on."""
        peer = self._peer("elicitation")
        if peer is None or not schema:
            return "decline", None
        result = await peer.elicit(text, schema, key=_new_key())
        return result.action, result.content

    async def sample(self, params: types.CreateMessageRequestParams) -> Any:
        """Return the reply of the client's model. Raises CallerError if no client can be asked."""
        peer = self._peer("sampling")
        if peer is None:
            raise CallerError("no client can be asked")
        return await peer.sample(params, key=_new_key())

    def _peer(self, capability: Asked) -> McpClientProxy | None:
        sessions = {id(peer.session) for peer in self._calling}
        if len(sessions) != 1 or capability not in self._calling[-1].can:
            return None
        return self._calling[-1]


def upstream_tool(invoker: Invoker) -> types.Tool | None:
    """Return the other server's tool that the invoker calls, if any."""
    ensemble = invoker.ensemble
    return ensemble.find_tool(invoker) if isinstance(ensemble, McpEnsemble) else None


def output_schema(tool: types.Tool) -> dict[str, Any] | None:
    """Return the cleaned schema of the tool's results, or None if it does not compile."""
    if tool.output_schema is None:
        return None
    try:
        compile_schema(tool.output_schema)
        return dict(clean_schema(tool.output_schema, _MAX_TEXT))
    except SchemaError:
        return None


def instructions_of(ensembles: Iterable[Ensemble]) -> str:
    """Return the upstream servers' instructions, each after the server's name."""
    ensembles_with_instructions = [each for each in ensembles if isinstance(each, McpEnsemble) and each.instructions]
    return "\n\n".join([f"{each.name}: {each.instructions}" for each in ensembles_with_instructions])


def _new_key() -> str:
    """Return a random key, so that no answer can be prepared for it."""
    return f"upstream-{secrets.token_hex(8)}"


MAX_SESSIONS: Final = 1000
_LEVELS: Final[tuple[types.LoggingLevel, ...]] = get_args(types.LoggingLevel)
_HEADER: Final = "mcp-session-id"


class Session:
    def __init__(self) -> None:
        self.level: types.LoggingLevel = _LEVELS[0]
        self.namespaces: dict[str, MutableMapping[str, Any]] = {}
        self.channel: ServerSession | None = None
        """Channel for notifications."""

    def wants(self, level: types.LoggingLevel) -> bool:
        return _LEVELS.index(level) >= _LEVELS.index(self.level)


class Sessions:
    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def of(self, incoming: Incoming) -> Session:
        """Return the session of a request. A single client, as over stdio, keeps one session."""
        request = incoming.request
        identifier = "" if request is None else request.headers.get(_HEADER)
        if identifier is None:
            return Session()
        session = self._sessions.setdefault(identifier, Session())
        session.channel = incoming.session
        self._sessions.move_to_end(identifier)
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def channels(self) -> list[ServerSession]:
        return [each.channel for each in self._sessions.values() if each.channel is not None]


KEY: Final = SERVED
"""Key of the client in the auxdata of a tool's context."""
Asked = Literal["elicitation", "sampling", "roots"]

_CAPABILITY: Mapping[str, Asked] = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
_YES: Final = "allow"


class McpClientProxy:
    def __init__(self, call: ToolCall, session: Session) -> None:
        self._call = call
        self.session = session
        self.structured: Mapping[str, Any] | None = None
        """Structured content of another server's answer."""
        self._earlier = EarlierAnswers()
        self.lacked: MCPError | None = None
        """Why the client could not be asked."""

    @property
    def can(self) -> frozenset[Asked]:
        capabilities = self._call.incoming.session.client_capabilities
        if capabilities is None:
            return frozenset()
        form = capabilities.elicitation is not None and (
            capabilities.elicitation.form is not None or capabilities.elicitation.url is None
        )
        has: Mapping[Asked, Any] = {
            "elicitation": form or None,
            "sampling": capabilities.sampling,
            "roots": capabilities.roots,
        }
        return frozenset([name for name, value in has.items() if value is not None])

    @property
    def name(self) -> str:
        """The name that the client gives itself."""
        parameters = self._call.incoming.session.client_params
        return parameters.client_info.name if parameters is not None else "client"

    def mark_answered(self, result: types.CallToolResult) -> None:
        """Record that another server answered the call."""
        self.structured = result.structured_content

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Send the progress of the call, if the client asked for it."""
        await self._call.incoming.session.report_progress(done, total, message)

    async def log(self, level: types.LoggingLevel, data: Any, logger: str | None = None) -> None:
        """Send a log message, if the client wants its level. `data` is any JSON value."""
        incoming = self._call.incoming
        levels = allowed_log_levels(incoming.protocol_version, incoming.meta)
        if level not in levels or not self.session.wants(level):
            return
        params = types.LoggingMessageNotificationParams(level=level, data=data, logger=logger)
        message = types.LoggingMessageNotification(params=params)
        await incoming.session.send_notification(message, related_request_id=incoming.request_id)

    async def ask(self, questions: Questions) -> dict[str, Any]:
        """Return the client's answers to several requests at once, by key.

        Raises MCPError if the client does not support a request; check `can` first. The tool is responsible for
        a timeout.
        """
        lacking = {_CAPABILITY[question.method] for question in questions.values()} - self.can
        if lacking:
            named = types.ClientCapabilities.model_validate({name: {} for name in lacking})
            data = types.MissingRequiredClientCapabilityErrorData(required_capabilities=named)
            self.lacked = MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"the client has no {', '.join(sorted(lacking))}",
                data.model_dump(mode="json", by_alias=True, exclude_none=True),
            )
            raise self.lacked
        return await self._call.ask(questions)

    async def elicit(self, message: str, schema: Mapping[str, Any], *, key: str = "input") -> types.ElicitResult:
        """Return the user's answer to a form. `schema` is a flat object, as the specification requires."""
        params = types.ElicitRequestFormParams(message=message, requested_schema=dict(schema))
        answers = await self.ask({key: types.ElicitRequest(params=params)})
        result: types.ElicitResult = answers[key]
        return result

    async def sample(self, params: types.CreateMessageRequestParams, *, key: str = "sample") -> Any:
        """Return the reply of the client's model, a CreateMessageResult."""
        return (await self.ask({key: types.CreateMessageRequest(params=params)}))[key]

    async def approve(self, invocation: InvocationCanister, why: str) -> Answer:
        """Return if the user allows a call. If the client cannot ask, the call is denied."""
        if "elicitation" not in self.can:
            return Deny(via="MCP")
        why = self._earlier.mention(invocation, why)
        # Escapes show everything in the arguments. The key is new, so that it cannot be answered in advance.
        called = f"{invocation.name} {json.dumps(invocation.arguments, default=str)}"
        schema = {
            "type": "object",
            "properties": {_YES: {"type": "boolean", "title": f"Run {invocation.name}", "default": False}},
            "required": [_YES],
        }
        result = await self.elicit(f"{why}: {called}", schema, key=f"approval-{secrets.token_hex(8)}")
        content = result.content or {}
        if not (result.action == "accept" and content.get(_YES) is True):
            return Deny(by=self.name, via="MCP")
        self._earlier.note(invocation, allowed := Allow(by=self.name, via="MCP"))
        return allowed


@asynccontextmanager
async def report_progress(peer: McpClientProxy) -> AsyncGenerator[ReportProgress]:
    """Yield a function that reports a tool's progress from any thread. All reports are sent before the end."""
    loop = asyncio.get_running_loop()
    steps: asyncio.Queue[tuple[float, float | None, str] | None] = asyncio.Queue()

    def tell(done: float, total: float | None = None, message: str = "", /) -> None:
        loop.call_soon_threadsafe(steps.put_nowait, (done, total, message))

    async def pass_on() -> None:
        while (step := await steps.get()) is not None:
            done, total, message = step
            await peer.progress(done, total, message or None)

    passing = asyncio.create_task(pass_on())
    try:
        yield tell
        loop.call_soon_threadsafe(steps.put_nowait, None)
        await passing
    finally:
        passing.cancel()

"""The client of a call as its tool sees it: `context.auxdata["mcp"]`.

Law: a client is only asked what it says it can be asked; its answer is no proof.

The state of a client between its calls: log level and namespaces.

Law: one client never gets another's state. Over HTTP a session is found by the identifier that the server gave it;
without one, as from 2026-07-28 on, each call has its own.

Serve the tools of other MCP servers again.

Questions of those servers go to the client whose call is running; the tools' annotations and the servers' instructions
are passed on.

Law: a question goes to no client but the one that has a call of these servers running; where several have, it is
declined, for the protocol does not say whose it is.
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
"""Bytes of a text in a schema."""


class Upstream:
    """Asks the clients of a ToolServer what its upstream servers ask: `elicit` and `sample` are as of McpEnsemble."""

    def __init__(self) -> None:
        self._calling: list[McpClientProxy] = []

    @contextmanager
    def calling(self, peer: McpClientProxy) -> Generator[None]:
        """A call of the peer runs at an upstream server."""
        self._calling.append(peer)
        try:
            yield
        finally:
            self._calling.remove(peer)

    async def elicit(self, text: str, schema: Mapping[str, Any]) -> tuple[ElicitAction, Mapping[str, Any] | None]:
        """The answer of the client's user; a page to open is not passed on."""
        peer = self._peer("elicitation")
        if peer is None or not schema:
            return "decline", None
        result = await peer.elicit(text, schema, key=_new_key())
        return result.action, result.content

    async def sample(self, params: types.CreateMessageRequestParams) -> Any:
        """The reply of the client's model. Raises CallerError where there is none to ask."""
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
    """The tool of another server that the invoker calls, if it does."""
    ensemble = invoker.ensemble
    return ensemble.find_tool(invoker) if isinstance(ensemble, McpEnsemble) else None


def output_schema(tool: types.Tool) -> dict[str, Any] | None:
    """The schema of its results, cleaned; None for one that does not compile."""
    if tool.output_schema is None:
        return None
    try:
        compile_schema(tool.output_schema)
        return dict(clean_schema(tool.output_schema, _MAX_TEXT))
    except SchemaError:
        return None


def instructions_of(ensembles: Iterable[Ensemble]) -> str:
    """What upstream servers say about their use, each behind its name."""
    ensembles_with_instructions = [each for each in ensembles if isinstance(each, McpEnsemble) and each.instructions]
    return "\n\n".join([f"{each.name}: {each.instructions}" for each in ensembles_with_instructions])


def _new_key() -> str:
    """A new key, so that no answer can have been prepared for it."""
    return f"upstream-{secrets.token_hex(8)}"


MAX_SESSIONS: Final = 1000
_LEVELS: Final[tuple[types.LoggingLevel, ...]] = get_args(types.LoggingLevel)
_HEADER: Final = "mcp-session-id"


class Session:
    def __init__(self) -> None:
        self.level: types.LoggingLevel = _LEVELS[0]
        self.namespaces: dict[str, MutableMapping[str, Any]] = {}
        self.channel: ServerSession | None = None
        """For notifications."""

    def wants(self, level: types.LoggingLevel) -> bool:
        return _LEVELS.index(level) >= _LEVELS.index(self.level)


class Sessions:
    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def of(self, incoming: Incoming) -> Session:
        """The session of a request; where there is one client, as over stdio, it has one for good."""
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
"""Where in the auxdata of a tool's context its client is."""
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
        """The structured content of another server's answer."""
        self._earlier = EarlierAnswers()
        self.lacked: MCPError | None = None
        """Why it could not be asked."""

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
        """The call was passed on to another server."""
        self.structured = result.structured_content

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Says how far the call is; nothing is sent to a client that did not ask for it."""
        await self._call.incoming.session.report_progress(done, total, message)

    async def log(self, level: types.LoggingLevel, data: Any, logger: str | None = None) -> None:
        """Sends a log message, if the client wants those of this level. `data` is anything that JSON can say."""
        incoming = self._call.incoming
        levels = allowed_log_levels(incoming.protocol_version, incoming.meta)
        if level not in levels or not self.session.wants(level):
            return
        params = types.LoggingMessageNotificationParams(level=level, data=data, logger=logger)
        message = types.LoggingMessageNotification(params=params)
        await incoming.session.send_notification(message, related_request_id=incoming.request_id)

    async def ask(self, questions: Questions) -> dict[str, Any]:
        """The client's answers to several requests at once, by their keys.

        Raises MCPError if it cannot be asked one of them: `can` says so beforehand. The seconds that it takes are
        the tool's own.
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
        """The user's answer to a form; `schema` is a flat object's, as the specification restricts it."""
        params = types.ElicitRequestFormParams(message=message, requested_schema=dict(schema))
        answers = await self.ask({key: types.ElicitRequest(params=params)})
        result: types.ElicitResult = answers[key]
        return result

    async def sample(self, params: types.CreateMessageRequestParams, *, key: str = "sample") -> Any:
        """The reply of the client's model: a CreateMessageResult."""
        return (await self.ask({key: types.CreateMessageRequest(params=params)}))[key]

    async def approve(self, invocation: InvocationCanister, why: str) -> Answer:
        """Whether the user lets a call run; no where the client cannot ask."""
        if "elicitation" not in self.can:
            return Deny(via="MCP")
        why = self._earlier.mention(invocation, why)
        # Escapes, so that nothing in the arguments is hidden; the key is new, so that it is not answered unasked.
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
    """A function by which a tool reports progress, from any thread. All of it is sent before the end."""
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

"""A running tool call, and the questions to its client in the meantime.

Up to protocol 2025-11-25, a question is a request of the server. From 2026-07-28 on, the response to the client's
request contains the questions. The call's task waits, and the client's next request brings the answers.

Laws: a waiting call has a random token that works once, in a request of the same tool with the same arguments. A call
is cancelled if its client does not come back.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeAlias

import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Incoming: TypeAlias = ServerRequestContext[Any, Any]
Questions: TypeAlias = Mapping[str, types.InputRequest]
Answers: TypeAlias = Mapping[str, types.InputResponse]


MAX_WAITING: Final = 256
"""Maximum calls that wait for their clients. The oldest are cancelled."""
MAX_WAIT_SECONDS: Final = 600.0
"""Maximum seconds that a call waits for its client."""

_ANSWERS: Mapping[str, tuple[type[types.InputResponse], ...]] = {
    "elicitation/create": (types.ElicitResult,),
    "sampling/createMessage": (types.CreateMessageResult, types.CreateMessageResultWithTools),
    "roots/list": (types.ListRootsResult,),
}


class ToolCall:
    """One `tools/call` over all its requests. `incoming` is the newest request."""

    def __init__(self, incoming: Incoming, params: types.CallToolRequestParams) -> None:
        self.incoming = incoming
        self.name = params.name
        self.arguments: Mapping[str, Any] = params.arguments or {}
        self._answers = dict(params.input_responses or {})
        self._asking = asyncio.Lock()
        self._task: asyncio.Task[types.CallToolResult] | None = None
        self._question: asyncio.Future[Questions] = asyncio.get_running_loop().create_future()
        self._resumed = asyncio.Event()

    def start(self, run: Coroutine[Any, Any, types.CallToolResult]) -> asyncio.Task[types.CallToolResult]:
        self._task = asyncio.create_task(run)
        return self._task

    async def outcome(self) -> types.CallToolResult | Questions:
        """Return the result, or the questions to the client before the result. Cancelling this cancels the call.

        Raises MCPError if the server itself has cancelled the call.
        """
        task = self._task
        if task is None:
            raise AssertionError("a call is started before it is waited for")
        try:
            await asyncio.wait((task, self._question), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.cancel()
            raise
        if not task.done():
            return self._question.result()
        if task.cancelled():
            raise MCPError(types.CONNECTION_CLOSED, "the server is closing")
        return task.result()

    def resume(self, incoming: Incoming, answers: Answers | None) -> None:
        """Continue with the next request of the client."""
        self.incoming = incoming
        self._answers = dict(answers or {})
        self._question = asyncio.get_running_loop().create_future()
        self._resumed.set()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    @property
    def modern(self) -> bool:
        """True for protocol 2026-07-28 or later, in which the server sends no requests."""
        return self.incoming.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def ask(self, questions: Questions) -> dict[str, Any]:
        """Return the client's answers, by the questions' keys. Raises MCPError if the client refuses."""
        if not self.modern:
            answers = await asyncio.gather(*[self._request(each) for each in questions.values()])
            return dict(zip(questions, answers, strict=True))
        async with self._asking:
            while not all(_answers(question, self._answers.get(key)) for key, question in questions.items()):
                self._resumed.clear()
                self._question.set_result(questions)
                await self._resumed.wait()
            return {key: self._answers.pop(key) for key in questions}

    async def _request(self, question: types.InputRequest) -> Any:
        related = ServerMessageMetadata(related_request_id=self.incoming.request_id)
        kind = _ANSWERS[question.method][0]
        return await self.incoming.session.send_request(question, kind, metadata=related)


class WaitingCalls:
    """The calls that wait for answers of their clients, by token."""

    def __init__(self, max_wait: float = MAX_WAIT_SECONDS) -> None:
        self._max_wait = max_wait
        self._calls: dict[str, tuple[ToolCall, asyncio.TimerHandle]] = {}

    def keep(self, call: ToolCall) -> str:
        if len(self._calls) >= MAX_WAITING:
            self._end(next(iter(self._calls)))
        token = secrets.token_urlsafe(24)
        timer = asyncio.get_running_loop().call_later(self._max_wait, self._end, token)
        self._calls[token] = call, timer
        return token

    def take(self, token: str, params: types.CallToolRequestParams) -> ToolCall:
        """Return the call of a token. Raises MCPError if the token does not fit the request or has ended."""
        call, timer = self._calls.get(token, (None, None))
        if call is None or timer is None or (call.name, call.arguments) != (params.name, params.arguments or {}):
            raise MCPError(
                types.INVALID_PARAMS, "no call of this tool with these arguments waits for this requestState"
            )
        del self._calls[token]
        timer.cancel()
        return call

    def end(self) -> None:
        for token in [*self._calls]:
            self._end(token)

    def _end(self, token: str) -> None:
        call, timer = self._calls.pop(token)
        timer.cancel()
        call.cancel()


def _answers(question: types.InputRequest, answer: types.InputResponse | None) -> bool:
    return isinstance(answer, _ANSWERS[question.method])

"""Serve one ACP client on standard input and output, until it is gone, or SIGTERM.

Law: every mistake of the client is an answer with a sentence that says what to do, and never a traceback.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import Any, Final

from acp.connection import Connection
from acp.exceptions import RequestError
from acp.schema import (
    PermissionOption,
    RequestPermissionRequest,
    RequestPermissionResponse,
    SessionNotification,
    ToolCallUpdate,
)
from pydantic import BaseModel, ValidationError

from callboard.errors import CallboardError, CallerError
from callboard.servers.acp.agent import AcpAgent, Method
from callboard.servers.acp.chats import Chats
from callboard.servers.acp.session import AnyUpdate
from callboard.servers.acp.transport import MAX_MESSAGE, LineTransport
from callboard.servers.stdio import StdioDescriptors, open_reader, open_writer, wait_for_orphaning
from callboard.text.display import collapse

_INVALID_REQUEST: Final = -32600
_NO_METHOD: Final = -32601
_INVALID_PARAMETERS: Final = -32602
_INTERNAL: Final = -32603
_MAX_MISTAKES: Final = 3
"""Mistakes of one request that are named."""
_log = logging.getLogger("callboard.acp")


class ClientConnection:
    """The connection to one client: dispatches its requests, and asks it.

    Args:
        transport: Moves the messages.
        chats: Makes the chats.
        root: As of AcpAgent.
    """

    def __init__(self, transport: LineTransport, chats: Chats, *, root: Path | None = None) -> None:
        self._transport = transport
        self.agent = AcpAgent(chats, self._send_update, self._ask, root=root)
        self._connection = Connection(self._dispatch, transport, listening=False)

    async def run(self) -> None:
        """Answers the client until it is gone, and ends what it began."""
        try:
            await self._connection.main_loop()
        finally:
            await self.agent.aclose()
            await self._connection.close()

    async def _dispatch(self, method: str, parameters: Any, is_notification: bool) -> Any:  # the package's
        methods = self.agent.notifications if is_notification else self.agent.requests
        if method not in methods:
            if is_notification:
                return None
            raise RequestError(_NO_METHOD, f"no method {collapse(method)!r}: use {', '.join(methods)}")
        try:
            return await self._run(method, methods[method], parameters)
        except RequestError as error:
            if not is_notification:
                raise
            _log.warning("%s", error)  # nobody waits for an answer
            return None

    async def _run(self, name: str, method: Method, parameters: Any) -> Any:
        """The result of a method. Raises RequestError."""
        try:
            request = method.parameters.model_validate(parameters or {})
        except ValidationError as error:
            raise RequestError(_INVALID_PARAMETERS, _describe_mistakes(name, error)) from None
        try:
            self.agent.check_order(name)
            answer = await method.run(request)
        except CallerError as error:
            code = _INVALID_PARAMETERS if error.path else _INVALID_REQUEST
            raise RequestError(code, str(error)) from None
        except (CallboardError, OSError) as error:
            raise RequestError(_INTERNAL, str(error)) from None
        except Exception:  # noqa: BLE001  # the client waits for an answer, and goes on
            _log.exception("%s failed", name)
            raise RequestError(
                _INTERNAL, "a fault of Callboard's: its standard error has it, please report it"
            ) from None
        return {} if answer is None else _dump(answer)

    def _send_update(self, session: str, update: AnyUpdate) -> None:
        parameters = _dump(SessionNotification(session_id=session, update=update))
        self._transport.post({"jsonrpc": "2.0", "method": "session/update", "params": parameters})

    async def _ask(
        self, session: str, call: ToolCallUpdate, options: list[PermissionOption]
    ) -> RequestPermissionResponse:
        """The client's answer; one that is none is a no."""
        question = RequestPermissionRequest(session_id=session, tool_call=call, options=options)
        try:
            answer = await self._connection.send_request("session/request_permission", _dump(question))
            return RequestPermissionResponse.model_validate(answer)
        except (RequestError, ValidationError, ConnectionError) as error:
            _log.warning("the client did not answer whether %s may run: %s", call.title, collapse(str(error), 1000))
            return RequestPermissionResponse.model_validate({"outcome": {"outcome": "cancelled"}})


async def serve_client(wire: StdioDescriptors, chats: Chats, *, root: Path | None = None) -> None:
    """Serves one client. Ends when it, or the parent, is gone, and at SIGTERM."""
    loop = asyncio.get_running_loop()
    writer = await open_writer(wire.write)
    reader, close = await open_reader(wire.read, MAX_MESSAGE)
    connection = ClientConnection(LineTransport(reader, writer), chats, root=root)
    terminated = asyncio.Event()
    serving = asyncio.create_task(connection.run())
    watched = (serving, asyncio.create_task(wait_for_orphaning()), asyncio.create_task(terminated.wait()))
    loop.add_signal_handler(signal.SIGTERM, terminated.set)
    try:
        await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        for task in watched:
            task.cancel()
        await asyncio.wait(watched)
        close()


def _dump(value: BaseModel) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


def _describe_mistakes(method: str, error: ValidationError) -> str:
    """What is wrong with the parameters of a request, without repeating them."""
    mistakes = [
        f"{'.'.join(map(str, each['loc'])) or 'params'}: {each['msg']}"
        for each in error.errors(include_input=False, include_url=False, include_context=False)[:_MAX_MISTAKES]
    ]
    return collapse(f"{method} is not as the protocol has it: {'; '.join(mistakes)}", 1000)

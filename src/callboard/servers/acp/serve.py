"""Serve one ACP client on standard input and output, until the client disconnects or SIGTERM arrives.

Law: every mistake of the client gets an error message that says what to do, never a traceback.

Messages are lines of JSON-RPC from and to an ACP client.

The package's own transport stops at a message that is not an object, and does not answer unreadable messages. Laws:
every request gets an answer, and no answer ends the connection. Lines that are too long are discarded. Output is
always UTF-8, even if a model wrote something else.
"""

from __future__ import annotations

import asyncio
import json
import logging
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
from callboard.servers.acp.session import AnyUpdate, Chats
from callboard.servers.stdio import StdioDescriptors, Writer, open_reader, open_writer, run_until_gone
from callboard.text.display import collapse

MAX_MESSAGE: Final = 32 * 1024 * 1024
"""Maximum bytes of one message. A prompt may contain pictures."""
_PARSE_ERROR: Final = -32700


class LineTransport:
    """A `Transport` of the package `acp`, over a reader and a writer of lines.

    Args:
        reader: Input from the client.
        writer: Output to the client.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        self._reader = reader
        self._writer = writer

    def post(self, message: dict[str, Any]) -> None:
        """Queue a message after all earlier ones, without waiting for the client to read it.

        The queue is at most as large as the conversation, which is in memory too.
        """
        self._writer.post(_encode(message) + "\n")

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message, and wait if the client reads slowly."""
        self.post(message)
        await self._writer.flush()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message, or None at the end. Lines over the reader's limit are refused and skipped."""
        while True:
            try:
                if not (line := await self._reader.readline()):
                    return None
            except ValueError:
                self._refuse(INVALID_REQUEST, f"a message has at most {MAX_MESSAGE} bytes; send a smaller message")
                continue
            if line.strip() and (message := self._parse(line)) is not None:
                return message

    async def close(self) -> None:
        self._writer.close()

    def _parse(self, line: bytes) -> dict[str, Any] | None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._refuse(_PARSE_ERROR, "not JSON; send one JSON object per line")
            return None
        if not isinstance(message, dict):
            self._refuse(INVALID_REQUEST, "not a JSON object; send single requests, not a batch")
            return None
        identifier = message.get("id")
        if identifier is not None and (isinstance(identifier, bool) or not isinstance(identifier, (int, str))):
            self._refuse(INVALID_REQUEST, "the id of a request must be a number or a string")
            return None
        if "method" in message and not isinstance(message["method"], str):
            self._refuse(INVALID_REQUEST, "the method of a request must be a string", identifier)
            return None
        if message.get("error") is not None:
            message.pop("result", None)  # with both fields, the package would ignore the error
        if not isinstance(message.get("error", {}), dict):
            message["error"] = {}  # the package expects an object
        return message

    def _refuse(self, code: int, text: str, identifier: int | str | None = None) -> None:
        self.post({"jsonrpc": "2.0", "id": identifier, "error": {"code": code, "message": text}})


def _encode(message: dict[str, Any]) -> str:
    try:
        return json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:  # NaN or infinity in the arguments of a call
        plain = json.loads(json.dumps(message), parse_constant=lambda _: None)
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


INVALID_REQUEST: Final = -32600
_NO_METHOD: Final = -32601
_INVALID_PARAMETERS: Final = -32602
_INTERNAL: Final = -32603
_MAX_MISTAKES: Final = 3
"""Maximum mistakes of one request that the error names."""
_log = logging.getLogger("callboard.acp")


class ClientConnection:
    """The connection to one client: dispatches its requests, and sends our questions.

    Args:
        transport: Moves the messages.
        chats: Makes the chats.
        root: See AcpAgent.
    """

    def __init__(self, transport: LineTransport, chats: Chats, *, root: Path | None = None) -> None:
        self._transport = transport
        self.agent = AcpAgent(chats, self._send_update, self._ask, root=root)
        self._connection = Connection(self._dispatch, transport, listening=False)

    async def run(self) -> None:
        """Answer the client until it disconnects, then clean up."""
        try:
            await self._connection.main_loop()
        finally:
            await self.agent.aclose()
            await self._connection.close()

    async def _dispatch(self, method: str, parameters: Any, is_notification: bool) -> Any:  # signature of the package
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
        """Return the result of a method. Raises RequestError."""
        try:
            request = method.parameters.model_validate(parameters or {})
        except ValidationError as error:
            raise RequestError(_INVALID_PARAMETERS, _describe_mistakes(name, error)) from None
        try:
            self.agent.check_order(name)
            answer = await method.run(request)
        except CallerError as error:
            code = _INVALID_PARAMETERS if error.path else INVALID_REQUEST
            raise RequestError(code, str(error)) from None
        except (CallboardError, OSError) as error:
            raise RequestError(_INTERNAL, str(error)) from None
        except Exception:  # noqa: BLE001  # the client waits for an answer, and continues
            _log.exception("%s failed", name)
            raise RequestError(
                _INTERNAL, "a bug in Callboard; please report it with the output on standard error"
            ) from None
        return {} if answer is None else _dump(answer)

    def _send_update(self, session: str, update: AnyUpdate) -> None:
        parameters = _dump(SessionNotification(session_id=session, update=update))
        self._transport.post({"jsonrpc": "2.0", "method": "session/update", "params": parameters})

    async def _ask(
        self, session: str, call: ToolCallUpdate, options: list[PermissionOption]
    ) -> RequestPermissionResponse:
        """Return the client's answer. An invalid answer denies the call."""
        question = RequestPermissionRequest(session_id=session, tool_call=call, options=options)
        try:
            answer = await self._connection.send_request("session/request_permission", _dump(question))
            return RequestPermissionResponse.model_validate(answer)
        except (RequestError, ValidationError, ConnectionError) as error:
            _log.warning("the client did not answer whether %s may run: %s", call.title, collapse(str(error), 1000))
            return RequestPermissionResponse.model_validate({"outcome": {"outcome": "cancelled"}})


async def serve_client(wire: StdioDescriptors, chats: Chats, *, root: Path | None = None) -> None:
    """Serve one client until the client or the parent process ends, or SIGTERM arrives."""
    writer = await open_writer(wire.write)
    reader, close = await open_reader(wire.read, MAX_MESSAGE)
    try:
        await run_until_gone(ClientConnection(LineTransport(reader, writer), chats, root=root).run())
    finally:
        close()


def _dump(value: BaseModel) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


def _describe_mistakes(method: str, error: ValidationError) -> str:
    """Describe the mistakes in the parameters of a request, without repeating the values."""
    mistakes = [
        f"{'.'.join(map(str, each['loc'])) or 'params'}: {each['msg']}"
        for each in error.errors(include_input=False, include_url=False, include_context=False)[:_MAX_MISTAKES]
    ]
    return collapse(f"{method} does not follow the protocol: {'; '.join(mistakes)}", 1000)

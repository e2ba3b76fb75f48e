"""The traffic of all workers of a gateway: each answers the others over a socket of its own in one private directory.

A page is served by whichever worker took the browser's connection, and the log of requests is in each worker's memory.
So a worker listens on a Unix socket, named after its log, in a directory that the gateway's first process made for its
user alone. One connection is one question: the name of a function of `Traffic` and its arguments as MessagePack, then
its result.

Laws: a worker that does not answer in time is counted as missing, and the others are shown; the socket of one that died
is removed; only functions of `_CALLS` can be asked for, and a message has at most `_MAX_MESSAGE` bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec

from callboard.errors import CallboardError, CallerError
from callboard.servers.gateway.traffic import Traffic
from callboard.servers.gateway.traffic_overview import make_overview, select_page
from callboard.servers.gateway.traffic_values import (
    PAGE_SIZE,
    BackendState,
    KeptReply,
    Overview,
    RepeatOrder,
    RequestRow,
    RequestView,
    RowFilter,
    RowPage,
    TrafficSource,
)

if TYPE_CHECKING:
    from callboard.servers.gateway.endpoints import Services

log = logging.getLogger("callboard.gateway")

_SUFFIX: Final = ".sock"
_SECONDS: Final = 5.0
"""That another worker has to answer."""
_MAX_QUESTION: Final = 64 * 1024
_MAX_MESSAGE: Final = 64 * 1024 * 1024


class _Call(NamedTuple):
    arguments: tuple[Any, ...]
    result: Any


_CALLS: Final[Mapping[str, _Call]] = {
    "rows": _Call((), list[RequestRow]),
    "backends": _Call((), list[BackendState]),
    "view": _Call((str,), RequestView),
    "read_as": _Call((str, int, str), tuple[str, ...]),
    "repeat": _Call((str, RepeatOrder), str),
    "kept_reply": _Call((str,), KeptReply),
}
"""What a worker may be asked, with the types of the arguments and of the result."""


class _Mistake(msgspec.Struct):
    """A CallerError on its way to another worker."""

    message: str
    path: str = ""
    hint: str = ""


class _Answer(msgspec.Struct):
    result: msgspec.Raw = msgspec.Raw(msgspec.msgpack.encode(None))
    mistake: _Mistake | None = None


class WorkerTraffic:
    """The traffic of the workers whose sockets are in the directory.

    Args:
        own: That of this worker.
        directory: Readable for this user alone.
    """

    def __init__(self, own: Traffic, directory: Path) -> None:
        self._own = own
        self._directory = directory
        self._resources = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._resources.enter_async_context(self._own)
        path = self._directory / f"{self._own.name}{_SUFFIX}"
        server = await asyncio.start_unix_server(self._answer, path)
        self._resources.callback(path.unlink, missing_ok=True)
        self._resources.callback(server.close)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None, /
    ) -> None:
        await self._resources.aclose()

    async def overview(self) -> Overview:
        """What the logs of all workers say."""
        rows, missing = await self._ask_all("rows")
        backends, _ = await self._ask_all("backends")
        workers = [self._own.name, *self._others()]
        return make_overview(rows, backends, time(), workers, missing)

    async def page(self, row_filter: RowFilter, before: str = "", limit: int = PAGE_SIZE) -> RowPage:
        """A page of the requests of all workers."""
        rows, _ = await self._ask_all("rows")
        return select_page(rows, row_filter, before, limit)

    async def view(self, identifier: str) -> RequestView:
        """One request, of whichever worker. Raises CallerError."""
        view: RequestView = await self._ask_owner("view", identifier)
        return view

    async def read_as(self, identifier: str, place: int, dialect: str) -> tuple[str, ...]:
        """What another dialect would have read, in the worker that has the bytes. Raises CallerError."""
        events: tuple[str, ...] = await self._ask_owner("read_as", identifier, place, dialect)
        return events

    async def repeat(self, identifier: str, order: RepeatOrder) -> str:
        """Ask a request again, in the worker that has it. Raises CallerError."""
        repeated: str = await self._ask_owner("repeat", identifier, order)
        return repeated

    async def kept_reply(self, identifier: str) -> KeptReply:
        """What a test is made of. Raises CallerError."""
        reply: KeptReply = await self._ask_owner("kept_reply", identifier)
        return reply

    def _others(self) -> list[str]:
        names = [path.stem for path in sorted(self._directory.glob(f"*{_SUFFIX}"))]
        return [name for name in names if name != self._own.name]

    async def _ask_all(self, name: str) -> tuple[list[Any], int]:
        """What all workers answer, joined, and how many did not."""
        others = [self._ask(worker, name) for worker in self._others()]
        own, *answers = await asyncio.gather(getattr(self._own, name)(), *others, return_exceptions=True)
        if isinstance(own, BaseException):
            raise own
        missing = [each for each in answers if isinstance(each, BaseException)]
        for error in missing:
            if not isinstance(error, CallboardError):
                raise error
        return [*own, *[row for each in answers if isinstance(each, list) for row in each]], len(missing)

    async def _ask_owner(self, name: str, identifier: str, *arguments: Any) -> Any:
        """Ask the worker that a request's identifier names; of one that is not there this worker says so."""
        worker = identifier.rpartition("-")[0]
        if worker in self._others():
            return await self._ask(worker, name, identifier, *arguments)
        return await getattr(self._own, name)(identifier, *arguments)

    async def _ask(self, worker: str, name: str, *arguments: Any) -> Any:
        """Raises CallerError, also where the worker does not answer."""
        path = self._directory / f"{worker}{_SUFFIX}"
        try:
            async with asyncio.timeout(_SECONDS):
                data = await _exchange(path, msgspec.msgpack.encode((name, arguments)))
            answer = msgspec.msgpack.decode(data, type=_Answer)
            if answer.mistake is None:
                return msgspec.msgpack.decode(answer.result, type=_CALLS[name].result)
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)  # its process died
            return [] if _CALLS[name].arguments == () else await getattr(self._own, name)(*arguments)
        except (OSError, TimeoutError, msgspec.MsgspecError):
            raise CallerError("this worker of the gateway does not answer", path=worker, hint="try again") from None
        raise CallerError(answer.mistake.message, path=answer.mistake.path, hint=answer.mistake.hint)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the question of another worker."""
        try:
            async with asyncio.timeout(_SECONDS):
                name, arguments = await _read_question(reader)
        except (OSError, TimeoutError, KeyError, ValueError, msgspec.MsgspecError) as error:
            log.warning("a worker of this gateway asked something that cannot be answered: %s", type(error).__name__)
        else:
            writer.write(msgspec.msgpack.encode(await self._call(name, arguments)))
            with suppress(OSError):
                await writer.drain()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _call(self, name: str, arguments: Sequence[Any]) -> _Answer:
        try:
            return _Answer(msgspec.Raw(msgspec.msgpack.encode(await getattr(self._own, name)(*arguments))))
        except CallerError as error:
            return _Answer(mistake=_Mistake(error.message, error.path, error.hint))


def open_traffic(services: Services, directory: str = "") -> TrafficSource:
    """The traffic of a gateway, whose requests are kept from now on.

    Args:
        services: Those of this worker.
        directory: Where the workers' sockets are; "" for a gateway of one process.
    """
    own = Traffic(services.gateway, services.keep_requests())
    return WorkerTraffic(own, Path(directory)) if directory else own


async def _read_question(reader: asyncio.StreamReader) -> tuple[str, list[Any]]:
    """The name of a function of `_CALLS`, and its arguments. Raises for anything else."""
    data = await _read_all(reader, _MAX_QUESTION)
    name, arguments = msgspec.msgpack.decode(data, type=tuple[str, tuple[Any, ...]])
    return name, [msgspec.convert(*pair) for pair in zip(arguments, _CALLS[name].arguments, strict=True)]


async def _read_all(reader: asyncio.StreamReader, limit: int) -> bytes:
    """All until the other side is closed. Raises OSError for more than `limit` bytes."""
    pieces: list[bytes] = []
    size = 0
    while piece := await reader.read(1 << 20):
        size += len(piece)
        if size > limit:
            raise OSError("the message is too large")
        pieces.append(piece)
    return b"".join(pieces)


async def _exchange(path: Path, question: bytes) -> bytes:
    """Send a question and read the whole answer."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(question)
        writer.write_eof()
        return await _read_all(reader, _MAX_MESSAGE)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

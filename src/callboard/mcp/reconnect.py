"""When a server is connected.

Owns the task in which connections are made, lost and made again, and who waits for one. Knows nothing of what is
asked of the server.
Law: all that wait share one try; without anybody who waits nothing is tried. A server that does not bear being asked
in the newer protocol is asked in the older one.

The SDK asks in the newer protocol first and falls back when the answer is an error, or none for ten seconds. Programs
of the Rust SDK end at that request instead, so they are started once more and asked in the older one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from callboard.errors import CallerError
from callboard.mcp.connection import Connection, opened
from callboard.mcp.connection_state import Happening, Standing, State
from callboard.mcp.eras import Eras
from callboard.mcp.errors import (
    ServerFailure,
    ServerTimeout,
    ServerUnreachable,
    failure_of,
    is_an_answer,
    is_lost,
)
from callboard.mcp.events import LinkEvent, StateChanged
from callboard.mcp.settings import ServerSettings

if TYPE_CHECKING:
    import httpx2

_LAST_WORDS: Final = 300
"""Characters: as many as a line of `callboard mcp list` has room for."""
_FRAMES: Final = re.compile(
    r'^[ \t]+File ".*\n?(?:[ \t]{4,}.*\n?)*|^[ \t]+at .*\n?|^Traceback .*\n?|^Node\.js v.*\n?', re.MULTILINE
)
"""The stack of an exception, in Python and in Node.js, which stands before or behind what it says."""
_ANY: Final = frozenset({"auto", "legacy"})


class Upkeep:
    """One server's connections, one after another.

    `callbacks` gives what the SDK calls for a connection, `began` is called with one that is ready, `noise` with
    each line that was no message. `eras` remembers which protocol the server speaks.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        callbacks: Callable[[Connection], dict[str, Any]],
        began: Callable[[Connection], None],
        noise: Callable[[bytes], None],
        tell: Callable[[LinkEvent], None],
        auth: httpx2.Auth | None,
        eras: Eras | None,
    ) -> None:
        self.path = f"mcp.{settings.name}"
        self.current: Connection | None = None
        self.failure: ServerFailure | None = None
        """Why the last try failed; None after one that did not."""
        self._settings = settings
        self._callbacks = callbacks
        self._began = began
        self._noise = noise
        self._tell = tell
        self._auth = auth
        self._standing = Standing()
        self._eras = eras if settings.protocol == "auto" else None
        remembered = self._eras is not None and self._eras.is_legacy(settings)
        self._known = "legacy" if remembered or _is_legacy(settings.protocol) else "auto"
        self._mode = self._known
        self._owner: asyncio.Task[None] | None = None
        self._waiting = 0
        self._failures = 0
        self._closed = False
        self._turned = asyncio.Event()
        self._asked = asyncio.Event()

    @property
    def state(self) -> State:
        return self._standing.state

    async def start(self) -> None:
        """Connects now, whatever failed before. Raises ServerFailure if the one try fails."""
        failures = self._failures
        if not self._closed:
            self._feed("started")
        await self.connected(lambda: self._failures > failures)

    async def connected(self, tried: Callable[[], bool] = lambda: False) -> Connection:
        """The connection, as soon as there is one. Raises ServerFailure when there will be none, or it was `tried`."""
        self._waiting += 1
        try:
            while (connection := self.current) is None or self._closed:
                if self._closed:
                    raise ServerUnreachable("it is closed", path=self.path)
                if self.failure is not None and (self.state == "failed" or tried()):
                    raise self.failure.again()
                if self._owner is None or self._owner.done():
                    self._owner = asyncio.create_task(self._own(), name=self.path)
                self._asked.set()
                await self._turned.wait()
            return connection
        finally:
            self._waiting -= 1

    def answered(self, connection: Connection) -> None:
        """A call was answered on it."""
        if not connection.answered and connection is self.current:
            connection.answered = True
            self._feed("answered")

    async def aclose(self) -> None:
        """Ends the connection for good."""
        self._closed = True
        if self.current is not None:
            self.current.end("")
        elif self._owner is not None:
            self._owner.cancel()
        if self._owner is not None:
            await asyncio.wait((self._owner,))
        self._feed("closed")

    async def _own(self) -> None:
        """Enters and leaves every connection: the SDK wants both in one task. Ends when nobody waits for one."""
        while not self._closed and await self._due():
            self._feed("trying")
            if await self._connect(once_more=True):
                await self._connect(once_more=False)

    async def _connect(self, *, once_more: bool) -> bool:
        """One connection, until it is over. Whether it failed in a way that the other protocol may mend."""
        connection = Connection(self.path, self._ended, self._noise)
        try:
            async with opened(connection, self._settings, self._mode, self._callbacks(connection), self._auth):
                self._begin(connection)
                await connection.over.wait()
        except Exception as error:  # noqa: BLE001  # whatever the SDK raises, the connection is over
            mends = self.state == "connecting" and not self._closed and self._other_era_may_mend(connection, error)
            if mends:
                self._change_era()
            if self.state == "connecting" and not (mends and once_more):
                self._refuse(connection, error)
            connection.end(failure_of(error, self.path).message)
            return mends and once_more
        return False

    async def _due(self) -> bool:
        """Until the next try may be made; False if nobody waits for it any more."""
        await asyncio.sleep(0)  # who only wanted the last try is gone then
        while True:
            self._asked.clear()
            if not self._waiting or self.state == "failed":
                return False
            wait = self._standing.wait(_now())
            if not wait:
                return True
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._asked.wait()

    def _begin(self, connection: Connection) -> None:
        if connection.over.is_set():
            raise ServerUnreachable(connection.why, path=self.path)
        protocol = self._settings.protocol
        if protocol not in _ANY and connection.modern == _is_legacy(protocol):
            said = f"it speaks {connection.client.protocol_version}, not {protocol}"
            raise CallerError(said, path=f"{self.path}.protocol", hint='protocol = "auto"')
        self._mode = self._known = "auto" if connection.modern else "legacy"
        if self._eras is not None:
            info = connection.client.server_info
            version = f"{info.name} {info.version}" if info else ""
            self._eras.note(self._settings, legacy=not connection.modern, version=version)
        self.current = connection
        self.failure = None
        self._feed("opened")
        self._began(connection)

    def _refuse(self, connection: Connection, error: Exception) -> None:
        if isinstance(error, TimeoutError) and not isinstance(error, ServerFailure):
            if not connection.heard:  # some servers of before 2026 are silent when asked in the newer way
                self._change_era()
            text = explained(connection, f"it did not answer within {self._settings.connect_timeout:g} s")
            self.failure = ServerTimeout(text, path=self.path, hint="its connect_timeout can be raised")
        else:
            self._mode = self._known
            failure = failure_of(error, self.path)
            lost = is_lost(error, over=connection.over.is_set())
            text = explained(connection, (lost and connection.why) or failure.message)
            self.failure = type(failure)(text, path=failure.path, hint=failure.hint, hopeless=failure.hopeless)
        self._failures += 1
        self._feed("hopeless" if self.failure.hopeless else "refused", self.failure.message)

    def _other_era_may_mend(self, connection: Connection, error: Exception) -> bool:
        """Whether a program ended without a word at the newer protocol's request, or the older one's was refused."""
        if self._settings.protocol != "auto":
            return False
        if self._mode == "auto":
            return connection.ended and not connection.heard
        return is_an_answer(error)

    def _change_era(self) -> None:
        """The next try is made in the other protocol, where the settings leave it open."""
        if self._settings.protocol == "auto":
            self._mode = "legacy" if self._mode == "auto" else "auto"
            if self._eras is not None:
                self._eras.forget(self._settings)

    def _ended(self, connection: Connection) -> None:
        if connection is self.current:
            self.current = None
            if not self._closed:
                self._feed("lost", connection.why)

    def _feed(self, happening: Happening, why: str = "") -> None:
        before = self.state
        if self._standing.feed(happening, _now()) != before:
            self._tell(StateChanged(self._settings.name, self.state, why))
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()
        self._asked.set()


def explained(connection: Connection, why: str) -> str:
    """The reason, with the last that the program wrote to its standard error, and what it wrote that was no message."""
    errors = _FRAMES.sub("", f"{connection.errors}\n").strip() or connection.errors
    noise = connection.first_noise
    return "; ".join(
        [
            why,
            *([f"its last words: {errors[-_LAST_WORDS:].strip()}"] if errors else []),
            *([f"it wrote to its standard output what is no message, first: {noise}"] if noise else []),
        ]
    )


def _is_legacy(protocol: str) -> bool:
    """The versions are dates; from 2026 on there is no session."""
    return protocol == "legacy" or protocol < "2026"


def _now() -> float:
    return asyncio.get_running_loop().time()

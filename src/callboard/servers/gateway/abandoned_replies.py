"""Keep a reply whose client gave up before the first token, until the same client asks again.

Many clients give up after some minutes and send the same request again. If a backend takes longer to read the prompt
and starts over for each request, nobody ever gets a reply. So a repeated request continues the reply that is under way.

A client that leaves early, or after the first token, still cancels its reply at once. Its user pressed a key, and a
local server with one slot should be free for the next prompt. The shortest limit of common clients and proxies is 60 s,
so only a client that waited nearly as long gave up.

Laws: only the same credentials and the same body continue a reply; two requests that are both open never share a
reply, because asking twice for two samples is legitimate; the backend is not read ahead while nobody listens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from hashlib import sha256
from typing import Any, Final, TypeAlias

import msgspec

from callboard.servers.gateway.exchange import ReplyRequest
from callboard.servers.gateway.http_errors import HttpError

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

MIN_AGE: Final = 50.0
"""Seconds after which a client that leaves has given up."""
KEEP_SECONDS: Final = 45.0
"""Seconds to keep a reply for a repeated request. Claude Code pauses up to 40 s between attempts."""
LISTEN_AFTER: Final = 0.01
"""Seconds after which a reply listens for its client to leave. Most short replies have ended by then."""
MAX_REPLIES: Final = 64
"""Maximum abandoned replies of one endpoint."""


class ReplyClient:
    """The client of one reply. Another client can take its place while only signs of life were sent.

    Args:
        receive: Receives the client's messages.
        send: Sends to the client.
        keep: Returns whether the reply is kept when its client leaves before the first token.
    """

    def __init__(self, receive: Receive, send: Send, keep: Callable[[ReplyClient], bool]) -> None:
        task = asyncio.current_task()
        if task is None:
            raise AssertionError
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._keep = keep
        self._sends = [send]
        self._sent: list[Message] | None = []
        """Messages before the first token; None after it."""
        self._returned: asyncio.Event | None = None
        """Set when there is a client again; None before the first one leaves. An event takes 700 bytes of each stream."""
        self._end_service: Callable[[], object] = lambda: None
        """Called when the client of now has left or has the whole reply."""
        self._timer: asyncio.TimerHandle | None = None
        self.is_gone = False
        """True if nobody waits for the reply any more, and the task is cancelled."""
        self._listen(receive)

    @property
    def age(self) -> float:
        """Seconds since the reply began."""
        return self._loop.time() - self._began

    @property
    def is_waiting(self) -> bool:
        """True until the first token."""
        return self._sent is not None

    async def begin(self) -> None:
        """Wait for a client to send the first token to."""
        if self._returned is not None:
            await self._returned.wait()
        self._sent = None

    async def send(self, message: Message) -> None:
        if self._sent is not None:
            self._sent.append(message)
        for send in self._sends:
            await send(message)

    async def serve(self, receive: Receive, send: Send) -> None:
        """Continue a kept reply for another client, until the reply ends or this client leaves too. Raises HttpError."""
        if self._timer is not None:
            self._timer.cancel()
        over = asyncio.Event()
        self._end_service = over.set
        self._listen(receive)
        try:
            for message in self._sent or ():
                await send(message)
            if self._returned is not None and not over.is_set():
                self._sends[1:] = [send]
                self._returned.set()
            await over.wait()
        except BaseException:
            self.give_up()
            raise
        if self._sent == []:
            raise HttpError("internal_error", "the reply failed; send the request again")

    def give_up(self) -> None:
        """Cancel the reply."""
        self.is_gone = True
        self._task.cancel()

    def stop_listening(self) -> None:
        if isinstance(self._listening, asyncio.Future):
            self._listening.remove_done_callback(self._leave)
        self._listening.cancel()

    def close(self) -> None:
        """End a reply that is complete or cancelled."""
        self.stop_listening()
        if self._timer is not None:
            self._timer.cancel()
        self._end_service()

    def _listen(self, receive: Receive) -> None:
        self._listening: asyncio.TimerHandle | asyncio.Future[None] = self._loop.call_later(
            LISTEN_AFTER, self._listen_now, receive
        )

    def _listen_now(self, receive: Receive) -> None:
        self._listening = asyncio.ensure_future(_wait_for_disconnect(receive))
        self._listening.add_done_callback(self._leave)

    def _leave(self, _: object) -> None:
        self._end_service()
        self._returned = self._returned or asyncio.Event()
        self._returned.clear()
        del self._sends[1:]
        if self.is_waiting and self._keep(self):
            self._timer = self._loop.call_later(KEEP_SECONDS, self.give_up)
        else:
            self._returned.set()
            self.give_up()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class AbandonedReplies:
    """The kept replies of one endpoint."""

    def __init__(self) -> None:
        self._replies: dict[tuple[str, ...], ReplyClient] = {}

    def take(self, request: ReplyRequest) -> ReplyClient | None:
        """Return the reply to the same request, if one is kept. The caller continues it."""
        self._replies = {key: each for key, each in self._replies.items() if not each.is_gone}
        return self._replies.pop(_identify(request), None) if self._replies else None

    def keep(self, request: ReplyRequest, release: Callable[[], None], client: ReplyClient) -> bool:
        """Return whether the reply is kept. If so, `release` ends the place that its client had among open requests."""
        if request.memory is not None or client.age < MIN_AGE or len(self._replies) >= MAX_REPLIES:
            return False
        key = _identify(request)
        if (other := self._replies.pop(key, None)) is not None:
            other.give_up()
        self._replies[key] = client
        release()
        return True


def _identify(request: ReplyRequest) -> tuple[str, ...]:
    body = sha256(msgspec.json.encode(request.body)).hexdigest()
    return request.owner, request.token, request.beta, str(request.compat_events), body

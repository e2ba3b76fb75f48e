"""The protocols through which models, clocks, stores and people are reached.

Everything above the I/O line depends on these alone, so it can be run and replayed without any of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from datetime import datetime
from typing import Any, Protocol, TypeAlias

import msgspec

from callboard.core.canisters import Canister, InvocationCanister
from callboard.core.events import Event, RolledBack, Verdict
from callboard.core.request import Request

Clock: TypeAlias = Callable[[], datetime]
"""The time in UTC."""

Identify: TypeAlias = Callable[[int, str], str]
"""An identifier for the invocation of this index and name: unique in a conversation, the same in every replay."""


class Allow(msgspec.Struct, frozen=True):
    """Lets a call run, with `arguments` in the place of the model's own where they are given; the model reads them."""

    arguments: Mapping[str, Any] | None = None


class Deny(msgspec.Struct, frozen=True):
    """Denies a call; the model reads `why`."""

    why: str = ""


Answer: TypeAlias = Verdict | bool | Allow | Deny
"""Whether an invocation may run: "allow", True or an Allow runs it, "defer" leaves it pending, all else denies it."""

Approve: TypeAlias = Callable[[InvocationCanister, str], Awaitable[Answer] | Answer]
"""Asks a person whether an invocation may run; the second argument says why it is asked.

An answer that is no Answer, and an exception, deny the call.
"""


class Model(Protocol):
    """Something that replies. `name` is what it was asked for by, such as `openai:gpt-4o`."""

    @property
    def name(self) -> str:
        """What it was asked for by."""
        ...

    def batches(self, request: Request, /) -> AsyncIterator[list[Event]]:
        """One reply: the events that arrived together, in one list. The last is a ReplyEnded or a ReplyFailed.

        Closing the iterator cancels the reply.
        """
        ...


async def reply_events(model: Model, request: Request) -> AsyncGenerator[Event]:
    """One reply, event by event."""
    async with closing(model.batches(request)) as batches:
        async for events in batches:
            for event in events:
                yield event


def closing(batches: AsyncIterator[list[Event]]) -> AbstractAsyncContextManager[AsyncIterator[list[Event]]]:
    """Closes what a model gave when the `async with` ends: a generator can be closed, another iterator need not."""
    return aclosing(batches) if isinstance(batches, AsyncGenerator) else nullcontext(aiter(batches))


class Store(Protocol):
    """Where a conversation is kept: its canisters, and where it was rolled back. Nothing in it is ever changed.

    What was appended is on disk when `append` returns.
    """

    def append(self, item: Canister | RolledBack, /) -> None:
        """Keep it; it is on disk when this returns."""
        ...


def identify_in_turn(turn: int, source: str = "") -> Identify:
    """Identifiers such as `call_4_0`: the place in the conversation, then the index in the reply.

    `source` keeps apart those who mint for one reply.
    """
    return lambda index, name: f"call_{turn}_{source}{index}"

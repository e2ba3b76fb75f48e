"""The protocols through which models, clocks, stores and people are reached.

Everything above the I/O line depends on these alone, so it can be run and replayed without any of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from callboard.core.canisters import Canister, InvocationCanister, ResultCanister
from callboard.core.events import Event, RolledBack, RunState, Usage, Verdict
from callboard.core.request import Request

Clock: TypeAlias = Callable[[], datetime]
"""The time in UTC."""

Identify: TypeAlias = Callable[[int, str], str]
"""An identifier for the invocation of this index and name: unique in a conversation, the same in every replay."""


class Allow(msgspec.Struct, frozen=True):
    """Lets a call run, with `arguments` in the place of the model's own where they are given; the model reads them.

    `by` and `via` say who answered, and from where, as of ApprovalAnswered.
    """

    arguments: Mapping[str, Any] | None = None
    by: str = ""
    via: str = "Python"


class Deny(msgspec.Struct, frozen=True):
    """Denies a call; the model reads `why`. `by` and `via` are as of Allow."""

    why: str = ""
    by: str = ""
    via: str = "Python"


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


class RunProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an interrupted run goes on with, besides its conversation: what it has used, and what was decided.

    `rounds` counts the replies that came, `calls` those that ran but for the last reply's, `seconds` the time that the
    run was under way. `cost` is that of the tokens whose price is known, `is_priced` whether all are. `state`, `output`
    and `why` are there where the run's end was decided.
    """

    history_length: int = 0
    """Canisters of the conversation before the run."""
    rounds: int = 0
    calls: int = 0
    usage: Usage = Usage()
    cost: float = 0.0
    is_priced: bool = True
    seconds: float = 0.0
    refused: int = 0
    """Replies in a row that the model was asked to make again."""
    empty: int = 0
    """Replies in a row that said nothing."""
    thoughts: int = 0
    """Replies in a row that only thought."""
    is_last: bool = False
    """Whether the reply that is asked for is to answer without any call."""
    shortfall: str = ""
    """Why the run will not have completed, however it goes on."""
    state: RunState | Literal[""] = ""
    output: str = ""
    why: str = ""


class CallJournal(Protocol):
    """The part of a run's `Journal` that is about its calls."""

    def call_key(self, invocation: InvocationCanister, /) -> str:
        """A name of the call that no other call of any run has, and that it has again when it is run again."""
        ...

    async def begin_call(self, invocation: InvocationCanister, idempotent: bool, /) -> ResultCanister | None:
        """Keep that the call is about to run. A result spares running it."""
        ...

    async def end_call(self, invocation: InvocationCanister, result: ResultCanister, /) -> None:
        """Keep the result of a call that ran, as soon as it is there, whatever the others do."""
        ...


class Journal(CallJournal, Protocol):
    """What a run writes down before it acts, so that another process can go on with it.

    What was given is kept for good when a method returns. What a method raises ends the run. `progress` is that of the
    run that goes on, None for a new one.
    """

    @property
    def progress(self) -> RunProgress | None:
        """What was saved last of the run that goes on."""
        ...

    async def save(self, items: Sequence[Canister | RolledBack], progress: RunProgress, /, *, begins: bool) -> None:
        """Keep what the conversation has grown by, in one piece; results that `end_call` got are not among it.

        Where `begins`, nothing but calls of it follows: it may be kept when the first `begin_call` returns.
        """
        ...


def identify_in_turn(turn: int, source: str = "") -> Identify:
    """Identifiers such as `call_4_0`: the place in the conversation, then the index in the reply.

    `source` keeps apart those who mint for one reply.
    """
    return lambda index, name: f"call_{turn}_{source}{index}"

"""The protocols of models, clocks, stores and people.

Everything above the I/O line depends only on these protocols, so it can run and be replayed without real ones.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from callboard.core.canisters import Canister, InvocationCanister, ResultCanister
from callboard.core.events import Event, RolledBack, RunState, Usage, Verdict
from callboard.core.request import Request, ToolDeclaration

Clock: TypeAlias = Callable[[], datetime]
"""Returns the time in UTC."""

Identify: TypeAlias = Callable[[int, str], str]
"""Returns an identifier for an invocation's index and name: unique in the conversation, and equal in every replay."""


class Allow(msgspec.Struct, frozen=True):
    """Allows a call. `arguments` replace the model's own arguments if they are set, and the model is informed.

    `by` and `via` say who answered and from where, as in ApprovalAnswered.
    """

    arguments: Mapping[str, Any] | None = None
    by: str = ""
    via: str = "Python"


class Deny(msgspec.Struct, frozen=True):
    """Denies a call. The model reads `why`. `by` and `via` are as in Allow."""

    why: str = ""
    by: str = ""
    via: str = "Python"


Answer: TypeAlias = Verdict | bool | Allow | Deny
"""Whether an invocation may run: "allow", True or an Allow runs it, "defer" leaves it pending, all else denies it."""

Approve: TypeAlias = Callable[[InvocationCanister, str], Awaitable[Answer] | Answer]
"""Asks a person whether an invocation may run. The second argument is the reason for the question.

An invalid answer or an exception denies the call.
"""


class Model(Protocol):
    """Something that replies. `name` is its requested name, such as `openai:gpt-4o`."""

    @property
    def name(self) -> str:
        """The name that the caller requested."""
        ...

    def batches(self, request: Request, /) -> AsyncIterator[list[Event]]:
        """Yield the reply to `request`, as lists of events that arrived together.

        The last event is a ReplyEnded or a ReplyFailed. Closing the iterator cancels the reply.
        """
        ...


async def reply_events(model: Model, request: Request) -> AsyncGenerator[Event]:
    """Yield the events of the reply of `model` to `request`."""
    async with closing(model.batches(request)) as batches:
        async for events in batches:
            for event in events:
                yield event


def closing(batches: AsyncIterator[list[Event]]) -> AbstractAsyncContextManager[AsyncIterator[list[Event]]]:
    """Return a context manager that closes `batches` at its end. Only generators need to be closed."""
    return aclosing(batches) if isinstance(batches, AsyncGenerator) else nullcontext(aiter(batches))


class Store(Protocol):
    """The store of a conversation: its canisters and its rollbacks. Stored items never change.

    An appended item is on disk when `append` returns.
    """

    def append(self, item: Canister | RolledBack, /) -> None:
        """Store the `item`; it is on disk when this returns."""
        ...


class RunProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of an interrupted run, besides its conversation: its `usage` and its decisions.

    `rounds` counts the replies, `calls` the calls that ran before the last reply, `seconds` the time that the run was
    under way. `cost` is the cost of tokens with known prices, `is_priced` says whether all prices are known. `state`,
    `output` and `why` are set if the run's end was decided.
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
    """Refused replies in a row."""
    empty: int = 0
    """Empty replies in a row."""
    thoughts: int = 0
    """Replies in a row with only thoughts."""
    is_last: bool = False
    """Whether the requested reply has to answer without calls."""
    shortfall: str = ""
    """Why the run will be incomplete, whatever happens next."""
    state: RunState | Literal[""] = ""
    output: str = ""
    why: str = ""


class CallJournal(Protocol):
    """The part of a run's `Journal` about its calls."""

    def call_key(self, invocation: InvocationCanister, /) -> str:
        """Return a unique key of the call. The key stays the same when the call runs again."""
        ...

    async def begin_call(self, invocation: InvocationCanister, idempotent: bool, /) -> ResultCanister | None:
        """Record that the call is about to run. If a result is returned, the call does not run."""
        ...

    async def end_call(self, invocation: InvocationCanister, result: ResultCanister, /) -> None:
        """Record the result of a call as soon as it is there, independently of other calls."""
        ...


class Journal(CallJournal, Protocol):
    """The record that a run writes before it acts, so that another process can resume the run.

    Items are stored permanently when a method returns. An exception from a method ends the run. `progress` is the
    progress of a resumed run, or None for a new run.
    """

    @property
    def progress(self) -> RunProgress | None:
        """The last saved progress of the run that is resumed."""
        ...

    async def save(self, items: Sequence[Canister | RolledBack], progress: RunProgress, /, *, begins: bool) -> None:
        """Save the new `items` of the conversation and the `progress` as one piece, without the results that `end_call`
        got.

        With `begins`, only calls follow; the items may then be saved when the first `begin_call` returns.
        """
        ...

    def declare(self, tools: Sequence[ToolDeclaration], /) -> None:
        """Note the `tools` of the next request. They are saved with the next items."""
        ...


def identify_in_turn(turn: int, source: str = "") -> Identify:
    """Return a function for identifiers such as `call_4_0`: the `turn` of the conversation, then the index in the
    reply.

    `source` separates the identifiers of several sources of calls in one reply.
    """
    return lambda index, name: f"call_{turn}_{source}{index}"

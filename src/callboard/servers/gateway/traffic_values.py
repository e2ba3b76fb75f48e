"""What the board gets of the gateway's traffic, as values that also pass from one worker to another.

Law: every value here can be encoded and decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Protocol

import msgspec

from callboard.core import Canister, ToolDeclaration
from callboard.servers.gateway.failure_labels import FailureLabel

PAGE_SIZE: Final = 50
PROBLEMS: Final[Sequence[str]] = ("failed", "dropped", "repaired", "recovered", "labels")
"""What a filter of the list may ask for."""


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
    """One request in the list."""

    identifier: str
    number: int
    at: float
    front: str
    client: str
    key: str
    model: str
    backend: str
    mode: str = ""
    dialect: str = ""
    wire: str = ""
    end: str
    """`open`, a reason of ReplyEnded, `failed`, `refused` or `left`."""
    why: str = ""
    """Of a failure."""
    status: int
    first_seconds: float | None
    seconds: float
    input: int = 0
    output: int = 0
    dropped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What was repaired, and alerts."""
    repaired: int = 0
    recovered: int = 0
    """Calls that were found in text."""
    labels: tuple[FailureLabel, ...] = ()
    again_of: str = ""
    variant: str = ""

    @property
    def is_open(self) -> bool:
        return self.end == "open"

    @property
    def is_failure(self) -> bool:
        return self.end in {"failed", "refused"}


class ReplyView(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a backend."""

    backend: str
    model: str
    mode: str
    dialect: str
    wire: str
    status: int
    content_type: str
    sent: str
    """The body that the backend was asked with."""
    raw: str
    size: int
    is_cut: bool
    events: tuple[str, ...]
    """Each as a line of JSON."""


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """One request with all that was kept of it."""

    row: RequestRow
    body: str
    body_size: int
    replies: tuple[ReplyView, ...]
    answer: str
    answer_size: int
    can_repeat: bool
    """Whether the conversation was kept, so that it can be asked again and made a test."""


class RowFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests are listed; "" is any. `problem` is `failed`, `dropped`, `repaired`, `recovered`, `labels`."""

    model: str = ""
    backend: str = ""
    end: str = ""
    problem: str = ""
    again_of: str = ""
    """Those that ask this request again."""


class RowPage(msgspec.Struct, frozen=True):
    """Rows, the newest first, and the cursor of those that follow; "" where there are none."""

    rows: tuple[RequestRow, ...]
    cursor: str = ""


class BackendState(msgspec.Struct, frozen=True):
    """A backend as one worker sees it now."""

    worker: str
    name: str
    wire: str
    breaker: str
    failures: int
    """In a row, of all clients."""
    models: tuple[str, ...]


class RepeatOrder(msgspec.Struct, frozen=True, kw_only=True):
    """How a request is asked again; "" is as it was."""

    model: str = ""
    backend: str = ""
    mode: str = ""
    dialect: str = ""

    def __str__(self) -> str:
        return ", ".join([f"{name} {value}" for name, value in msgspec.structs.asdict(self).items() if value])


class KeptReply(msgspec.Struct, frozen=True):
    """What a test is made of: a conversation that ends with a reply, its tools, the reply as a vector of its wire."""

    name: str
    canisters: tuple[Canister, ...]
    tools: tuple[ToolDeclaration, ...] = ()
    vector: dict[str, Any] = {}
    """Empty where there is no one reply, as of a job."""


class KeptTest(msgspec.Struct, frozen=True):
    """A test that was made: a task of `callboard eval` and a vector, each one line of JSON, and where they are."""

    name: str
    task: str
    task_path: str
    vector: str = ""
    vector_path: str = ""


class ModelFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of the log for one model of one backend. Seconds are of those that ended well; None without any."""

    model: str
    backend: str
    count: int
    open: int
    failed: int
    seconds: float | None
    """The median."""
    seconds_high: float | None
    """Nineteen of twenty are faster."""
    first_seconds: float | None
    """The median to the first byte for the client."""
    output: int
    """Tokens."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """What the log says of the gateway as a whole."""

    open: int
    last_minute: int
    """Requests of the log that began within it."""
    count: int
    """Requests of the log."""
    since: float
    """When the oldest of them began, in seconds since 1970."""
    models: tuple[ModelFigures, ...]
    dropped: int
    """Requests of which something was lost on the way."""
    repaired: int
    recovered: int
    """Calls that were found in text."""
    labels: tuple[tuple[str, int], ...]
    """How often each label of a failure was given, the most frequent first."""
    failures: tuple[tuple[str, int], ...]
    """Codes of failed and refused requests, likewise."""
    backends: tuple[BackendState, ...]
    workers: tuple[str, ...]
    missing_workers: int = 0
    """Workers that did not answer."""


class TrafficSource(Protocol):
    """Where the board gets the traffic from: one process, or the workers of a gateway together.

    It is entered as an asynchronous context manager for as long as it is asked.
    """

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None, /
    ) -> None: ...

    async def overview(self) -> Overview: ...

    async def page(self, row_filter: RowFilter, before: str = "", limit: int = PAGE_SIZE) -> RowPage: ...

    async def view(self, identifier: str) -> RequestView: ...

    async def read_as(self, identifier: str, place: int, dialect: str) -> tuple[str, ...]: ...

    async def repeat(self, identifier: str, order: RepeatOrder) -> str: ...

    async def kept_reply(self, identifier: str) -> KeptReply: ...

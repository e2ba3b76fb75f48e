"""What the board gets of the gateway's traffic, as values that MessagePack can encode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from callboard.core import Canister, ToolDeclaration

PAGE_SIZE: Final = 50
PROBLEMS: Final[Sequence[str]] = ("failed", "dropped", "repaired", "recovered")
"""What a filter of the list may ask for."""


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
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
    again_of: str = ""
    variant: str = ""

    @property
    def is_open(self) -> bool:
        return self.end == "open"

    @property
    def is_failure(self) -> bool:
        return self.end in {"failed", "refused"}


class ReplyView(msgspec.Struct, frozen=True, kw_only=True):
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
    row: RequestRow
    body: str
    body_size: int
    replies: tuple[ReplyView, ...]
    answer: str
    can_repeat: bool
    """Whether the conversation was kept, so that it can be asked again and made a test."""


class RowFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests are listed; "" is any. `problem` is one of `PROBLEMS`."""

    model: str = ""
    backend: str = ""
    end: str = ""
    problem: str = ""
    again_of: str = ""
    """Those that ask this request again."""

    def matches(self, row: RequestRow) -> bool:
        named = (
            (self.model, row.model),
            (self.backend, row.backend),
            (self.end, row.end),
            (self.again_of, row.again_of),
        )
        if any(value and value != own for value, own in named):
            return False
        problems = {
            "failed": row.is_failure,
            "dropped": row.dropped,
            "repaired": row.repaired,
            "recovered": row.recovered,
        }
        return not self.problem or bool(problems.get(self.problem))


class RowPage(msgspec.Struct, frozen=True):
    """Rows, the newest first, the cursor of those that follow ("" if there are none), and all models of the log."""

    rows: tuple[RequestRow, ...]
    cursor: str = ""
    models: tuple[str, ...] = ()


class BackendState(msgspec.Struct, frozen=True):
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

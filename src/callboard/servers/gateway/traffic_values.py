"""The gateway's traffic for the board, as values that MessagePack can encode."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from callboard.core import Canister, ToolDeclaration

PAGE_SIZE: Final = 50
PROBLEMS: Final = {"failed": "is_failure", "dropped": "dropped", "repaired": "repaired", "recovered": "recovered"}
"""Problems that a filter of the list can select, and the fields of a row that are true for them."""


_CLIENTS: Final = (
    ("claude-cli", "Claude Code"),
    ("codex", "Codex"),
    ("qwencode", "Qwen Code"),
    ("geminicli", "Gemini CLI"),
    ("opencode", "opencode"),
)
"""Beginnings of the `User-Agent` of coding clients, in lower case, and the names of the clients."""
_MAX_CLIENT: Final = 40


def name_client(user_agent: str) -> str:
    """Return the name of a client for people: the product in its `User-Agent`."""
    known = user_agent[:_MAX_CLIENT].lower()
    product = user_agent.split("/", 1)[0][:_MAX_CLIENT].strip()
    return next((name for prefix, name in _CLIENTS if known.startswith(prefix)), product)


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
    identifier: str
    number: int
    at: float
    front: str
    client: str
    key: str
    question: str = ""
    """First words of the user's last message."""
    model: str
    backend: str
    mode: str = ""
    dialect: str = ""
    wire: str = ""
    end: str
    """`open`, a reason of ReplyEnded, `failed`, `refused` or `left`."""
    why: str = ""
    """Reason of a failure."""
    status: int
    first_seconds: float | None
    seconds: float
    input: int = 0
    output: int = 0
    dropped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Repairs and alerts."""
    repaired: int = 0
    recovered: int = 0
    """Number of calls found in text."""
    session: str = ""
    tools: tuple[str, ...] = ()
    """Names of the called tools, one for each call."""
    failed_calls: int = 0
    token_seconds: float | None = None
    """Seconds to the first text, reasoning or call."""
    cost: float | None = None
    """Cost in US dollars. None if it is not known."""
    again_of: str = ""
    variant: str = ""

    @property
    def client_name(self) -> str:
        return name_client(self.client)

    @property
    def is_open(self) -> bool:
        return self.end == "open"

    @property
    def is_failure(self) -> bool:
        return self.end in {"failed", "refused"}


class ReplyReading(msgspec.Struct, frozen=True):
    """What a dialect reads in a reply: its events, and its canisters as the entries of a job, each a line of JSON."""

    events: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()


class ReplyView(msgspec.Struct, frozen=True, kw_only=True):
    backend: str
    model: str
    mode: str
    dialect: str
    wire: str
    status: int
    content_type: str
    sent: str
    """The body that was sent to the backend."""
    raw: str
    size: int
    is_cut: bool
    reading: ReplyReading


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    row: RequestRow
    body: str
    body_size: int
    replies: tuple[ReplyView, ...]
    answer: str
    can_repeat: bool
    """True if the conversation was kept, so that the request can be repeated or made into a test."""


class RowFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions for the listed requests. "" matches any. `problem` is one of `PROBLEMS`."""

    model: str = ""
    backend: str = ""
    end: str = ""
    client: str = ""
    problem: str = ""
    session: str = ""
    again_of: str = ""
    """Identifier of the request that the listed ones repeat."""

    def matches(self, row: RequestRow) -> bool:
        if self.problem and not (self.problem in PROBLEMS and getattr(row, PROBLEMS[self.problem])):
            return False
        names = {"client": "client_name"}
        fields = {**msgspec.structs.asdict(self), "problem": ""}
        return all(value == getattr(row, names.get(name, name)) for name, value in fields.items() if value)


class RowPage(msgspec.Struct, frozen=True):
    """Rows, newest first, the cursor of the next page ("" if there is none), and all models and clients of the log."""

    rows: tuple[RequestRow, ...]
    cursor: str = ""
    models: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()


class RepeatOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The changes for a repeated request. "" changes nothing."""

    model: str = ""
    backend: str = ""
    mode: str = ""
    dialect: str = ""

    def __str__(self) -> str:
        return ", ".join([f"{name} {value}" for name, value in msgspec.structs.asdict(self).items() if value])


class KeptReply(msgspec.Struct, frozen=True):
    """Material for a test: a conversation that ends with a reply, its tools, and the reply as a vector of its wire."""

    name: str
    canisters: tuple[Canister, ...]
    tools: tuple[ToolDeclaration, ...] = ()
    vector: dict[str, Any] = {}
    """The vector. Empty if there is no single reply, as for a job."""

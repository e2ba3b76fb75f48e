"""The events of a reply and of a run: the vocabulary of wires, dialects, loop and gateway.

Law: an event means the same from every source. In JSON its `type` is its name in snake case.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from callboard.core.canisters import Canister, InvocationCanister, ResultCanister
from callboard.errors import CallerError
from callboard.text.display import display
from callboard.text.truncate import truncate

Offsets: TypeAlias = tuple[int, int]
"""Begin and end in the text of a parser, in characters."""

Ending = Literal["stop", "invocations", "length", "filter", "refusal", "no_call", "retry"]
NoteKind = Literal["recovered", "coerced", "dropped", "repaired", "alert"]
NoteCode = Literal[
    "",
    "quotation",
    "format",
    "failed_call",
    "duplicate",
    "incomplete",
    "hallucinated_result",
    "repetition",
    "extra_call",
    "stopped_call",
    "missed_call",
    "no_thoughts",
    "cut_thought",
]
Place = Literal["wire", "text", "reasoning"]
RunState = Literal["completed", "incomplete", "pending", "failed", "cancelled"]
Verdict = Literal["allow", "deny", "defer"]


class _Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    pass


class ReplyStarted(_Event, frozen=True, tag="reply_started"):
    """The first event of a reply. `identifier` and `model` come from the provider."""

    identifier: str = ""
    model: str = ""


class TextPiece(_Event, frozen=True, tag="text_piece"):
    """The next piece `text` of the model's text, at `offsets`. A reply's pieces, joined, are its text."""

    text: str
    offsets: Offsets | None = None


class ReasoningPiece(_Event, frozen=True, tag="reasoning_piece"):
    """The next piece `text` of the model's reasoning; `opaque` is the provider's form of it, `origin` the model's name.

    `offsets` are its place in the text.
    """

    text: str
    opaque: str = ""
    origin: str = ""
    offsets: Offsets | None = None


class RefusalPiece(_Event, frozen=True, tag="refusal_piece"):
    """The next piece `text` of the model's refusal, at `offsets`."""

    text: str
    offsets: Offsets | None = None


class Logprobs(_Event, frozen=True, tag="logprobs"):
    """The log probabilities of the next `tokens` of the text, or of a refusal (`is_refusal`).

    Each has the form of OpenAI's two wires: `token`, `logprob`, `bytes` and `top_logprobs`. They arrive with the
    tokens, while text that is searched for calls may arrive later.
    """

    tokens: tuple[Mapping[str, Any], ...]
    is_refusal: bool = False


class ReplyExtra(_Event, frozen=True, tag="reply_extra"):
    """Other fields, as `wire` writes them: `fields` of the reply itself, and those of its `choice` and `message`."""

    wire: str
    fields: Mapping[str, Any] = {}
    choice: Mapping[str, Any] = {}
    message: Mapping[str, Any] = {}


class InvocationStarted(_Event, frozen=True, tag="invocation_started"):
    """A call begins. `index` is its position in the reply, `identifier` its identifier, and `name` the tool.

    `known` says whether a tool with that name was declared, `found_in` where the call was found, `offsets` its place in
    the text.
    """

    index: int
    identifier: str
    name: str
    known: bool = True
    offsets: Offsets | None = None
    found_in: Place = "wire"


class ArgumentsPiece(_Event, frozen=True, tag="arguments_piece"):
    """The next piece `json` of the arguments of call `index`. Pieces are only appended.

    `offsets` are its place in the text.
    """

    index: int
    json: str
    offsets: Offsets | None = None


class InvocationEnded(_Event, frozen=True, tag="invocation_ended"):
    """A call is whole: `index`, `identifier` and `name` as at its start.

    `arguments` is None if `raw` is not a JSON object. `quoted_from` names the source of the conversation that a call
    found in text repeats word for word. `offsets` are its place in the text.
    """

    index: int
    identifier: str
    name: str
    arguments: Mapping[str, Any] | None
    raw: str
    offsets: Offsets | None = None
    quoted_from: str = ""


class InvocationIncomplete(_Event, frozen=True, tag="invocation_incomplete"):
    """The reply ended inside the call `index`; `raw` has the arguments so far.

    `identifier`, `name` and `offsets` are as in InvocationEnded, and `why` is the reason for the end.
    """

    index: int
    identifier: str
    name: str
    raw: str
    why: str
    offsets: Offsets | None = None


class Usage(_Event, frozen=True, tag="usage"):
    """Numbers of tokens. `input` includes `cached` and `cache_write`; `output` includes `reasoning`."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    cache_write: int = 0
    """Tokens that the provider wrote to its cache."""
    cache_write_1h: int = 0
    """Those tokens of `cache_write` that are cached for an hour, at their own price."""
    model: str = ""
    """The model that counted the tokens, if one of several answered; empty for a sum."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
            self.cache_write + other.cache_write,
            self.cache_write_1h + other.cache_write_1h,
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage.from_counts({name: getattr(self, name) - getattr(other, name) for name in TOKEN_KINDS})

    @classmethod
    def from_counts(cls, counts: Mapping[str, int]) -> Usage:
        """Return the usage with these `counts` by kind of token."""
        return cls(**{name: counts[name] for name in TOKEN_KINDS if name in counts})  # type: ignore[arg-type]

    def counts(self) -> dict[str, int]:
        """Return the counts by name. Counts of cache writes are included only if there are any."""
        counts = {name: getattr(self, name) for name in TOKEN_KINDS}
        return {name: count for name, count in counts.items() if count or not name.startswith("cache_")}


class Note(_Event, frozen=True, tag="note"):
    """A remark `text` of one `kind` about something that was changed or decided on the way.

    `code` identifies it for programs. `unsent` names the part of a request that could not be sent. `offsets` are the
    place in the text, if it is about a text.
    """

    kind: NoteKind
    text: str
    offsets: Offsets | None = None
    code: NoteCode = ""
    unsent: str = ""


def unsent_note(part: str) -> Note:
    """Return the note about a `part` of a request that cannot be sent."""
    return Note("dropped", f"{part} cannot be sent to this endpoint", unsent=part)


class ReplyEnded(_Event, frozen=True, tag="reply_ended"):
    """The last event of a whole reply, with the `reason` of the end. After `retry` another reply replaces it.

    `length` also ends a reply with a cut call, whatever reason the provider gives. `no_call` ends a reply without the
    requested call.
    """

    reason: Ending


class ReplyFailed(_Event, frozen=True, tag="reply_failed"):
    """The last event of a failed reply. `party` caused the failure; `code` and `message` describe it.

    `excerpt` is a part of the provider's answer. `path` names the server and its answer, and `hint` says what to do, if
    that is known. `retry_after` is the number of seconds after which an overloaded provider wants to be asked again.
    """

    party: str
    code: str
    message: str
    excerpt: str = ""
    path: str = ""
    hint: str = ""
    retry_after: float | None = None


class RoundStarted(_Event, frozen=True, tag="round_started"):
    """The `number`th reply of the run is requested; the first is 1."""

    number: int


class ToolProgress(_Event, frozen=True, tag="tool_progress"):
    """The progress of the call `identifier`: `progress` of `total`, if that is known, and a `message`."""

    identifier: str
    progress: float
    total: float | None = None
    message: str = ""


class ResultReady(_Event, frozen=True, tag="result_ready"):
    """A call has its result, the `canister`: the tool's result, an error, or the reason why it did not run."""

    canister: ResultCanister


class ApprovalAsked(_Event, frozen=True, tag="approval_asked"):
    """A person is asked whether the call `invocation` may run; `why` is the reason."""

    invocation: InvocationCanister
    why: str


class ApprovalAnswered(_Event, frozen=True, eq=False, tag="approval_answered"):
    """The `verdict` about the call `invocation`. `why` is the reason of a denial, `arguments` are edited arguments.

    `failed` says that nobody denied the call: there was no answer, or an invalid one.
    """

    invocation: InvocationCanister
    verdict: Verdict
    why: str = ""
    arguments: Mapping[str, Any] | None = None
    failed: bool = False
    is_question: bool = False
    """True for the answer to a question of the model. The result of the call has its text."""
    by: str = ""
    """Name of the user, session, client or key that answered."""
    via: str = "Python"
    """Face that took the answer: terminal, board, AG-UI, ACP, MCP or Python."""
    timestamp: datetime | None = None
    """Time of the answer, in UTC. It is not part of equality."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not ApprovalAnswered:
            return NotImplemented
        names = [name for name in self.__struct_fields__ if name != "timestamp"]
        return all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]  # arguments are mappings

    @property
    def edits(self) -> list[str]:
        """The changed arguments, such as `cents: 124000 -> 100000`. Each side is JSON, or "nothing"."""
        before, after = self.invocation.arguments or {}, self.arguments
        if after is None:
            return []
        sides = {name: (_encode_side(before, name), _encode_side(after, name)) for name in {**before, **after}}
        return [f"{name}: {old} -> {new}" for name, (old, new) in sides.items() if old != new]

    def describe(self) -> str:
        """Return who answered what, when, from where and with which edits, in one line."""
        if self.failed:
            return f"Denied: {self.why}"
        verb = "Answered" if self.is_question and self.verdict == "allow" else _VERBS[self.verdict]
        by = f" by {display(self.by, 100)}" if self.by else ""
        at = f" at {self.timestamp:%Y-%m-%d %H:%M:%S} UTC" if self.timestamp else ""
        details = "; ".join([*self.edits, *([self.why] if self.why else [])])
        return f"{verb}{by} ({self.via}){at}{f': {details}' if details else ''}"


_VERBS: Final[Mapping[Verdict, str]] = {"allow": "Allowed", "deny": "Denied", "defer": "Left for later"}


def _encode_side(arguments: Mapping[str, Any], name: str) -> str:
    return truncate(msgspec.json.encode(arguments[name]).decode(), 200) if name in arguments else "nothing"


class HandedOver(_Event, frozen=True, tag="handed_over"):
    """The agent with the name `agent` has the conversation from here on."""

    agent: str


class Nested(_Event, frozen=True, tag="nested"):
    """An event of a nested run that a tool started.

    It has the `event`, the invocation's `identifier`, and the tool's `name`.
    """

    identifier: str
    name: str
    event: Event


class RolledBack(_Event, frozen=True, tag="rolled_back"):
    """The conversation is reset to its first `to` canisters."""

    to: int


class RunEnded(_Event, frozen=True, tag="run_ended"):
    """The last event of a run that was not left early, with its `state`.

    `output` is the text of its last reply; `usage` counts the tokens, and `cost` needs prices.
    """

    state: RunState
    output: Any = None
    usage: Usage = Usage()
    cost: float | None = None


TOKEN_KINDS = ("input", "output", "cached", "reasoning", "cache_write", "cache_write_1h")
"""The kinds of tokens that a Usage counts."""

ReplyEvent: TypeAlias = (
    ReplyStarted
    | TextPiece
    | ReasoningPiece
    | RefusalPiece
    | Logprobs
    | ReplyExtra
    | InvocationStarted
    | ArgumentsPiece
    | InvocationEnded
    | InvocationIncomplete
    | Usage
    | Note
    | ReplyEnded
    | ReplyFailed
)
RunEvent: TypeAlias = (
    RoundStarted
    | ToolProgress
    | ResultReady
    | ApprovalAsked
    | ApprovalAnswered
    | HandedOver
    | Nested
    | RolledBack
    | RunEnded
)
Event: TypeAlias = ReplyEvent | RunEvent


# JSON lines: one JSON object per line, in UTF-8, without its line break

_encoder = msgspec.json.Encoder()
_canisters: msgspec.json.Decoder[Canister] = msgspec.json.Decoder(Canister)
_events: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode_line(item: Canister | Event) -> bytes:
    """Return the `item` as one line, without the line break."""
    return _encoder.encode(item)


def decode_canister(line: bytes | str, *, path: str = "") -> Canister:
    """Return the canister of a `line`. Raises CallerError with `path` if the line is not a canister."""
    try:
        return _canisters.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CallerError(f"not a canister: {error}", path=path) from None


def decode_event(line: bytes | str, *, path: str = "") -> Event:
    """Return the event of a `line`. Raises CallerError with `path` if the line is not an event."""
    try:
        return _events.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CallerError(f"not an event: {error}", path=path) from None

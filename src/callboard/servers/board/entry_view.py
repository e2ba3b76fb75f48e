"""The entries of a job as HTML.

`EntryView` turns each entry with visible content into one article. The article is the same in a page
and in a later update. `PieceView` shows the open reply until the reply's entries replace it.

Laws: text from a model, a tool or a user is always escaped within its article. The size of an article is bounded, and
the article says where the rest is.

A text that is a unified diff is shown as lines with their kind: added, removed or unchanged.

Law: no text is lost. The returned lines, joined, are the text without its last line end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from markupsafe import Markup

from callboard.coding.job import ModelChanged, Notice, PhaseEnded, PhaseStarted, PromptSent, Resumed
from callboard.coding.workspace.changed_files import mark_lines
from callboard.core import (
    ApprovalAnswered,
    ApprovalAsked,
    ArgumentsPiece,
    AssistantCanister,
    Canister,
    DocumentCanister,
    Event,
    FileContent,
    HandedOver,
    InvocationCanister,
    InvocationStarted,
    Nested,
    Note,
    PictureContent,
    ReasoningContent,
    ReasoningPiece,
    RefusalContent,
    RefusalPiece,
    ReplyFailed,
    ResultCanister,
    RolledBack,
    RoundStarted,
    RunEnded,
    SupervisorCanister,
    TextPiece,
    TextualContent,
    UserCanister,
)
from callboard.jobs.entries import Item, JobEntry, ReplyTook
from callboard.profiles import format_cost
from callboard.servers.board.templating import format_seconds, format_tokens, render
from callboard.text.display import display, make_visible, strip_controls

_HUNK: Final = re.compile(r"^@@ -\d+(,\d+)? \+\d+(,\d+)? @@", re.MULTILINE)
_BEGIN: Final = re.compile(r"^(diff --git |--- |\*\*\* Begin Patch)", re.MULTILINE)
_KINDS: Final = (
    ("diff --git ", "file"),
    ("*** ", "file"),
    ("+++ ", "file"),
    ("--- ", "file"),
    ("@@", "hunk"),
    ("+", "added"),
    ("-", "removed"),
)


class DiffLine(NamedTuple):
    """A line without its end, and its kind: file, hunk, added, removed, or "" for an unchanged line."""

    kind: str
    text: str


def is_diff(text: str) -> bool:
    """True if a text contains a unified diff or a patch in the form that models are taught."""
    return bool(_BEGIN.search(text[:20_000]) and ("*** Begin Patch" in text[:20_000] or _HUNK.search(text[:40_000])))


def split_diff(text: str) -> Sequence[DiffLine]:
    """Split a diff into lines. Only LF ends a line."""
    return [
        DiffLine(next((kind for begin, kind in _KINDS if (mark or line).startswith(begin)), ""), line)
        for mark, line in mark_lines(text.removesuffix("\n"))
    ]


MAX_SHOWN: Final = 16_000
"""Maximum characters of a text, or of the arguments of a call, in an article."""
MAX_BLOCKS: Final = 100
"""Maximum parts of an article."""
_MAX_TITLE: Final = 200
_MAX_ARGUMENT: Final = 80
_SHORT_JSON: Final = 80
"""Maximum bytes of JSON on one line."""
_ARGUMENT: Final = 20
"""Characters of MAX_SHOWN that each argument uses in addition to its text."""


class EntryBlock(msgspec.Struct):
    """A part of an article: a text, a thought, a call, a result, a note, or the beginning of a round or phase.

    `took` says how long it took and what it cost; `call` is the call of a result.
    """

    kind: str
    title: str
    whole: str = ""
    error: str = ""
    took: str = ""
    call: PendingCall | None = None

    def __post_init__(self) -> None:
        self.title = display(self.title, _MAX_TITLE)

    @property
    def text(self) -> str:
        """The part of the text that is shown."""
        return strip_controls(self.whole[:MAX_SHOWN])

    @property
    def hidden(self) -> int:
        """Number of characters that are not shown."""
        return max(0, len(self.whole) - MAX_SHOWN)

    @property
    def diff(self) -> Sequence[DiffLine]:
        """The lines if the text is a diff, otherwise nothing."""
        text = self.text
        return split_diff(text) if self.kind == "result" and is_diff(text) else ()

    @property
    def arguments(self) -> Sequence[ShownArgument]:
        """The arguments of a call, or nothing if they are not a JSON object."""
        return show_arguments(read_object(self.whole), MAX_SHOWN) if self.kind == "call" else ()


class PendingCall(NamedTuple):
    """A call without a result: its tool, its entry, and the beginning of its first argument."""

    name: str
    number: int
    argument: str


class ShownArgument(msgspec.Struct, frozen=True):
    """An argument of a call: its name, its value as text, and the lines of the value if it is a diff."""

    name: str
    text: str
    lines: Sequence[DiffLine] = ()


def show_arguments(arguments: Mapping[str, Any] | None, room: int | None = None) -> Sequence[ShownArgument]:
    """Return the arguments for a page: texts unchanged, other values as JSON, invisible characters escaped.

    At most `room` characters are shown. None shows all of them, so that a person can decide.
    """
    shown = []
    for name, value in (arguments or {}).items():
        if room is not None and room <= 0:
            break
        # Escaping only makes a text longer, so this many characters are always enough.
        label, text = make_visible(name[:room])[:room], make_visible(_argument_text(value)[:room])[:room]
        if room is not None:
            room -= len(label) + len(text) + _ARGUMENT
        shown.append(ShownArgument(label, text, _argument_lines(name, text)))
    return shown


def _argument_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    text = msgspec.json.encode(value)
    return (text if len(text) <= _SHORT_JSON else msgspec.json.format(text, indent=2)).decode()


def _argument_lines(name: str, text: str) -> Sequence[DiffLine]:
    if name in _SIDES:
        return [DiffLine(_SIDES[name], line) for line in text.split("\n")]
    return split_diff(text) if is_diff(text) else ()


def read_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object in a text, or None if the text is not a JSON object."""
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class EntryView:
    """Turns the entries of a job into articles. Feed it from the first entry of a round.

    Args:
        place: The path of the job's page.
        prefix: Prefix of the ids of articles, for a page with two jobs.
    """

    def __init__(self, place: str, prefix: str = "") -> None:
        self._place = place
        self._prefix = prefix
        self._calls: dict[str, PendingCall] = {}
        self._replied_at: datetime | None = None
        self._prompt = ""
        """The prompt that no canister has repeated yet."""
        self._round = 0

    def feed(self, entry: JobEntry, /) -> list[Markup]:
        """Return the article of an entry, or nothing if the entry has no visible content."""
        blocks = [EntryBlock("step", f"Round {entry.round}")] if entry.round > self._round else []
        self._round = max(self._round, entry.round)
        blocks += self._describe(entry.item, entry.number)
        if (took := entry.took) is not None and blocks and isinstance(entry.item, Canister):
            self._replied_at = entry.item.timestamp
            blocks[-1].took = _describe_reply(took, self._replied_at)
        # Encrypted thoughts have no text, and neither does the placeholder of an agent's instructions.
        blocks = [each for each in blocks if each.text or each.kind not in ("reasoning", "system", "assistant")]
        if not blocks:
            return []
        values = {"place": self._place, "prefix": self._prefix, "number": entry.number, "blocks": blocks[:MAX_BLOCKS]}
        return [render("entry.html", {**values, "more": max(0, len(blocks) - MAX_BLOCKS)})]

    def _describe(self, item: Item, number: int) -> list[EntryBlock]:
        match item:
            case AssistantCanister(content=content):
                return [
                    EntryBlock(*_REPLIES.get(type(each), ("assistant", "Model")), _content_text(each))
                    for each in content
                ]
            case InvocationCanister(identifier=identifier, name=name, raw=raw, arguments=arguments):
                argument = next((str(each) for each in (arguments or {}).values()), "")
                self._calls[identifier] = PendingCall(name, number, display(argument, _MAX_ARGUMENT))
                return [EntryBlock("call", name, raw or msgspec.json.encode(arguments or {}).decode())]
            case ResultCanister(invocation_id=identifier, error=error):
                category, message = (error.category, error.message) if error else ("", "")
                text = "\n".join([_content_text(each) for each in item.content]) or message
                call = self._calls.pop(identifier, None)
                took = _describe_span(self._replied_at, item.timestamp)
                name = call.name if call else ""
                return [EntryBlock("result", name, text, error=category, took=took, call=call)]
            case UserCanister() | DocumentCanister() | SupervisorCanister():
                self._prompt = ""
                kind = "system" if isinstance(item, SupervisorCanister) else "user"
                return [EntryBlock(kind, _TITLES[kind], item.text)]
            case PromptSent(text=text):
                self._prompt = text
            case RoundStarted() if self._prompt:
                text, self._prompt = self._prompt, ""
                return [EntryBlock("user", _TITLES["user"], text)]
            case PhaseStarted(name=name, model=model):
                return [EntryBlock("step", f"Phase {name}{model and f', with {model}'}")]
            case ModelChanged(model=model, why=why):
                return [EntryBlock("step", f"{model} continues", why)]
            case Nested(name=name, event=RunEnded(state=state)):
                return [EntryBlock("note", "Inner run ended", _join_words(name, state))]
            case _ if type(item) in _NOTES:
                title, describe = _NOTES[type(item)]
                return [EntryBlock("note", title, describe(item))]
            case _:
                pass
        return []


class PieceView:
    """Turns the pieces of the open reply into operations on the page. Each entry begins a new view."""

    def __init__(self, name: str) -> None:
        self._name = name
        """Prefix of the ids of the page's elements."""
        self._count = 0
        self._kind: type | None = None
        """Kind of the text that grows."""
        self._runs: dict[str, PieceView] = {}

    def feed(self, event: Event, /) -> list[dict[str, str]]:
        """Return operations: `title` creates the element `id`, `text` is appended to it."""
        match event:
            case TextPiece(text=text) | RefusalPiece(text=text) | ReasoningPiece(text=text) if text:
                begun = []
                if self._kind is not type(event):
                    self._kind = type(event)
                    self._count += 1
                    title = "Reasoning" if isinstance(event, ReasoningPiece) else "Model"
                    begun = [{"id": f"{self._name}-{self._count}", "title": title}]
                return [*begun, {"id": f"{self._name}-{self._count}", "text": strip_controls(text)}]
            case InvocationStarted(index=index, name=name):
                self._kind = None
                return [{"id": f"{self._name}-call-{index}", "title": f"Calls {display(name, _MAX_TITLE)}"}]
            case ArgumentsPiece(index=index, json=text) if text:
                return [{"id": f"{self._name}-call-{index}", "text": strip_controls(text)}]
            case Nested(identifier=identifier, event=inner):
                return self._runs.setdefault(identifier, PieceView(f"{self._name}-{identifier}")).feed(inner)
            case _:
                return []


def _describe_reply(took: ReplyTook, ended_at: datetime | None) -> str:
    tokens = [
        f"{format_tokens(took.usage[name])} {word}"
        for name, word in (("input", "in"), ("output", "out"))
        if took.usage.get(name)
    ]
    parts = [_describe_span(took.began_at, ended_at), ", ".join(tokens), format_cost(took.cost)]
    return " · ".join([each for each in parts if each])


def _describe_span(began_at: datetime | None, ended_at: datetime | None) -> str:
    """Return the seconds between two times, "" if one is not known."""
    if began_at is None or ended_at is None:
        return ""
    return f"{format_seconds(max(0.0, (ended_at - began_at).total_seconds()))} s"


def _content_text(content: Any) -> str:
    """Return the text of a content, or a description of any other content."""
    match content:
        case TextualContent(text=text) | ReasoningContent(text=text) | RefusalContent(text=text):
            return text
        case PictureContent():
            return "[image]"
        case FileContent():
            return "[document]"
        case _:
            return ""


def _join_words(*words: Any) -> str:
    return ": ".join([str(each) for each in words if each])


_TITLES: Final = {"user": "User", "system": "Instructions"}
_REPLIES: Final = {ReasoningContent: ("reasoning", "Reasoning"), RefusalContent: ("refusal", "Model refuses")}
"""Kinds and titles of the contents of a reply that are not its answer."""
_SIDES: Final = {"old": "removed", "old_string": "removed", "new": "added", "new_string": "added"}
"""How the arguments of edits are shown."""
_NOTES: Final[Mapping[type, tuple[str, Callable[[Any], str]]]] = {
    Note: ("Note", lambda event: _join_words(event.kind, event.text)),
    Notice: ("Callboard", lambda step: step.text),
    ApprovalAsked: ("Approval asked", lambda event: _join_words(event.invocation.name, event.why)),
    ApprovalAnswered: ("Approval", lambda event: _join_words(event.invocation.name, event.describe())),
    HandedOver: ("Handed over", lambda event: event.agent),
    RolledBack: ("Rolled back", lambda event: f"to the first {event.to} items of the conversation"),
    ReplyFailed: ("Reply failed", lambda event: _join_words(event.message, event.hint)),
    RunEnded: ("Run ended", lambda event: event.state),
    PhaseEnded: ("Phase ended", lambda step: _join_words(step.name, " ".join(step.missing))),
    Resumed: ("Another process continues", lambda step: ""),
}

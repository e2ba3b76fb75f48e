"""The entries of a job as HTML, by way of AG-UI: what any front-end of that protocol would show, our page shows.

`EntryView` is a Stage: entries in, one article for each that says something out, the same whether it is part of a page or
of what a page is sent later. `PieceView` shows what a reply says while it comes; its entries replace that.

Laws: what was written by a model, a tool or a user is escaped text within its article, and nothing else; an article's
size is bounded, and says where the rest is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
from markupsafe import Markup

from callboard.core import Event, ResultCanister
from callboard.jobs.entries import JobEntry
from callboard.servers.agui import AguiEncoder, AguiEvent, events
from callboard.servers.board.diff import DiffLine, is_diff, split_diff
from callboard.servers.board.templating import render
from callboard.text.display import display, make_visible, strip_controls

MAX_SHOWN: Final = 16_000
"""Characters of a text, or of the arguments of a call, that an article shows."""
MAX_BLOCKS: Final = 100
"""Parts of an article."""
_MAX_TITLE: Final = 200
_ARGUMENT: Final = 20
"""What an argument takes of MAX_SHOWN besides its characters."""


class EntryBlock:
    """A part of an article: a text, a thought, a call, a result, a note, or the beginning of a round or phase."""

    __slots__ = ("error", "identifier", "kind", "parts", "title")

    def __init__(self, kind: str, title: str, text: str = "", *, identifier: str = "", error: str = "") -> None:
        self.kind = kind
        self.title = display(title, _MAX_TITLE)
        self.identifier = identifier
        self.error = error
        self.parts = [text]

    @property
    def text(self) -> str:
        """As far as it is shown."""
        return strip_controls("".join(self.parts)[:MAX_SHOWN])

    @property
    def hidden(self) -> int:
        """Characters that are not shown."""
        return max(0, sum(map(len, self.parts)) - MAX_SHOWN)

    @property
    def diff(self) -> Sequence[DiffLine]:
        """The lines, where the text is a diff."""
        text = self.text
        return split_diff(text) if self.kind == "result" and is_diff(text) else ()

    @property
    def arguments(self) -> Sequence[ShownArgument]:
        """Those of a call; nothing where they are no JSON object."""
        return show_arguments(read_object("".join(self.parts)), MAX_SHOWN) if self.kind == "call" else ()


class ShownArgument(msgspec.Struct, frozen=True):
    """An argument of a call: its name, its value as text, and the value's lines where it is a diff."""

    name: str
    text: str
    lines: Sequence[DiffLine] = ()


def show_arguments(arguments: Mapping[str, Any] | None, room: int | None = None) -> Sequence[ShownArgument]:
    """The arguments as a page shows them: texts as they are, anything else as JSON, with all that is invisible spelled out.

    No more than `room` characters are shown; None shows all, for a person to decide on.
    """
    shown = []
    for name, value in (arguments or {}).items():
        if room is not None and room <= 0:
            break
        # What is spelled out is longer than it was, so this beginning is always enough.
        label, text = make_visible(name[:room])[:room], make_visible(_argument_text(value)[:room])[:room]
        if room is not None:
            room -= len(label) + len(text) + _ARGUMENT
        shown.append(ShownArgument(label, text, _argument_lines(name, text)))
    return shown


def _argument_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _argument_lines(name: str, text: str) -> Sequence[DiffLine]:
    if name in _SIDES:
        return [DiffLine(_SIDES[name], line) for line in text.split("\n")]
    return split_diff(text) if is_diff(text) else ()


def read_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is, None where it is none."""
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class EntryView:
    """A Stage from the entries of a job to articles. It is fed from the first entry of a round on.

    Args:
        job: The id of the job.
        place: The path of the job's page.
    """

    def __init__(self, job: str, place: str) -> None:
        self._place = place
        self._encoder = AguiEncoder(job, job)
        self._blocks: list[EntryBlock] = []
        self._open: dict[str, EntryBlock] = {}
        self._names: dict[str, str] = {}
        """The names of the calls that were seen."""
        self._round = 0

    def feed(self, entry: JobEntry, /) -> list[Markup]:
        """The article of an entry; nothing for one that says nothing to a person."""
        self._blocks = []
        self._open = {}
        if entry.round > self._round:
            self._round = entry.round
            self._add(EntryBlock("step", f"Round {entry.round}"))
        item = entry.item
        for event in self._encoder.feed(entry):
            handler = self._HANDLERS.get(type(event))
            if handler is not None:
                handler(self, event)
        if isinstance(item, ResultCanister):
            self._complete_result(item)
        # A thought that the provider keeps to itself has no text, and neither has the place of an agent's instructions.
        self._blocks = [each for each in self._blocks if each.text or each.kind not in ("reasoning", "system")]
        if not self._blocks:
            return []
        values = {"place": self._place, "number": entry.number}
        blocks, more = self._blocks[:MAX_BLOCKS], max(0, len(self._blocks) - MAX_BLOCKS)
        return [render("entry.html", {**values, "blocks": blocks, "more": more})]

    def finish(self, why: str = "stop", /) -> list[Markup]:
        """Nothing is held."""
        return []

    def _complete_result(self, result: ResultCanister) -> None:
        """Show a result whose call was not seen, and the message of an error that has no text."""
        if not any(block.kind == "result" for block in self._blocks):
            self._add(EntryBlock("result", "", result.text, error=result.error.category if result.error else ""))
        if result.error and not self._blocks[-1].text:
            self._blocks[-1].parts.append(result.error.message)

    def _add(self, block: EntryBlock) -> None:
        self._blocks.append(block)
        if block.identifier:
            self._open[block.identifier] = block

    def _append(self, identifier: str, text: str) -> None:
        if identifier in self._open:
            self._open[identifier].parts.append(text)

    def _on_text(self, event: events.TextMessageStartEvent) -> None:
        refused = (event.metadata or {}).get("callboard", {}).get("refusal")
        kind = "refusal" if refused else event.role
        self._add(EntryBlock(kind, _TITLES.get(kind, event.role), identifier=event.message_id))

    def _on_reasoning(self, event: events.ReasoningMessageStartEvent) -> None:
        self._add(EntryBlock("reasoning", "Reasoning", identifier=event.message_id))

    def _on_content(self, event: events.TextMessageContentEvent | events.ReasoningMessageContentEvent) -> None:
        self._append(event.message_id, event.delta)

    def _on_call(self, event: events.ToolCallStartEvent) -> None:
        self._names[event.tool_call_id] = event.tool_call_name
        self._add(EntryBlock("call", event.tool_call_name, identifier=event.tool_call_id))

    def _on_arguments(self, event: events.ToolCallArgsEvent) -> None:
        self._append(event.tool_call_id, event.delta)

    def _on_result(self, event: events.ToolCallResultEvent) -> None:
        error = str((event.metadata or {}).get("callboard", {}).get("error", ""))
        name = self._names.pop(event.tool_call_id, "")
        self._add(EntryBlock("result", name, _content_text(event.content), error=error))

    def _on_step(self, event: events.StepStartedEvent) -> None:
        # Rounds are counted through the job, as the list of rounds does; each phase begins anew.
        if not event.step_name.startswith("round "):
            self._add(EntryBlock("step", event.step_name.capitalize()))

    def _on_custom(self, event: events.CustomEvent) -> None:
        row = _NOTES.get(event.name)
        if row is not None:
            title, describe = row
            self._add(EntryBlock("note", title, describe(event.value)))

    def _on_run(self, event: events.SubagentStartedEvent) -> None:
        self._add(EntryBlock("note", "A run within this one", event.name))

    def _on_run_error(self, event: events.SubagentErrorEvent) -> None:
        self._add(EntryBlock("note", "The run within this one", event.message))

    _HANDLERS: ClassVar[Mapping[type[AguiEvent], Callable[[Any, Any], None]]] = {
        events.TextMessageStartEvent: _on_text,
        events.TextMessageContentEvent: _on_content,
        events.ReasoningMessageStartEvent: _on_reasoning,
        events.ReasoningMessageContentEvent: _on_content,
        events.ToolCallStartEvent: _on_call,
        events.ToolCallArgsEvent: _on_arguments,
        events.ToolCallResultEvent: _on_result,
        events.StepStartedEvent: _on_step,
        events.CustomEvent: _on_custom,
        events.SubagentStartedEvent: _on_run,
        events.SubagentErrorEvent: _on_run_error,
    }


class PieceView:
    """What is said just now: pieces in, operations on the page out. Behind each entry another one goes on."""

    def __init__(self, job: str) -> None:
        self._encoder = AguiEncoder(job, f"{job}-live")

    def feed(self, event: Event, /) -> list[dict[str, str]]:
        """Operations: `title` begins an element `id`, `text` is appended to it."""
        operations: list[dict[str, str]] = []
        for each in self._encoder.feed(event):
            match each:
                case events.TextMessageStartEvent(message_id=name):
                    operations.append({"id": name, "title": _TITLES["assistant"]})
                case events.ReasoningMessageStartEvent(message_id=name):
                    operations.append({"id": name, "title": "Reasoning"})
                case events.ToolCallStartEvent(tool_call_id=name, tool_call_name=tool):
                    operations.append({"id": name, "title": f"Calls {display(tool, _MAX_TITLE)}"})
                case events.TextMessageContentEvent(message_id=name, delta=text):
                    operations.append({"id": name, "text": strip_controls(text)})
                case events.ReasoningMessageContentEvent(message_id=name, delta=text):
                    operations.append({"id": name, "text": strip_controls(text)})
                case events.ToolCallArgsEvent(tool_call_id=name, delta=text):
                    operations.append({"id": name, "text": strip_controls(text)})
                case _:
                    pass
        return operations


def _content_text(content: Any) -> str:
    """The texts of a result's content; of another part what it is."""
    if isinstance(content, str):
        return content
    return "\n".join([part.get("text") or f"[{part.get('type', 'content')}]" for part in content])


def _join_words(*words: Any) -> str:
    return ": ".join([str(each) for each in words if each])


_TITLES: Final = {"assistant": "Model", "user": "User", "system": "Instructions", "refusal": "Model refuses"}
_SIDES: Final = {"old": "removed", "old_string": "removed", "new": "added", "new_string": "added"}
"""How the arguments of edits are seen."""
_NOTES: Final[Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    "callboard.note": ("Note", lambda value: _join_words(value["kind"], value["text"])),
    "callboard.notice": ("Callboard", lambda value: value["text"]),
    "callboard.approval_asked": ("Approval asked", lambda value: _join_words(value["name"], value["why"])),
    "callboard.approval_answered": ("Approval", lambda value: _join_words(value["name"], value["text"])),
    "callboard.handed_over": ("Handed over", lambda value: value["agent"]),
    "callboard.rolled_back": ("Rolled back", lambda value: f"to the first {value['to']} items of the conversation"),
    "callboard.reply_failed": ("The reply failed", lambda value: _join_words(value["message"], value["hint"])),
    "callboard.run_ended": ("The run ended", lambda value: value["state"]),
    "callboard.phase_ended": ("The phase ended", lambda value: _join_words(value["name"], "; ".join(value["missing"]))),
    "callboard.resumed": ("Another process goes on", lambda value: ""),
}
"""What is shown of AG-UI's custom events; the others say what the page shows elsewhere."""

"""What becomes of calls that repeat a source.

`QuotationCheck` stands between a dialect's parser and what follows it. A call that stands word for word in a source of
the conversation is either marked (`InvocationEnded.quoted_from`), so that whoever runs it can ask first, or it stays
the text that it was. Either way a Note of kind alert names the source.

Where calls become text, a call that may repeat a source is held until that is known, because a client acts on what it
was given. Most calls are not held: no source has the tool's name. One that is held goes on as soon as what was written
of it stands in no source.

Laws: what is held goes on in its order; what passes as text is what the model wrote, to the letter; without calls the
text passes at once, and only a call makes the sources be read.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from callboard.core import (
    ArgumentsPiece,
    Event,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Note,
    ReasoningPiece,
    TextPiece,
)
from callboard.modes.quotations import Quotation, may_continue, may_repeat
from callboard.modes.sources import Sources
from callboard.text.display import replace_invisible

_FIRST_LOOK = 512
"""Characters of arguments after which a held call is looked at; then each time they have doubled."""
_MAX_NAME = 80


class QuotationCheck:
    """Feeds on a parser's events and on the text that they came from.

    `to_text` says that a quotation becomes text, as a `spoken`; without the `drops`, tokens that mean nothing.
    """

    def __init__(
        self,
        sources: Sources,
        *,
        to_text: bool,
        spoken: type[TextPiece | ReasoningPiece] = TextPiece,
        drops: Sequence[str] = (),
    ) -> None:
        self._sources = sources
        self._to_text = to_text
        self._spoken = spoken
        self._drops = drops
        self._text: list[str] = []
        """What was heard from `_begin` to `_end`."""
        self._begin = 0
        self._end = 0
        self._open: InvocationStarted | None = None
        self._raw: list[str] = []
        self._size = 0
        self._next_look = 0
        self._held: list[Event] = []
        self._written = ""
        """The text of the last call that had one: a block of commands makes several."""
        self._passed = False
        """Whether it was passed as text."""
        self._rest: int | None = None
        """Where the text begins that belongs to a quotation and is not given yet, such as what closes it."""

    def hear(self, text: str) -> None:
        """The next of the text, before the events that come of it."""
        self._text.append(text)
        self._end += len(text)

    def feed(self, events: list[Event]) -> list[Event]:
        if self._open is None and self._rest is None and len(events) == 1 and type(events[0]) is self._spoken:
            # Most of what is fed is text and stays one piece of it.
            if events[0].offsets is not None:
                self._forget(events[0].offsets[1])
            return events
        outputs: list[Event] = []
        for event in events:
            offsets = getattr(event, "offsets", None)
            if self._rest is not None and offsets is not None:
                outputs += self._give_rest(offsets[0])
            match event:
                case InvocationStarted():
                    outputs += self._start_call(event)
                case ArgumentsPiece() if self._open is not None:
                    outputs += self._continue_call(event)
                case InvocationEnded() | InvocationIncomplete() if self._open is not None:
                    outputs += self._end_call(event)
                case _ if self._held:
                    self._held.append(event)
                case _:
                    outputs.append(event)
            if offsets is not None and self._open is None and self._rest is None:
                self._forget(offsets[1])
        return outputs

    def finish(self) -> list[Event]:
        """What is left when the text is at its end. Another may follow."""
        held, self._held = self._held, []
        self._open = None
        events = [*held, *(self._give_rest(self._end) if self._rest is not None else ())]
        self._forget(self._end)
        return events

    def _start_call(self, event: InvocationStarted) -> list[Event]:
        self._open = event
        self._raw = []
        self._size = 0
        self._next_look = _FIRST_LOOK
        if self._to_text and may_repeat(event.name, self._text_at(event.offsets), self._sources):
            self._held = [event]
            return []
        return [event]

    def _continue_call(self, event: ArgumentsPiece) -> list[Event]:
        if not self._held:
            return [event]
        self._held.append(event)
        self._raw.append(event.json)
        self._size += len(event.json)
        if self._size < self._next_look:
            return []
        self._next_look = 2 * self._size
        if may_continue("".join(self._raw), self._sources):
            return []
        held, self._held = self._held, []
        return held

    def _end_call(self, event: InvocationEnded | InvocationIncomplete) -> list[Event]:
        self._open = None
        held, self._held = self._held, []
        if self._to_text and not held:
            return [event]
        if own := self._text_at(event.offsets):
            self._written, self._passed = own, False
        arguments = event.arguments if isinstance(event, InvocationEnded) else None
        source = Quotation(event.name, arguments, event.raw, self._written).source(self._sources)
        if not source:
            return [*held, event]
        name = replace_invisible(event.name[:_MAX_NAME])
        text = f"a call of {name} stands word for word in {source}"
        if not self._to_text:
            if isinstance(event, InvocationIncomplete):
                return [event]
            return [Note("alert", text, event.offsets, "quotation"), replace(event, quoted_from=source)]
        self._rest = None if event.offsets is None else event.offsets[1]
        note = Note("alert", f"{text}: it passes as text", event.offsets, "quotation")
        if self._passed:
            return [note]
        self._passed = True
        return [note, self._spoken(self._written, offsets=event.offsets)]

    def _give_rest(self, end: int) -> list[Event]:
        begin, self._rest = self._rest, None
        text = self._text_at((begin or 0, end))
        for each in self._drops:
            text = text.replace(each, "")
        return [self._spoken(text, offsets=(begin or 0, end))] if text else []

    def _text_at(self, offsets: tuple[int, int] | None) -> str:
        if offsets is None:
            return ""
        if len(self._text) > 1:
            self._text = ["".join(self._text)]
        return self._text[0][max(0, offsets[0] - self._begin) : offsets[1] - self._begin] if self._text else ""

    def _forget(self, end: int) -> None:
        """What ends there was given."""
        if end >= self._end:
            self._text = []
        elif end > self._begin:
            self._text = ["".join(self._text)[end - self._begin :]]
        self._begin = max(self._begin, min(end, self._end))

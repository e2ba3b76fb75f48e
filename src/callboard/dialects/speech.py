"""A reply with what shows while it is read: which dialect it is in, and which of its frames are open.

Owns what reading text, frames and fences share. Knows nothing of how they read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from callboard.core import Event
from callboard.dialects.call_builder import Calls, OpenCall
from callboard.dialects.dialect import Dialect
from callboard.dialects.markers import Framed, layout
from callboard.dialects.parse_state import Reply
from callboard.dialects.surroundings import Behind, Place, Surroundings
from callboard.dialects.text_buffer import Reading, Refused, TooLong


class Quoted(Exception):  # no error: it is how a reader learns it
    """What stands behind a call shows that it is a quotation. `end` is the offset up to which that is seen."""

    def __init__(self, end: int) -> None:
        super().__init__(end)
        self.end = end


class Weighing:
    """A call that may be a quotation: what stands behind it says. `over` says that it was decided to be a call."""

    def __init__(self, place: Place, count: int, surroundings: Surroundings) -> None:
        self.place = place
        self.surroundings = surroundings
        """What was said before, and since, as it stands where the call is one."""
        self.count = count
        """How many calls there were before it."""
        self.behind = Behind(place)
        self.fenced: list[tuple[str, int]] = []
        """What stands behind it in a fence that is not closed."""
        self.over = False


class Speech(Reply):
    """`layout` has the markers of the dialect that is spoken, as far as that is known."""

    __slots__ = (
        "broken",
        "candidate",
        "certain",
        "expected",
        "fenced",
        "framed",
        "fresh",
        "idle",
        "layout",
        "surroundings",
        "trial",
        "tried",
        "weighing",
    )

    def __init__(self, dialect: Dialect, calls: Calls) -> None:
        super().__init__(calls)
        self.layout = layout(dialect)
        self.candidate = dialect
        """The dialect that a call shows to be spoken."""
        self.expected: set[str] = set()
        """What closes the frames that are open."""
        self.broken = False
        """Whether what follows the last call in its list was none."""
        self.fenced = False
        """Whether the call that was read stands in a fence inside its frame."""
        self.trial: Sequence[str] = ()
        """What closes the reasoning in which a call is being read, if that is one."""
        self.tried = 0
        """How many calls there were before it."""
        self.certain: list[Event] | None = None
        """The events before it."""
        self.framed: Framed | None = None
        """The frame of the last call, with the dialect whose it is."""
        self.fresh = False
        """Whether the next call is the first of its frame: where that stands says whether it is a quotation."""
        self.weighing: Weighing | None = None
        """The call that is being read, if it may be a quotation."""
        self.surroundings = Surroundings(self.layout.tags)
        """What was said before."""
        self.reader.hears = self.surroundings.feed
        self.idle: re.Pattern[str] | None = None
        """Where nothing is held: what a text has to hold to be more than a text."""

    def open(self, name: str, identifier: str = "", *, declared: bool = False, end: int | None = None) -> OpenCall:
        if declared and not self.calls.declared(name):
            raise Refused
        if self.fresh:
            self._weigh()
        call = super().open(name, identifier, declared=declared, end=end)
        self.decide()
        return call

    def begin_message(self) -> None:
        self.decide()
        self.said.end_line()

    def decide(self) -> None:
        if self.candidate is not self.layout.dialect:
            self.layout = layout(self.candidate)

    def _weigh(self) -> None:
        """A call is about to be opened: has it weighed where it may be a quotation.

        Raises Refused where it is one and nothing else is asked: in reasoning, which is read on trial already, and
        while another is weighed.
        """
        place = self._place()
        if (self.trial and (place.quoted or place.closers)) or (self.weighing is not None and place.quoted):
            raise Refused
        self.fresh = False
        if place.plain or self.trial or self.weighing is not None:
            return
        reader = self.reader
        self.certain, reader.out = reader.out, []
        self.weighing = Weighing(place, self.calls.count, self.surroundings.copy())
        reader.record_pending()
        reader.hears = self._hear

    def _place(self) -> Place:
        unsaid = self.reader.unsaid
        begin = len(unsaid) - len(unsaid.lstrip())
        place = self.said.place(unsaid[begin : begin + 1], unsaid[:begin])
        explained = self.framed is not None and self.framed[1].explained
        # Words behind a call in a fence mean nothing: models that write one explain it.
        return place._replace(words=0, words_in_line=0) if self.fence or (explained and place.alone) else place

    def idly(self, starts: re.Pattern[str]) -> Reading[None]:
        """Says all there is, and waits for more; what does not hold `starts` is said without being read."""
        reader = self.reader
        reader.at = len(reader.text)
        if not reader.holding:
            reader.say()
            if not self.trial and self.weighing is None:
                self.idle = starts
        try:
            yield
        finally:
            self.idle = None

    def _hear(self, text: str, begin: int) -> None:
        """What is said while a call is weighed. Raises Quoted where it shows that the call was a quotation."""
        weighing = self.weighing
        if weighing is None:
            raise AssertionError
        weighing.surroundings.feed(text, begin)
        if weighing.surroundings.muted:
            weighing.fenced.append((text, begin))
            return
        weighing.fenced.clear()
        if (end := weighing.behind.feed(text, begin)) is not None:
            raise Quoted(end)

    def end_of_quotation(self) -> int | None:
        """How far what is weighed is a quotation, at the end of the text; None if it is a call."""
        weighing, reader = self.weighing, self.reader
        if weighing is None or self.calls.count == weighing.count:
            return None
        try:
            reader.at = len(reader.text)
            reader.say()
        except Quoted as quoted:
            return quoted.end
        if weighing.place.quoted or (self.why != "stop" and weighing.place.closers):
            return reader.offset
        # A fence that is never closed may be none.
        found = [weighing.behind.feed(text, begin) for text, begin in weighing.fenced]
        return next((end for end in (*found, weighing.behind.finish()) if end is not None), None)

    @property
    def said(self) -> Surroundings:
        """What was said up to here, by what is known so far."""
        return self.surroundings if self.weighing is None else self.weighing.surroundings

    def released(self) -> bool:
        """Whether what is held too long for being weighed is a call: nothing but words could make it a quotation."""
        if (
            self.weighing is None
            or self.weighing.place.closers
            or self.weighing.place.quoted
            or self.reader.overdue is not TooLong
        ):
            return False
        self.release()
        return True

    def release(self) -> None:
        """What was weighed is what it seems."""
        weighing, reader = self.weighing, self.reader
        if weighing is None:
            return
        self.weigh_no_longer(weighing.surroundings)
        reader.recorded()
        if self.certain is not None:
            self.certain += reader.out
            reader.out, self.certain = self.certain, None

    def weigh_no_longer(self, surroundings: Surroundings) -> None:
        """It is decided, and this is what was said."""
        if self.weighing is not None:
            self.weighing.over = True
        self.weighing = None
        self.surroundings = surroundings
        self.reader.hears = surroundings.feed

    def events(self) -> list[Event]:
        """Those that are certain, once."""
        reader = self.reader
        if self.call is not None:
            self.call.flush(reader.out)
        if self.certain is not None:
            events, self.certain = self.certain, []
        else:
            events, reader.out = reader.out, []
        return events

"""A thought of two lines before a call: which tool, and with which values.

A small model that names the tool before it writes the call chooses it better, and invents fewer names; one that thinks
for longer gets worse (arXiv 2604.02155: 16 to 32 tokens are best). So the thought is a form, `Function: NAME-or-none` and
`Key args: ...`, which the instructions ask for. `ThoughtFilter` takes it out of the text: it is reasoning, and a client
sees only what follows.

Laws: what is no thought passes unchanged; no more than the two lines, and some white space before each, are held back;
how the text is cut changes nothing.
"""

from __future__ import annotations

from typing import Final

from callboard.core import Event, Logprobs, Note, ReasoningPiece, ReplyExtra, ReplyStarted, TextPiece, Usage, Why
from callboard.dialects.thought_form import NAMES, NO_FUNCTION, VALUES

_LONGEST: Final = 1_000
"""Characters of a line of the form, and of the white space before it; a longer one is text."""
_BESIDE = (ReplyStarted, ReasoningPiece, Usage, Note, Logprobs, ReplyExtra)
"""What says nothing about the place in the text."""


class ThoughtFilter:
    """A Stage: the events of a reply in, the same with the form as reasoning out."""

    def __init__(self) -> None:
        self._held = ""
        self._awaits: str = NAMES
        """How the next line begins if the form goes on; "" when the text has begun."""

    def feed(self, event: Event, /) -> list[Event]:
        if isinstance(event, TextPiece) and self._awaits:
            self._held += event.text
            return self._read()
        if isinstance(event, _BESIDE):
            return [event]
        return [*self.finish(), event]

    def finish(self, why: Why = "stop", /) -> list[Event]:
        is_line = bool(self._awaits) and self._held.lstrip().startswith(self._awaits)
        return self._release(ReasoningPiece if is_line else TextPiece)

    def _read(self) -> list[Event]:
        """What is known of the text that is held."""
        thoughts: list[Event] = []
        while self._awaits:
            text = self._held.lstrip()
            line, ended, rest = text.partition("\n")
            fits = len(line) <= _LONGEST and len(self._held) - len(text) <= _LONGEST
            begins = line.startswith(self._awaits)
            if not ended and fits and (begins or self._awaits.startswith(line)):
                return thoughts
            if not ended or not fits or not begins:
                break
            thoughts.append(ReasoningPiece(f"{line}\n"))
            self._held = rest
            is_last = self._awaits == VALUES or line.removeprefix(NAMES).strip() == NO_FUNCTION
            self._awaits = "" if is_last else VALUES
        return [*thoughts, *self._release(TextPiece)]

    def _release(self, kind: type[TextPiece | ReasoningPiece]) -> list[Event]:
        held, self._held, self._awaits = self._held, "", ""
        return [kind(held)] if held else []

"""How a call is spelled in text, as data.

Owns what a row of the catalogue is made of. Knows nothing of how text is read: a dialect differs from
another by its row alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import msgspec

from callboard.dialects.grammar import Grammar


class Reasoning(msgspec.Struct, frozen=True):
    """What opens reasoning, and what closes it."""

    opens: str
    closes: str


class CallFrame(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Where calls stand, and the bodies that they may have there, the first as it is spelled.

    `each` is what is spelled around one call, `section` around all of them, with `{call}` and `{calls}` in
    their places; the words of these two, without brackets, open and close the frame, unless `opens` and
    `closes` say otherwise. One of the openers is enough, and a closer may be missing. A frame without
    openers is opened by its body.
    """

    grammars: tuple[Grammar, ...]
    each: str = "{call}"
    section: str = "{calls}"
    join: str = "\n"
    opens: tuple[str, ...] | None = None
    closes: tuple[str, ...] | None = None
    at_line_start: bool = False
    """It opens at the beginning of a line only."""
    declared_only: bool = False
    """Only the name of a declared tool makes a call; any other leaves the text a text."""
    allows_explanation: bool = False
    """Models that write it go on in words behind it: these do not show that the call was only quoted."""
    drops_rest: bool = False
    """What stands in it behind a call and is none is told in a Note, not said."""

    @cached_property
    def openers(self) -> tuple[str, ...]:
        if self.opens is not None:
            return self.opens
        return _words(self.section.partition("{calls}")[0]) + _words(self.each.partition("{call}")[0])

    @cached_property
    def closers(self) -> tuple[str, ...]:
        if self.closes is not None:
            return self.closes
        return _words(self.each.partition("{call}")[2]) + _words(self.section.partition("{calls}")[2])


class Fence(msgspec.Struct, frozen=True, eq=False):
    """Calls in a fence of three or more backticks or tildes, with one of these words behind them."""

    languages: frozenset[str]
    frame: CallFrame


class Dialect(msgspec.Struct, frozen=True, eq=False, dict=True):
    """One way to spell calls.

    `drops` are tokens that mean nothing to a reader. `template` are words of which a chat template holds one
    set if its model speaks the dialect. `result` spells a call's result with `{name}`, `{identifier}` and `{content}`, `manner` tells a model how to call; "" leaves them to
    the way that serves most models.
    """

    name: str
    summary: str
    frames: tuple[CallFrame, ...]
    fences: tuple[Fence, ...] = ()
    prefilled: CallFrame | None = None
    """What a reply may begin with whose prompt ended with a marker."""
    prefill_identifies: bool = False
    """What is `prompted` shows which dialect is spoken."""
    answer_markers: tuple[str, ...] = ()
    """Those of `drops` that begin the answer, so that no reasoning goes on behind them."""
    reasoning: tuple[Reasoning, ...] = (Reasoning("<think>", "</think>"),)
    ignored: tuple[str, ...] = ()
    template_words: tuple[tuple[str, ...], ...] = ()
    result: str = ""
    instructions: str = ""
    is_only_format: bool = False
    """It is the only way to speak: text, too, is spelled in it, so that it is watched for where no tool may be called."""

    alternatives: tuple[Dialect, ...] = ()
    """The dialects of which the first to make a call is spoken from there on."""

    rendered_as: CallFrame | None = None
    """How calls are spelled, where that is not its first frame."""

    def covers(self, dialect: Dialect) -> bool:
        """Whether it reads all that the other spells."""
        return any(each is dialect for each in (self, *self.alternatives))

    @property
    def render_frame(self) -> CallFrame:
        return self.rendered_as or self.frames[0]

    def all_frames(self) -> Iterator[tuple[Dialect, CallFrame]]:
        """The frames, each with the dialect whose it is."""
        for dialect in (self, *self.alternatives):
            for frame in dialect.frames:
                yield dialect, frame

    def all_prefilled(self) -> Iterator[tuple[Dialect, CallFrame]]:
        """The frames that a reply may begin in, each with the dialect whose it is."""
        for dialect in (self, *self.alternatives):
            if dialect.prefilled is not None and (dialect is self or dialect.prefill_identifies):
                yield dialect, dialect.prefilled

    def all_fences(self) -> Iterator[tuple[Dialect, Fence]]:
        for dialect in (self, *self.alternatives):
            for fence in dialect.fences:
                yield dialect, fence


def _words(part: str) -> tuple[str, ...]:
    """`[TOOL_CALLS]` of `[TOOL_CALLS] [`."""
    words = (word.rstrip("[").lstrip("]").replace("{{", "{").replace("}}", "}") for word in part.split())
    return tuple([word for word in words if word.strip("[]{},")])

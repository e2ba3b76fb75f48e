"""How models write calls in text, as data: a row of the catalogue, made of frames, which hold grammars.

A dialect differs from another by its row alone (`table`); the code that reads is the same for all.
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
    """The markers around calls, and the grammars of the calls inside; the first grammar is the one that is written.

    `each` is written around one call, `section` around all of them, with `{call}` and `{calls}` in their places. The
    words of these two, without brackets, open and close the frame, unless `opens` and `closes` say otherwise. When
    reading, one of the openers is enough, and a closer may be missing. A frame without openers begins with the head
    of a grammar.
    """

    grammars: tuple[Grammar, ...]
    each: str = "{call}"
    section: str = "{calls}"
    join: str = "\n"
    opens: tuple[str, ...] | None = None
    closes: tuple[str, ...] | None = None
    at_line_start: bool = False
    """The frame opens at the beginning of a line only."""
    declared_only: bool = False
    """Only the name of a declared tool makes a call; with any other name the text stays text."""
    drops_rest: bool = False
    """Text after a call inside the block is reported as a Note instead of being emitted as reply text."""

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
    """Calls in a fence of three or more backticks or tildes that names one of these languages."""

    languages: frozenset[str]
    frame: CallFrame


class Dialect(msgspec.Struct, frozen=True, eq=False, dict=True):
    """One way to write calls."""

    name: str
    summary: str
    frames: tuple[CallFrame, ...]
    fences: tuple[Fence, ...] = ()
    prefilled: CallFrame | None = None
    """A frame that a reply may begin in, because its prompt ended with the marker that opens it."""
    prefill_identifies: bool = False
    """A `prefilled` frame shows which dialect is spoken."""
    answer_markers: tuple[str, ...] = ()
    """Those of `ignored` that begin the answer, and so end reasoning."""
    reasoning: tuple[Reasoning, ...] = (Reasoning("<think>", "</think>"),)
    ignored: tuple[str, ...] = ()
    """Tokens that mean nothing to a reader, such as the end of a turn."""
    template_words: tuple[tuple[str, ...], ...] = ()
    """Sets of words; a chat template with all words of one set teaches this dialect."""
    result: str = ""
    """A call's result, with `{name}`, `{identifier}` and `{content}`; "" takes the form that serves most models."""
    instructions: str = ""
    """Tells a model how to call; "" takes an example."""
    is_only_format: bool = False
    """Text is written in it too, so that it is read even where no tool may be called."""

    alternatives: tuple[Dialect, ...] = ()
    """Other dialects; the first of them to make a call is spoken from there on."""

    rendered_as: CallFrame | None = None
    """The frame in which calls are written, where that is not the first."""

    def covers(self, dialect: Dialect) -> bool:
        """Whether it reads what the other writes."""
        return any(each is dialect for each in (self, *self.alternatives))

    @property
    def render_frame(self) -> CallFrame:
        return self.rendered_as or self.frames[0]

    def all_frames(self) -> Iterator[tuple[Dialect, CallFrame]]:
        """All frames, each with its dialect."""
        for dialect in (self, *self.alternatives):
            for frame in dialect.frames:
                yield dialect, frame

    def all_prefilled(self) -> Iterator[tuple[Dialect, CallFrame]]:
        """The frames that a reply may begin in, each with its dialect."""
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

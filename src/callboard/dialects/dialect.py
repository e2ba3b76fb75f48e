"""How models write calls in text, as data: a row of the catalogue has frames, and frames have grammars.

Dialects differ only in their rows (`table`). The code that reads them is the same for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import msgspec

from callboard.dialects.grammar import Grammar


class Reasoning(msgspec.Struct, frozen=True):
    """The marker that `opens` reasoning, and the one that `closes` it."""

    opens: str
    closes: str


class CallFrame(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The markers around calls, and the `grammars` of the calls inside. The first one is for writing.

    `join` is between two calls. `each` is the template around one call, `section` around all of them, with `{call}` and
    `{calls}`. Their words, without brackets, open and close the frame, unless `opens` and `closes` are set. When
    reading, one of the openers is enough, and a closer may be missing. A frame without openers begins with the head of
    a grammar.
    """

    grammars: tuple[Grammar, ...]
    each: str = "{call}"
    section: str = "{calls}"
    join: str = "\n"
    opens: tuple[str, ...] | None = None
    closes: tuple[str, ...] | None = None
    at_line_start: bool = False
    """True if the frame opens only at the beginning of a line."""
    declared_only: bool = False
    """True if only the name of a declared tool makes a call; otherwise the text stays text."""
    drops_rest: bool = False
    """True if text after a call inside the block becomes a Note instead of reply text."""

    @cached_property
    def openers(self) -> tuple[str, ...]:
        """Words that open the frame."""
        if self.opens is not None:
            return self.opens
        return _words(self.section.partition("{calls}")[0]) + _words(self.each.partition("{call}")[0])

    @cached_property
    def closers(self) -> tuple[str, ...]:
        """Words that close the frame."""
        if self.closes is not None:
            return self.closes
        return _words(self.each.partition("{call}")[2]) + _words(self.section.partition("{calls}")[2])


class Fence(msgspec.Struct, frozen=True, eq=False):
    """Calls in a `frame` within a fence of three or more backticks or tildes that names one of the `languages`."""

    languages: frozenset[str]
    frame: CallFrame


class Dialect(msgspec.Struct, frozen=True, eq=False, dict=True):
    """One way to write calls: its `name`, a `summary` with an example, and its `frames`.

    `fences` are frames in code fences. `reasoning` are the markers of thoughts.
    """

    name: str
    summary: str
    frames: tuple[CallFrame, ...]
    fences: tuple[Fence, ...] = ()
    prefilled: CallFrame | None = None
    """A frame that a reply may begin in, because its prompt ended with the opening marker."""
    prefill_identifies: bool = False
    """True if a `prefilled` frame identifies the dialect."""
    answer_markers: tuple[str, ...] = ()
    """The markers in `ignored` that begin the answer and so end reasoning."""
    reasoning: tuple[Reasoning, ...] = (Reasoning("<think>", "</think>"),)
    ignored: tuple[str, ...] = ()
    """Tokens without a meaning for readers, such as the end of a turn."""
    template_words: tuple[tuple[str, ...], ...] = ()
    """Sets of words; a chat template with all words of one set teaches this dialect."""
    result: str = ""
    """Template of a result with `{name}`, `{identifier}` and `{content}`; "" for the form that suits most models."""
    instructions: str = ""
    """Instructions for calls; "" for instructions with an example."""
    is_only_format: bool = False
    """True if text is written in the dialect too, so that it is read even if no tool may be called."""

    alternatives: tuple[Dialect, ...] = ()
    """Other dialects. The dialect of the first call is used from there on."""

    rendered_as: CallFrame | None = None
    """The frame for writing calls, if it is not the first."""

    def covers(self, dialect: Dialect) -> bool:
        """Return whether this dialect reads everything that `dialect` writes."""
        return any(each is dialect for each in (self, *self.alternatives))

    @property
    def render_frame(self) -> CallFrame:
        """The frame for writing calls."""
        return self.rendered_as or self.frames[0]

    def all_frames(self) -> Iterator[tuple[Dialect, CallFrame]]:
        """Yield all frames, each with its dialect."""
        for dialect in (self, *self.alternatives):
            for frame in dialect.frames:
                yield dialect, frame

    def all_prefilled(self) -> Iterator[tuple[Dialect, CallFrame]]:
        """Yield the frames that a reply may begin in, each with its dialect."""
        for dialect in (self, *self.alternatives):
            if dialect.prefilled is not None and (dialect is self or dialect.prefill_identifies):
                yield dialect, dialect.prefilled

    def all_fences(self) -> Iterator[tuple[Dialect, Fence]]:
        """Yield all fences, each with its dialect."""
        for dialect in (self, *self.alternatives):
            for fence in dialect.fences:
                yield dialect, fence


def _words(part: str) -> tuple[str, ...]:
    """Return the words of a template, such as `[TOOL_CALLS]` for `[TOOL_CALLS] [`."""
    words = (word.rstrip("[").lstrip("]").replace("{{", "{").replace("}}", "}") for word in part.split())
    return tuple([word for word in words if word.strip("[]{},")])

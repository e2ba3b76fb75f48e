"""Find the calls that a model writes into its text: the only place where text becomes calls.

Law: events stay in order. Native calls and calls found in text share one sequence of indices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec.structs import replace

from callboard import core
from callboard.dialects import Dialect, Parser
from callboard.dialects.table import ACTION_FORMATS
from callboard.modes.filters.call_indices import CALL_EVENTS
from callboard.modes.filters.echoes import EchoFilter, Sources, TextCall

_BESIDE = (core.ReplyStarted, core.Usage, core.Note, core.Logprobs, core.ReplyExtra)
"""Events that do not change the position in the text."""
_NAMED = (core.InvocationStarted, core.InvocationEnded, core.InvocationIncomplete)
_COMPLAINT = f"the reply has none of the formats that were asked for. {ACTION_FORMATS}"
_NO_NAMES: Mapping[str, str] = MappingProxyType({})


class Watcher:
    """A Stage around the parser of `dialect` that turns the calls in the `watched` pieces of a reply into events.

    The watched pieces are its text, or its reasoning if the endpoint separates it. Offsets count all these pieces in
    the reply, in order. A call that repeats one of the `sources` is marked as a quotation, or stays text if
    `quoted_calls` is "text". Without sources this is not checked. `names` maps the names that the model was sent to the
    declared names, if they differ: a call may have either name, and its event has the declared name. `tools`,
    `identify` and `starts_in_reasoning` are for the parser.
    """

    def __init__(
        self,
        dialect: Dialect,
        tools: Iterable[core.ToolDeclaration] | None,
        identify: core.Identify,
        *,
        watched: type[core.TextPiece | core.ReasoningPiece] = core.TextPiece,
        starts_in_reasoning: bool = False,
        sources: Sources | None = None,
        quoted_calls: Literal["marked", "text"] = "marked",
        names: Mapping[str, str] = _NO_NAMES,
    ) -> None:
        inside = starts_in_reasoning or watched is core.ReasoningPiece
        if names and tools is not None:
            tools = tuple(tools)
            declared = {tool.name: tool for tool in tools}
            tools += tuple([replace(declared[own], name=sent) for sent, own in names.items() if own in declared])
        self._names = names
        self._parser = Parser(tools, dialect, start_in_reasoning=inside, identify=identify)
        self._check: EchoFilter | None = None
        if sources is not None:
            create_call = partial(TextCall, dialect=dialect, tools=None if tools is None else tuple(tools))
            to_text = quoted_calls == "text"
            self._check = EchoFilter(sources, create_call, to_text=to_text, piece_type=watched, dialect=dialect)
        self._watched = watched
        self._may_be_opaque = watched is core.ReasoningPiece
        self._place: Literal["text", "reasoning"] = "reasoning" if watched is core.ReasoningPiece else "text"
        self._fed = False
        self._count = 0
        self._is_cut = False
        """Whether a call in the text stayed incomplete."""
        self._missed: core.Note | None = None
        """Note about a marker without a call, if the reply has no calls at all."""
        self._native_indices: dict[int, int] = {}
        self._parsed_indices: dict[int, int] = {}

    def feed(self, event: core.Event, /) -> list[core.Event]:
        """Return the `event`, or the events from the text in it."""
        if type(event) is self._watched and not (
            self._may_be_opaque and isinstance(event, core.ReasoningPiece) and event.opaque
        ):
            self._fed = True
            events = self._parser.feed(event.text)
            if self._check is not None:
                events = self._check.feed(event.text, events)
            # Most pieces are text and stay one piece.
            if len(events) == 1 and type(events[0]) is self._watched:
                return events
            return self._renumber(events, self._parsed_indices)
        if isinstance(event, _BESIDE):
            return [event]
        match event:
            case core.ReplyEnded(reason=reason):
                flushed = self._flush("length" if reason == "length" else "stop")
                if self._missed is not None and not self._count:
                    flushed.append(self._missed)
                if self._is_cut and reason in ("stop", "invocations"):
                    event = core.ReplyEnded("length")
                elif reason == "stop" and self._parsed_indices:
                    event = core.ReplyEnded("invocations")
                self._begin()
                return [*flushed, event]
            case core.ReplyFailed():
                flushed = self._flush("cut")
                self._begin()
                return [*flushed, event]
            case _:
                return [*self._flush("stop"), *self._renumber([event], self._native_indices)]

    def finish(self, why: core.Why = "stop", /) -> list[core.Event]:
        """Return the held events. `why` says how the reply ended."""
        return self._flush(why)

    def _begin(self) -> None:
        """Start a reply. A retry may replace an earlier one."""
        self._count = 0
        self._is_cut = False
        self._missed = None
        self._native_indices = {}
        self._parsed_indices = {}

    def _flush(self, why: core.Why) -> list[core.Event]:
        if not self._fed:
            return []
        self._fed = False
        events = self._parser.finish(why)
        last = events[-1] if events else None
        if isinstance(last, core.Note) and last.code == "missed_call":
            self._missed = self._missed or last
            events.pop()
        if self._check is not None:
            events = self._check.feed("", events, over=True)
        return self._renumber(events, self._parsed_indices)

    def _renumber(self, events: list[core.Event], indices: dict[int, int]) -> list[core.Event]:
        if self._names and indices is self._parsed_indices:
            events = [
                replace(event, name=self._names.get(event.name, event.name)) if isinstance(event, _NAMED) else event
                for event in events
            ]
        for at, event in enumerate(events):
            if isinstance(event, CALL_EVENTS):
                self._is_cut = self._is_cut or type(event) is core.InvocationIncomplete
                index = indices.get(event.index)
                if index is None:
                    index = indices[event.index] = self._count
                    self._count += 1
                if indices is self._parsed_indices and isinstance(event, core.InvocationStarted):
                    events[at] = replace(event, index=index, found_in=self._place)
                elif index != event.index:
                    events[at] = replace(event, index=index)
        return events


class FormatCheck:
    """A Stage around a Stage that finds the calls and answers in a reply's text. It notices a reply without any.

    An endpoint may accept the schema of structured mode without enforcing it, so a reply such as `{"foo": 1}` is
    possible. Such a reply ends with an alert, and the loop reports it to the model and asks again. Text that is not
    JSON counts as the answer: many models that ignore the schema answer in prose. Law: no event is changed or held.
    """

    def __init__(self, finder: core.Stage[core.Event, core.Event]) -> None:
        self._finder = finder
        self._begin()

    def _begin(self) -> None:
        self._written: list[str] = []
        """The model's text."""
        self._texts: list[str] = []
        """The parts that are text of the reply: an answer, or the whole text if nothing was found."""
        self._called = False

    def feed(self, event: core.Event, /) -> list[core.Event]:
        if isinstance(event, core.TextPiece):
            self._written.append(event.text)
        events = self._check(self._finder.feed(event))
        if not isinstance(event, core.ReplyEnded):
            return events
        note = [core.Note("alert", _COMPLAINT, code="format")] if self._is_other(event) else []
        self._begin()
        return [*events[:-1], *note, *events[-1:]]

    def finish(self, why: core.Why = "stop", /) -> list[core.Event]:
        return self._check(self._finder.finish(why))

    def _check(self, events: list[core.Event]) -> list[core.Event]:
        for event in events:
            if isinstance(event, core.TextPiece):
                self._texts.append(event.text)
            elif isinstance(event, CALL_EVENTS):
                self._called = True
        return events

    def _is_other(self, ended: core.ReplyEnded) -> bool:
        text = "".join(self._texts).strip()
        # An answer is inside an object, so the model's text does not end with the answer.
        return (
            ended.reason == "stop"
            and not self._called
            and "".join(self._written).rstrip().endswith(text)
            and _is_json(text)
        )


def _is_json(text: str) -> bool:
    """Whether the text is an object (or its beginning), a list or null; a fence may enclose it."""
    lines = text.splitlines()
    if len(lines) > 1 and lines[0].startswith("```") and lines[-1].strip() == "```":
        text = "\n".join(lines[1:-1]).strip()
    if text.startswith("{"):
        return True
    if not text.startswith("[") and text != "null":
        return False
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True

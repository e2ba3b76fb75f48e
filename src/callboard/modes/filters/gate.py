"""Judge calls before anyone sees them: a call is held until it has a score, and stopped if the score is too low.

A small model that is shown a tool calls it, whether it fits or not, and makes up the values that it lacks. But it
hesitates if no tool fits: the score of `confidence` is the log-odds of the first token of the reply, a call against
words. The score of `grounding` is 0. In both, each required value that occurs nowhere in the conversation takes
`UNGROUNDED` off. If every call was stopped, the model is asked for an answer in words, without tools. From a call that
passes, values that nobody said are removed if the tool does not require them: the tool's own defaults are better.

Laws: a filter is a Stage, and what to ask next follows from what was read. No event is taken back. Text before the
first call passes at once. A question that fails stops nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from callboard import core
from callboard.modes.filters.call_indices import CALL_EVENTS, CallIndices
from callboard.modes.filters.grounding import ConversationText, find_made_up_options, find_ungrounded
from callboard.modes.mode import Gate

UNGROUNDED: Final = 2.0
"""Penalty, in log-odds, of a required value that occurs nowhere in the conversation. It means odds of about 7 to 1."""
_MAX_UNGROUNDED: Final = 2
"""Maximum ungrounded values that count; a third one says nothing new."""
_BEGINS_CALL: Final = ("{", "[", "<", "`")
"""First tokens of calls in all dialects: an object, a list, a marker, a fence."""
_MIN_PROBABILITY: Final = 1e-6
"""The probability of a word that is not among the likeliest."""
_MIN_LOGPROB: Final = -100.0
"""Log-probabilities below this count as impossible; servers write -9999 for them."""
_LOGPROBS: Final[Mapping[str, Any]] = MappingProxyType({"logprobs": True, "top_logprobs": 20})
"""Fields of the chat wire. OpenAI permits at most 20."""
CALL_SCORES: Final[ContextVar[dict[str, float] | None]] = ContextVar("CALL_SCORES", default=None)
"""Scores of a reply's calls by identifier. The evaluation of a gate reads them."""


def create_gate(request: core.Request, gate: Gate, *, gives_logprobs: bool) -> GateFilter | None:
    """Return the filter of a reply to the request, or None if no call can be stopped.

    A requested call is never stopped. A call after results continues an earlier decision, so it is not judged.

    Args:
        request: The request to the model.
        gate: How its calls are judged.
        gives_logprobs: True if the endpoint gives log-probabilities on the chat wire.
    """
    last = request.canisters[-1] if request.canisters else None
    if not gate.kind or not request.tools or request.tool_choice != "auto" or not isinstance(last, core.UserCanister):
        return None
    return GateFilter(request, gate, gives_logprobs=gives_logprobs)


class GateFilter:
    """A Stage that holds calls back until they are judged.

    When the reply has ended, ask `question` if there is one, and pass its reply to `take_answer`. Then `release`
    returns the held events. If every call was stopped, `answer_request` returns the next request.
    """

    def __init__(self, request: core.Request, gate: Gate, *, gives_logprobs: bool) -> None:
        self._request = request
        self._tools = {tool.name: tool for tool in request.tools}
        self._gate = gate
        self._asks = gate.kind == "confidence" and gives_logprobs
        """False after text before a call: then the reply's first token says nothing about the call."""
        self._held: list[core.Event] = []
        self._calls: list[core.InvocationEnded] = []
        self._odds: float | None = None
        self.usage = core.Usage()
        """The usage of the reply and its question."""
        self._is_judged = False

    def feed(self, event: core.Event, /) -> list[core.Event]:
        match event:
            case core.InvocationEnded():
                self._calls.append(event)
            case core.ReplyEnded():
                self._is_judged = not any(isinstance(each, core.InvocationIncomplete) for each in self._held)
            case core.Usage():
                self.usage = event
            case core.TextPiece(text=text) if not self._held and text.strip():
                self._asks = False
        if self._held or isinstance(event, (*CALL_EVENTS, core.Usage, core.ReplyEnded, core.ReplyFailed)):
            self._held.append(event)
            return []
        return [event]

    def finish(self, why: core.Why = "stop", /) -> list[core.Event]:
        return self.release()

    def question(self) -> core.Request | None:
        """Return a request for the first token of the reply, if that token decides."""
        if not self._asks or not self._is_judged or not any(self._is_doubtful(call) for call in self._calls):
            return None
        return replace(
            self._request,
            constraint=None,
            # The effort may change the prompt, and whether words come before thoughts.
            controls=core.Controls(temperature=0.0, max_tokens=1, effort=self._request.controls.effort),
            stream=False,  # llama.cpp gives no log-probabilities in a stream if there are tools
            extra={**self._request.extra, **_LOGPROBS},
        )

    def take_answer(self, events: Iterable[core.Event]) -> None:
        """Read the reply to the question. Without log-probabilities only the values decide."""
        events = list(events)
        self._odds = read_confidence(events)
        for event in events:
            if isinstance(event, core.Usage):
                self.usage += event

    @cached_property
    def _scores(self) -> dict[int, float]:
        return {call.index: self._score(call) for call in self._calls} if self._is_judged else {}

    @property
    def scores(self) -> dict[str, float]:
        """The scores of the calls that a threshold may stop, by their identifiers."""
        named = {call.identifier: self._scores.get(call.index, math.inf) for call in self._calls}
        return {identifier: score for identifier, score in named.items() if score < math.inf}

    def _is_doubtful(self, call: core.InvocationEnded) -> bool:
        """Whether the call needs judgment. Calls with mistakes get an error result instead."""
        return call.arguments is not None and call.name in self._tools

    def _score(self, call: core.InvocationEnded) -> float:
        if not self._is_doubtful(call):
            return math.inf
        ungrounded = find_ungrounded(call.arguments or {}, self._tools[call.name].schema, self._conversation)
        penalty = UNGROUNDED * min(len(ungrounded), _MAX_UNGROUNDED)
        if self._gate.kind == "grounding":
            return -penalty
        if self._odds is None:
            return -math.inf if penalty else math.inf
        return self._odds - penalty

    @property
    def _stopped(self) -> set[int]:
        return {index for index, score in self._scores.items() if score < self._gate.threshold}

    @property
    def _needs_answer(self) -> bool:
        return bool(self._calls) and len(self._stopped) == len(self._calls)

    def release(self) -> list[core.Event]:
        """Return the held events, without stopped calls, and without the end if a further request follows."""
        indices, shortened = CallIndices(), self._shorten_calls()
        reason = "was stopped: it does not seem to do what was asked"
        notes: list[core.Event] = [
            core.Note("dropped", f"a call of {call.name} {reason}", call.offsets, code="stopped_call")
            for call in self._calls
            if call.index in self._stopped
        ]
        notes += [call.note for index, call in shortened.items() if index not in self._stopped]
        for index in self._stopped:
            indices.drop(index)
        events: list[core.Event] = []
        for event in self._held:
            match event:
                case (
                    core.InvocationStarted(index=index)
                    | core.ArgumentsPiece(index=index)
                    | core.InvocationEnded(index=index)
                ):
                    renumbered = indices.renumber(event)
                    if index in shortened:
                        renumbered = [out for each in renumbered for out in shortened[index].feed(each)]
                    events += renumbered
                case core.Usage() | core.ReplyEnded() if self._needs_answer:
                    continue
                case core.Usage():
                    events.append(self.usage)
                case _:
                    events.append(event)
        self._held = []
        return [*notes, *events]

    def answer_request(self) -> core.Request | None:
        """Return the request for an answer in words if every call was stopped."""
        return replace(self._request, tools=(), tool_choice="auto", parallel=None) if self._needs_answer else None

    def _shorten_calls(self) -> dict[int, _ShortenedCall]:
        """Return the calls with an optional value that nobody said."""
        shortened: dict[int, _ShortenedCall] = {}
        for call in self._calls if self._is_judged else ():
            if self._is_doubtful(call):
                schema = self._tools[call.name].schema
                if made_up := find_made_up_options(call.arguments or {}, schema, self._conversation):
                    shortened[call.index] = _ShortenedCall(call, made_up)
        return shortened

    @cached_property
    def _conversation(self) -> ConversationText:
        canisters = self._request.conversation or self._request.canisters
        contents = [each.content for each in canisters if not isinstance(each, core.InvocationCanister)]
        shows_more = any(
            isinstance(part, core.PictureContent | core.FileContent) for content in contents for part in content
        )
        return ConversationText([core.join_texts(content) for content in contents], is_complete=not shows_more)


class _ShortenedCall:
    """A Stage for the events of one call that removes some of its arguments."""

    def __init__(self, call: core.InvocationEnded, left_out: Iterable[str]) -> None:
        self._arguments = {name: value for name, value in (call.arguments or {}).items() if name not in left_out}
        self._raw = msgspec.json.encode(self._arguments).decode()
        self._is_written = False
        names = ", ".join(left_out)
        self.note = core.Note("dropped", f"{call.name} was called without {names}: nobody said that", call.offsets)

    def feed(self, event: core.Event, /) -> list[core.Event]:
        match event:
            case core.ArgumentsPiece():
                is_first, self._is_written = not self._is_written, True
                return [replace(event, json=self._raw)] if is_first else []
            case core.InvocationEnded():
                return [replace(event, arguments=self._arguments, raw=self._raw)]
            case _:
                return [event]


def read_confidence(events: Iterable[core.Event]) -> float | None:
    """Return the log-odds of a call against words as the first token, or None without log-probabilities."""
    for event in events:
        if isinstance(event, core.Logprobs) and event.tokens and not event.is_refusal:
            token = event.tokens[0]
            top = token.get("top_logprobs")
            likely = [token, *(top if isinstance(top, list) else [])]
            known = {str(each.get("token")): _probability(each) for each in likely if isinstance(each, Mapping)}
            call = sum(value for token, value in known.items() if token.lstrip().startswith(_BEGINS_CALL))
            words = sum(known.values()) - call
            return math.log((call + _MIN_PROBABILITY) / (words + _MIN_PROBABILITY)) if call + words else None
    return None


def _probability(token: Mapping[str, Any]) -> float:
    value = token.get("logprob")
    return math.exp(min(value, 0.0)) if isinstance(value, int | float) and value > _MIN_LOGPROB else 0.0

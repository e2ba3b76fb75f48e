"""Decide whether a call is made, before anyone sees it: each call is held back until it has a score.

A small model that is shown a tool calls it, whether it fits or not, and what it lacks it makes up. But it hesitates
where no tool fits: `confidence` is the log-odds of the first token of its reply, a call against words. Or it is asked
about the call that it has just written: `question` is the log-odds of `yes` against `no`, without its own inclination
(`bias`). That is the score of a call; each required value that stands nowhere in the conversation takes `UNGROUNDED` off
it, and `grounding` has nothing else. A call below the threshold is stopped, and the model is asked for an answer in
words, without tools. From a call that passes, values are left out that nobody said and the tool does not require: its
own defaults are better.

Laws: a `DecideStep` is a Stage, and what to ask next follows from what was read. No event is taken back. Text before
the first call passes at once. A question that fails stops nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from callboard.core import (
    ArgumentsPiece,
    AssistantCanister,
    Canister,
    Controls,
    Event,
    FileContent,
    InvocationCanister,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Logprobs,
    Note,
    PictureContent,
    ReplyEnded,
    ReplyFailed,
    Request,
    TextPiece,
    ToolDeclaration,
    Usage,
    UserCanister,
    Why,
    contents,
    join_texts,
)
from callboard.modes.grounding import ConversationText, find_made_up_options, find_ungrounded
from callboard.modes.mode import Gate
from callboard.text.truncate import truncate

UNGROUNDED: Final = 2.0
"""What a required value that nobody said takes off the score: as much as seven to one in the model's own word."""
_MOST_UNGROUNDED: Final = 2
"""Values that count; a third one says nothing new."""
_BEGINS_CALL: Final = ("{", "[", "<", "`")
"""How the first token of a call begins, in whatever dialect: an object, a list, a marker, a fence."""
_YES: Final = frozenset({"yes", "y"})
_NO: Final = frozenset({"no", "n"})
_LEAST: Final = 1e-6
"""The probability of a word that is none of the likeliest."""
_LEAST_LOGPROB: Final = -100.0
"""What is less likely counts as impossible; servers write -9999 for it."""
LOGPROBS: Final[Mapping[str, Any]] = MappingProxyType({"logprobs": True, "top_logprobs": 20})
"""Fields of the chat wire; 20 are as many as OpenAI permits."""
_DESCRIPTION: Final = 400
"""Characters of a tool's description that a question repeats."""
CALL_SCORES: Final[ContextVar[dict[str, float] | None]] = ContextVar("CALL_SCORES", default=None)
"""Where whoever measures a gate finds the scores of the calls of a reply, by their identifiers."""
_CALLS = (InvocationStarted, ArgumentsPiece, InvocationEnded, InvocationIncomplete)


class GateQuestion(msgspec.Struct, frozen=True):
    """What the model is asked about the call of this index."""

    index: int
    request: Request


def create_decide_step(request: Request, gate: Gate, fields: Mapping[str, Any] = LOGPROBS) -> DecideStep | None:
    """The step for a reply to the request; None where no call can be stopped.

    A call that was asked for is made. One that follows results goes on with what was decided before.

    Args:
        request: What the model is asked.
        gate: How its calls are judged.
        fields: Added to the body of a question: for log-probabilities, without which a word is all that is known.
    """
    last = request.canisters[-1] if request.canisters else None
    if not gate.kind or not request.tools or request.tool_choice != "auto" or not isinstance(last, UserCanister):
        return None
    return DecideStep(request, gate, fields)


class DecideStep:
    """A Stage: the events of a reply in, those that may pass out.

    When the reply has ended, `next_question` is asked for until there is none, each answered by `take_answer`;
    then `release` gives what was held, and `answer_request` what to ask where every call was stopped.
    """

    def __init__(self, request: Request, gate: Gate, fields: Mapping[str, Any]) -> None:
        self._request = request
        self._gate = gate
        self._fields = fields
        self._held: list[Event] = []
        self._calls: list[InvocationEnded] = []
        self._not_in_text: set[int] = set()
        """The calls that the server has read, or that stood in reasoning."""
        self._scores: dict[int, float] = {}
        self._text: list[str] = []
        self._usage = Usage()
        self._ending: ReplyEnded | ReplyFailed | None = None
        self._is_cut = False
        self._begins_in_words = False
        """Whether text was given before the first call: then its first token says nothing about the call."""

    def add_text(self, text: str) -> None:
        """What the model wrote, before calls were found in it: a question behind it finds its prompt in the cache.

        Where nobody tells it, the call itself stands in the question.
        """
        self._text.append(text)

    def feed(self, event: Event, /) -> list[Event]:
        match event:
            case InvocationStarted(index=index, found_in=place) if place != "text":
                self._not_in_text.add(index)
            case InvocationEnded():
                self._calls.append(event)
            case InvocationIncomplete():
                self._is_cut = True
            case ReplyEnded() | ReplyFailed():
                self._ending = event
            case Usage():
                self._usage = event
            case TextPiece(text=text) if not self._held and text.strip():
                self._begins_in_words = True
        if self._held or isinstance(event, (*_CALLS, Usage, ReplyEnded, ReplyFailed)):
            self._held.append(event)
            return []
        return [event]

    def finish(self, why: Why = "stop", /) -> list[Event]:
        return self.release()

    def next_question(self) -> GateQuestion | None:
        """What to ask about the next call; None when each has its score."""
        if not self._calls or self._is_cut or not isinstance(self._ending, ReplyEnded):
            return None
        for call in self._calls:
            if call.index in self._scores:
                continue
            tool = next((tool for tool in self._request.tools if tool.name == call.name), None)
            if tool is None or call.arguments is None:
                self._scores[call.index] = math.inf  # a mistake that the model is told of
                continue
            if self._gate.kind == "grounding":
                self._scores[call.index] = -self._penalty(call, tool)
            elif self._gate.kind == "question":
                return GateQuestion(call.index, self._question(call, tool))
            elif self._begins_in_words or "logprobs" not in self._fields:
                self._scores[call.index] = self._score_by_values(call, tool)
            else:
                return GateQuestion(call.index, self._ask(self._request.canisters))
        return None

    def take_answer(self, question: GateQuestion, events: Iterable[Event]) -> None:
        """The reply to a question. One that fails is asked for once more, without log-probabilities.

        A question without an answer, or with one that is neither yes nor no, lets the call pass. Where the confidence
        is not known, the values decide alone.
        """
        events = list(events)
        for event in events:
            if isinstance(event, Usage):
                self._usage += event
        if self._fields and any(isinstance(event, ReplyFailed) for event in events):
            self._fields = {}  # perhaps they were refused: the word alone is asked for
            return
        if self._gate.kind == "confidence":
            self._score_by_confidence(read_confidence(events))
            return
        call = next(call for call in self._calls if call.index == question.index)
        tool = next(tool for tool in self._request.tools if tool.name == call.name)
        odds = read_answer(events)
        if odds is not None:
            self._scores[call.index] = odds - self._penalty(call, tool)
        else:
            self._scores[call.index] = math.inf
            self._held.insert(0, Note("alert", f"whether {call.name} does what was asked could not be found out"))

    @property
    def scores(self) -> dict[str, float]:
        """Those of the calls, by their identifiers; a call that no threshold stops has none."""
        named = {call.identifier: self._scores.get(call.index, math.inf) for call in self._calls}
        return {identifier: score for identifier, score in named.items() if score < math.inf}

    @property
    def _stopped(self) -> set[int]:
        return {index for index, score in self._scores.items() if score < self._gate.threshold}

    def release(self) -> list[Event]:
        """What was held, without the calls that are stopped; without its end where an answer is asked for."""
        stopped = self._stopped
        events: list[Event] = []
        indices: dict[int, int] = {}
        shortened = self._shorten_calls()
        for event in self._held:
            match event:
                case InvocationStarted(index=index) | ArgumentsPiece(index=index) | InvocationEnded(index=index):
                    if index in stopped:
                        continue
                    renumbered = replace(event, index=indices.setdefault(index, len(indices)))
                    events += shortened[index].feed(renumbered) if index in shortened else [renumbered]
                case Usage() if not self._needs_answer:
                    events.append(self._usage)
                case Usage() | ReplyEnded() if self._needs_answer:
                    continue
                case _:
                    events.append(event)
        notes = [self._stop_note(call) for call in self._calls if call.index in stopped]
        notes += [each.note for index, each in shortened.items() if index not in stopped]
        self._held = []
        return [*notes, *events]

    def _shorten_calls(self) -> dict[int, _ShortenedCall]:
        """The calls with a value that nobody said and that may be left out."""
        shortened: dict[int, _ShortenedCall] = {}
        tools = {tool.name: tool for tool in self._request.tools}
        for call in self._calls:
            if call.index not in self._scores or call.arguments is None or call.name not in tools:
                continue
            made_up = find_made_up_options(call.arguments, tools[call.name].schema, self._conversation)
            if made_up:
                shortened[call.index] = _ShortenedCall(call, made_up)
        return shortened

    @property
    def _needs_answer(self) -> bool:
        return bool(self._calls) and len(self._stopped) == len(self._calls)

    def answer_request(self) -> Request | None:
        """The request for an answer in words, where every call was stopped."""
        if not self._needs_answer:
            return None
        return replace(self._request, tools=(), tool_choice="auto", parallel=None)

    @property
    def usage(self) -> Usage:
        """That of the reply and its questions."""
        return self._usage

    def _stop_note(self, call: InvocationEnded) -> Note:
        text = f"a call of {call.name} was stopped: it does not seem to do what was asked"
        return Note("dropped", text, call.offsets, code="stopped_call")

    def _question(self, call: InvocationEnded, tool: ToolDeclaration) -> Request:
        written = "".join(self._text)
        if call.index in self._not_in_text or not written:
            written = f'{written}\n{{"name": "{call.name}", "arguments": {call.raw}}}'.lstrip()
        dialogue = (AssistantCanister(contents(written)), UserCanister(contents(ask_about(tool))))
        return self._ask((*self._request.canisters, *dialogue))

    def _ask(self, canisters: Sequence[Canister]) -> Request:
        """For the first token of what follows in the conversation."""
        return replace(
            self._request,
            canisters=canisters,
            constraint=None,
            # The effort may change the prompt, and whether words come before thoughts.
            controls=Controls(temperature=0.0, max_tokens=1, effort=self._request.controls.effort),
            stream=False,  # llama.cpp gives no log-probabilities in a stream where there are tools
            extra={**self._request.extra, **self._fields},
        )

    def _score_by_confidence(self, odds: float | None) -> None:
        """Give each call that has none its score: they are all of one reply."""
        tools = {tool.name: tool for tool in self._request.tools}
        for call in self._calls:
            if call.index in self._scores:
                continue
            if call.arguments is None or call.name not in tools:
                self._scores[call.index] = math.inf
            elif odds is None:
                self._scores[call.index] = self._score_by_values(call, tools[call.name])
            else:
                self._scores[call.index] = odds - self._penalty(call, tools[call.name])

    def _score_by_values(self, call: InvocationEnded, tool: ToolDeclaration) -> float:
        return -math.inf if self._penalty(call, tool) else math.inf

    def _penalty(self, call: InvocationEnded, tool: ToolDeclaration) -> float:
        ungrounded = find_ungrounded(call.arguments or {}, tool.schema, self._conversation)
        return UNGROUNDED * min(len(ungrounded), _MOST_UNGROUNDED)

    @cached_property
    def _conversation(self) -> ConversationText:
        canisters = self._request.conversation or self._request.canisters
        contents = [each.content for each in canisters if not isinstance(each, InvocationCanister)]
        shows_more = any(isinstance(part, PictureContent | FileContent) for content in contents for part in content)
        return ConversationText([join_texts(content) for content in contents], is_complete=not shows_more)


class _ShortenedCall:
    """A Stage: the events of one call in, the same without some of its arguments out."""

    def __init__(self, call: InvocationEnded, left_out: Iterable[str]) -> None:
        self._arguments = {name: value for name, value in (call.arguments or {}).items() if name not in left_out}
        self._raw = msgspec.json.encode(self._arguments).decode()
        self._is_written = False
        names = ", ".join(left_out)
        self.note = Note("dropped", f"{call.name} was called without {names}: nobody said that", call.offsets)

    def feed(self, event: InvocationStarted | ArgumentsPiece | InvocationEnded, /) -> list[Event]:
        match event:
            case ArgumentsPiece():
                is_first, self._is_written = not self._is_written, True
                return [replace(event, json=self._raw)] if is_first else []
            case InvocationEnded():
                return [replace(event, arguments=self._arguments, raw=self._raw)]
            case _:
                return [event]


def ask_about(tool: ToolDeclaration) -> str:
    """The question about a call of the tool."""
    description = truncate(" ".join(tool.description.split()), _DESCRIPTION)
    does = f'The function {tool.name} does this: "{description}"' if description else f"You called {tool.name}."
    return f"{does} Is that what was asked for? Answer yes or no."


def read_answer(events: Iterable[Event]) -> float | None:
    """The log-odds of yes against no; None if the reply says neither.

    A model without log-probabilities says a word, which is taken for certain.
    """
    text = ""
    for event in events:
        if isinstance(event, Logprobs) and event.tokens and not event.is_refusal:
            return _odds(event.tokens[0])
        if isinstance(event, TextPiece):
            text += event.text
    word = _word(text.split()[0]) if text.split() else ""
    return math.inf if word in _YES else -math.inf if word in _NO else None


def read_confidence(events: Iterable[Event]) -> float | None:
    """The log-odds of a call against words as the first token of a reply; None without log-probabilities."""
    for event in events:
        if isinstance(event, Logprobs) and event.tokens and not event.is_refusal:
            known = _read_probabilities(event.tokens[0])
            call = sum(value for token, value in known.items() if token.lstrip().startswith(_BEGINS_CALL))
            words = sum(known.values()) - call
            return math.log((call + _LEAST) / (words + _LEAST)) if call + words else None
    return None


def _read_probabilities(token: Mapping[str, Any]) -> dict[str, float]:
    """Those of the tokens that were likeliest in its place."""
    top = token.get("top_logprobs")
    likely = [token, *(top if isinstance(top, list) else [])]
    return {str(each.get("token")): _probability(each) for each in likely if isinstance(each, Mapping)}


def _odds(token: Mapping[str, Any]) -> float | None:
    known = _read_probabilities(token)
    yes = sum(value for word, value in known.items() if _word(word) in _YES)
    no = sum(value for word, value in known.items() if _word(word) in _NO)
    return None if not yes and not no else math.log((yes + _LEAST) / (no + _LEAST))


def _probability(token: Mapping[str, Any]) -> float:
    value = token.get("logprob")
    return math.exp(min(value, 0.0)) if isinstance(value, int | float) and value > _LEAST_LOGPROB else 0.0


def _word(token: str) -> str:
    return token.strip(" \n\t.,:;!\"'`*").casefold()

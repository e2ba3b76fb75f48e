"""What a backend's answers mean.

Owns the questions, the judgement of each answer, and what may cure a fault. Knows nothing of how anybody is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from callboard.core import Event, InvocationEnded, Note, ReasoningPiece, ReplyFailed, Request, TextPiece, Usage
from callboard.dialects import DIALECTS, Parser
from callboard.servers.gateway.backend import format_flags
from callboard.servers.gateway.doctor import probes
from callboard.servers.gateway.settings import BackendSettings

State: TypeAlias = Literal["no", "partly", "yes"]
STATES: tuple[State, ...] = ("no", "partly", "yes")
_FOUND = re.compile(r"call_\d+_[tr]\d+")
"""Identifiers of calls that were found in text (see `core.identify_in_turn`)."""
_MOST_DIALECTS = 3
"""That are tried where a text could be a call in several."""


class ProbeReply(msgspec.Struct, frozen=True):
    """What came of a `request`. `mode` is the one that the gateway asked in; `learned` are the facts that it found out."""

    events: list[Event]
    status: int = 0
    content_type: str = ""
    dropped: tuple[str, ...] = ()
    request: Request | None = None
    mode: str = ""
    learned: Mapping[str, Any] = {}

    @property
    def failed(self) -> ReplyFailed | None:
        last = self.events[-1] if self.events else ReplyFailed("provider", "cut", "nothing was said")
        return last if isinstance(last, ReplyFailed) else None

    @property
    def calls(self) -> list[InvocationEnded]:
        return [event for event in self.events if isinstance(event, InvocationEnded)]

    @property
    def way(self) -> str:
        """How the first call was made."""
        return "written into the text" if _FOUND.fullmatch(self.calls[0].identifier) else "native"

    def has(self, kind: type[Any]) -> bool:
        return any(isinstance(event, kind) for event in self.events)


Judge: TypeAlias = Callable[[ProbeReply], tuple[State, str]]


class Remedy(msgspec.Struct, frozen=True):
    """Facts of the profile, a mode or a dialect, that may cure a fault."""

    facts: Mapping[str, Any] = {}
    mode: str = ""
    dialect: str = ""

    @property
    def flag(self) -> str:
        return f"--dialect {self.dialect}" if self.dialect else format_flags({**self.mode_fact, **self.facts})

    @property
    def found(self) -> Mapping[str, Any]:
        """The same as a profile."""
        spelled = {"dialect": self.dialect, "watch": self.dialect} if self.dialect else {}
        return {**self.mode_fact, **spelled, **self.facts}

    @property
    def mode_fact(self) -> Mapping[str, Any]:
        return {"mode": self.mode} if self.mode else {}

    def applied(self, settings: BackendSettings) -> BackendSettings:
        return replace(
            settings,
            profile={**settings.profile, **self.facts},
            mode=self.mode or settings.mode,
            dialect=self.dialect or settings.dialect,
        )


class Question(msgspec.Struct, frozen=True):
    """`remedies` are tried in their order where the answer is no; where it is `partly`, one that cures it is only told."""

    name: str
    body: probes.Body
    judge: Judge
    remedies: Sequence[Remedy] = ()


def judged(question: Question, said: ProbeReply) -> tuple[State, str]:
    failed = said.failed
    return ("no", fault(said, failed)) if failed is not None else question.judge(said)


def fault(said: ProbeReply, failed: ReplyFailed) -> str:
    text = " ".join(failed.message.split())
    status = f"{said.status}: " if said.status >= 400 and str(said.status) not in text else ""
    return f"{status}{text[:200]}"


def dialects(said: ProbeReply) -> list[Remedy]:
    """Those in which the text of a reply without calls is one."""
    text = "".join([event.text for event in said.events if isinstance(event, TextPiece)])
    if said.request is None or not said.request.tools or said.calls or not text.strip():
        return []
    tools = said.request.tools
    found = [name for name, dialect in DIALECTS.items() if _reads(Parser(tools, dialect), text)]
    return [Remedy(dialect=name) for name in found[:_MOST_DIALECTS]]


def _reads(parser: Parser, text: str) -> bool:
    events = [*parser.feed(text), *parser.finish()]
    return any(isinstance(event, InvocationEnded) and event.arguments is not None for event in events)


def _taken(_: ProbeReply) -> tuple[State, str]:
    return "yes", ""


def _streams(said: ProbeReply) -> tuple[State, str]:
    streamed = said.content_type.startswith("text/event-stream")
    return ("yes", "") if streamed else ("partly", "its replies come whole, and are streamed to clients at once")


def _usage(said: ProbeReply) -> tuple[State, str]:
    usage = [event for event in said.events if isinstance(event, Usage) and event.input]
    return ("yes", "") if usage else ("partly", "clients see no tokens, and cannot tell when a conversation is full")


def called(said: ProbeReply) -> tuple[State, str]:
    if not said.calls:
        return "partly", "the model did not call"
    if said.mode != "native":
        return "yes", f"the tools stand in the prompt (mode {said.mode})"
    return "yes", said.way


def _chosen(said: ProbeReply) -> tuple[State, str]:
    return ("yes", "") if said.calls else ("partly", "not obeyed: the model did not call the tool that was chosen")


def _one(said: ProbeReply) -> tuple[State, str]:
    more = any(isinstance(event, Note) and event.text.startswith("a call of ") for event in said.events)
    return "yes", "not obeyed; the gateway passes the first call" if more else ""


def _several(said: ProbeReply) -> tuple[State, str]:
    return ("yes", "") if len(said.calls) > 1 else ("partly", "the model calls one at a time")


def _goes_on(said: ProbeReply) -> tuple[State, str]:
    if said.has(TextPiece) or said.has(ReasoningPiece):
        return "yes", ""
    return "partly", "the model repeats its call" if said.calls else "the model says nothing"


def _seen(said: ProbeReply) -> tuple[State, str]:
    return ("partly", "they are left out") if any("picture" in each for each in said.dropped) else ("yes", "")


PROMPT = Remedy(mode="validated")
_QUIET = Remedy({"reports_usage": False})
QUESTIONS: tuple[Question, ...] = (
    Question("answers", probes.ANSWER, _taken, [Remedy({"max_tokens_field": "max_completion_tokens"})]),
    Question("streams", probes.STREAM, _streams, [_QUIET, Remedy({"supports_streaming": False})]),
    Question("usage in streams", probes.STREAM, _usage),
    Question("tools", probes.CALL, called, [PROMPT]),
    Question("tool_choice", probes.CHOICE, _chosen, [PROMPT]),
    Question("one call at a time", probes.ONE, _one, [Remedy({"supports_parallel_calls": False}), PROMPT]),
    Question("several calls at once", probes.SEVERAL, _several, [Remedy({"supports_parallel_calls": False})]),
    Question(
        "goes on after a result", probes.RESULT, _goes_on,
        [Remedy({"result_format": "prose"}), Remedy({"answer_after": "results"}), PROMPT],
    ),
    Question("thoughts sent back", probes.THOUGHTS, _taken, [
        Remedy({"reasoning_field": "reasoning"}), Remedy({"reasoning_field": ""}),
    ]),
    Question("several system messages", probes.SYSTEMS, _taken, [Remedy({"merge_system_messages": True})]),
    Question("pictures", probes.PARTS, _seen, [Remedy({"supports_content_parts": False})]),
    Question("strict of tools", probes.STRICT, _taken, [Remedy({"supports_strict": False})]),
    Question("effort", probes.EFFORT, _taken, [
        Remedy({"efforts": ["low", "medium"]}), Remedy({"efforts": [""]}),  # "" is none that could be sent
    ]),
)  # fmt: skip

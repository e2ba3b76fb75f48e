"""The doctor's questions: what a backend is asked, how its reply is judged, and what may cure a fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from callboard.core import (
    Event,
    InvocationEnded,
    InvocationStarted,
    Note,
    ReasoningPiece,
    ReplyFailed,
    Request,
    TextPiece,
    Usage,
)
from callboard.dialects import DIALECTS, Parser
from callboard.providers.lessons import STATUSES
from callboard.servers.gateway.backend import format_flags
from callboard.servers.gateway.doctor import probes
from callboard.servers.gateway.settings import BackendSettings
from callboard.text.display import collapse

State: TypeAlias = Literal["no", "partly", "yes", "not asked"]
STATES: tuple[State, ...] = ("no", "partly", "yes")
"""From worst to best."""
_MAX_DIALECTS = 3
"""Dialects that are tried for a text that could be a call in several."""
_MAX_FAILURE = 200
"""Characters."""
REFUSED = frozenset([status for status in STATUSES if status < 500])
"""Statuses of a request that is refused for what is in it, and not because the server has broken down."""


class ProbeReply(msgspec.Struct, frozen=True):
    """A reply to a `request`. `mode` is how tools were declared; `learned` are the facts that the gateway found out."""

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
    def is_answer(self) -> bool:
        """The backend replied, or refused what is in the request: it is not busy, slow or broken."""
        return self.failed is None or self.status in REFUSED

    @property
    def calls(self) -> list[InvocationEnded]:
        return [event for event in self.events if isinstance(event, InvocationEnded)]

    @property
    def call_form(self) -> str:
        """How the first call was made."""
        started = next(event for event in self.events if isinstance(event, InvocationStarted))
        return "native" if started.found_in == "wire" else "written into the text"

    def has(self, kind: type[Any]) -> bool:
        return any(isinstance(event, kind) for event in self.events)


Judge: TypeAlias = Callable[[ProbeReply], tuple[State, str]]


class Remedy(msgspec.Struct, frozen=True):
    """Facts of the profile, a mode or a dialect that may cure a fault."""

    facts: Mapping[str, Any] = {}
    mode: str = ""
    dialect: str = ""

    @property
    def flag(self) -> str:
        return f"--dialect {self.dialect}" if self.dialect else format_flags({**self.mode_fact, **self.facts})

    @property
    def as_profile(self) -> Mapping[str, Any]:
        dialect = {"dialect": self.dialect, "watch": self.dialect} if self.dialect else {}
        return {**self.mode_fact, **dialect, **self.facts}

    @property
    def mode_fact(self) -> Mapping[str, Any]:
        return {"mode": self.mode} if self.mode else {}

    def apply(self, settings: BackendSettings) -> BackendSettings:
        return replace(
            settings,
            profile={**settings.profile, **self.facts},
            mode=self.mode or settings.mode,
            dialect=self.dialect or settings.dialect,
        )


class Question(msgspec.Struct, frozen=True):
    """`remedies` are tried in this order; one that cures a `partly` is only reported, one that cures a `no` is kept."""

    name: str
    body: probes.Body
    judge: Judge
    remedies: Sequence[Remedy] = ()


def judge_reply(question: Question, reply: ProbeReply) -> tuple[State, str]:
    failed = reply.failed
    return ("no", describe_failure(reply, failed)) if failed is not None else question.judge(reply)


def describe_failure(reply: ProbeReply, failed: ReplyFailed) -> str:
    text = collapse(failed.message, _MAX_FAILURE)
    status = f"{reply.status}: " if reply.status >= 400 and str(reply.status) not in text else ""
    return f"{status}{text}"


def readable_dialects(reply: ProbeReply) -> list[Remedy]:
    """Dialects in which the text of a reply without calls is a call, as remedies."""
    text = "".join([event.text for event in reply.events if isinstance(event, TextPiece)])
    if reply.request is None or not reply.request.tools or reply.calls or not text.strip():
        return []
    tools = reply.request.tools
    names = [name for name, dialect in DIALECTS.items() if _has_call(Parser(tools, dialect), text)]
    return [Remedy(dialect=name) for name in names[:_MAX_DIALECTS]]


def _has_call(parser: Parser, text: str) -> bool:
    events = [*parser.feed(text), *parser.finish()]
    return any(isinstance(event, InvocationEnded) and event.arguments is not None for event in events)


def _check_accepted(_: ProbeReply) -> tuple[State, str]:
    return "yes", ""


def _judge_streaming(reply: ProbeReply) -> tuple[State, str]:
    streamed = reply.content_type.startswith("text/event-stream")
    return ("yes", "") if streamed else ("partly", "its replies come whole, and are streamed to clients at once")


def _judge_usage(reply: ProbeReply) -> tuple[State, str]:
    usage = [event for event in reply.events if isinstance(event, Usage) and event.input]
    return ("yes", "") if usage else ("partly", "clients see no tokens, and cannot tell when a conversation is full")


def judge_call(reply: ProbeReply) -> tuple[State, str]:
    if not reply.calls:
        return "partly", "the model did not call"
    if reply.mode != "native":
        return "yes", f"the tools stand in the prompt (mode {reply.mode})"
    return "yes", reply.call_form


def _judge_choice(reply: ProbeReply) -> tuple[State, str]:
    return ("yes", "") if reply.calls else ("partly", "not obeyed: the model did not call the tool that was chosen")


def _judge_one_call(reply: ProbeReply) -> tuple[State, str]:
    more = any(isinstance(event, Note) and event.code == "extra_call" for event in reply.events)
    return "yes", "not obeyed; the gateway passes the first call" if more else ""


def _judge_several_calls(reply: ProbeReply) -> tuple[State, str]:
    return ("yes", "") if len(reply.calls) > 1 else ("partly", "the model calls one at a time")


def _judge_continuation(reply: ProbeReply) -> tuple[State, str]:
    if reply.has(TextPiece) or reply.has(ReasoningPiece):
        return "yes", ""
    return "partly", "the model repeats its call" if reply.calls else "the model says nothing"


def _judge_picture(reply: ProbeReply) -> tuple[State, str]:
    return ("partly", "they are left out") if any("picture" in each for each in reply.dropped) else ("yes", "")


TOOLS_IN_PROMPT = Remedy(mode="validated")
_NO_USAGE = Remedy({"reports_usage": False})
QUESTIONS: tuple[Question, ...] = (
    Question("answers", probes.ANSWER, _check_accepted, [Remedy({"max_tokens_field": "max_completion_tokens"})]),
    Question("streams", probes.STREAMED, _judge_streaming, [_NO_USAGE, Remedy({"supports_streaming": False})]),
    Question("usage in streams", probes.STREAMED, _judge_usage),
    Question("tools", probes.CALL, judge_call, [TOOLS_IN_PROMPT]),
    Question("tool_choice", probes.CHOICE, _judge_choice, [TOOLS_IN_PROMPT]),
    Question("one call at a time", probes.ONE, _judge_one_call, [Remedy({"supports_parallel_calls": False}), TOOLS_IN_PROMPT]),
    Question("several calls at once", probes.SEVERAL, _judge_several_calls, [Remedy({"supports_parallel_calls": False})]),
    Question(
        "goes on after a result", probes.RESULT, _judge_continuation,
        [Remedy({"result_format": "prose"}), Remedy({"answer_after": "results"}), TOOLS_IN_PROMPT],
    ),
    Question("thoughts sent back", probes.THOUGHTS, _check_accepted, [
        Remedy({"reasoning_field": "reasoning"}), Remedy({"reasoning_field": ""}),
    ]),
    Question("several system messages", probes.SYSTEMS, _check_accepted, [Remedy({"merge_system_messages": True})]),
    Question("pictures", probes.PARTS, _judge_picture, [Remedy({"supports_content_parts": False})]),
    Question("strict of tools", probes.STRICT, _check_accepted, [Remedy({"supports_strict": False})]),
    Question("effort", probes.EFFORT, _check_accepted, [
        Remedy({"efforts": ["low", "medium"]}), Remedy({"efforts": [""]}),  # "" is none that could be sent
    ]),
)  # fmt: skip

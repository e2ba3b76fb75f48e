"""What one agent of a run does, as AG-UI events: its text, its reasoning, its calls and their results, and its steps.

A reply may be told twice: its pieces while it comes, and its canisters when it was committed. `_reply` holds the parts
that were told in pieces until canisters confirm them. What they say otherwise is void, and so is a reply that is asked
for again; the thread is stale then.

Laws: what begins has an end; a reply is told once, whether as pieces, as canisters, or as both; constant work for each
piece.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec

from callboard.coding.jobs.log import PhaseEnded, PhaseStarted, PromptSent, Resumed
from callboard.core import (
    ArgumentsPiece,
    AssistantCanister,
    Canister,
    DocumentCanister,
    InvocationCanister,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Nested,
    ReasoningContent,
    ReasoningPiece,
    RefusalContent,
    RefusalPiece,
    ReplyEnded,
    ReplyFailed,
    ReplyStarted,
    ResultCanister,
    ResultReady,
    RolledBack,
    RoundStarted,
    RunEnded,
    SupervisorCanister,
    TextPiece,
    TextualContent,
    UserCanister,
)
from callboard.jobs.entries import Item
from callboard.servers.agui.conversation import AguiThread, ThreadCall, ThreadMessage, result_content
from callboard.servers.agui.custom_events import custom_event
from callboard.servers.agui.events import (
    AguiEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentOutcome,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)

_Events: TypeAlias = list[AguiEvent]
_Kind: TypeAlias = Literal["text", "refusal", "reasoning", "call"]

_REFUSAL: Final[Mapping[str, Any]] = {"callboard": {"refusal": True}}
_ROLES: Final = {UserCanister: "user", SupervisorCanister: "system", DocumentCanister: "user"}


class _Part:
    """A text, a thought or a call of the reply that comes."""

    __slots__ = ("call", "is_open", "is_signed", "kind", "message", "origin", "texts")

    def __init__(self, kind: _Kind, message: ThreadMessage, origin: str = "", call: ThreadCall | None = None) -> None:
        self.kind = kind
        self.message = message
        self.origin = origin
        self.call = call
        self.texts = message.texts if call is None else call.arguments
        self.is_open = True
        self.is_signed = False
        """Whether what follows is a thought of its own, as it is behind a signature."""


class AgentStream:
    """The events of one agent.

    Args:
        thread: The messages of the whole thread.
        author: The identifier of the run within the run, "" for the run itself.
        canisters: How many canisters the conversation has before the first that is fed.
    """

    def __init__(self, thread: AguiThread, author: str = "", canisters: int = 0) -> None:
        self._thread = thread
        self._author = author
        self._reply: deque[_Part] = deque()
        """The parts that no canister has confirmed, in order."""
        self._is_whole = False
        """Whether the reply that they are of has come to its end."""
        self._open: _Part | None = None
        """The text or thought that goes on."""
        self._calls: dict[int, _Part] = {}
        """The calls that go on, by their index in the reply."""
        self._turn: ThreadMessage | None = None
        """The message that the next call belongs to."""
        self._canisters_before = canisters
        self._marks: list[int] = [0] * canisters
        """Of each canister, the message with which it begins."""
        self._has_canisters = False
        """Whether canisters are fed: else the events tell which there are."""
        self.is_recorded = False
        """Whether what is said is void where no canister confirms it, as it is of a job."""
        self._spoken = 0
        """The message with which the canister of what is said just now begins; 0 where nothing was."""
        self._reply_begin = canisters
        """How many canisters there are before the reply that comes."""
        self._prompts: list[str] = []
        self._steps: dict[str, str] = {}
        """The names of the open steps: of the phase, and of the round."""
        self._runs: dict[str, tuple[str, AgentStream]] = {}
        """The runs within this one that go on, by the call that began each."""

    def feed(self, item: Item) -> _Events:
        """What an event, a step or a canister says."""
        handler = self._HANDLERS.get(type(item))
        return self._tell(item) if handler is None else handler(self, item)

    def close(self) -> _Events:
        """The ends of all that goes on."""
        events = self._add_prompt()
        events += self._void() if self.is_recorded and self._reply and not self._is_whole else self._close_reply()
        for name in [*self._runs]:
            events += self._end_run(name, "cut")
        for kind in [*self._steps]:
            events += self._end_step(kind)
        return events

    # What is said

    def _on_text(self, event: TextPiece) -> _Events:
        return self._say("text", event.text)

    def _on_refusal(self, event: RefusalPiece) -> _Events:
        return self._say("refusal", event.text)

    def _on_reasoning(self, event: ReasoningPiece) -> _Events:
        return self._say("reasoning", event.text, event.origin, event.opaque)

    def _say(self, kind: _Kind, text: str, origin: str = "", opaque: str = "") -> _Events:
        if self._is_whole:
            self._confirm_all()
        part = self._open
        goes_on = part is not None and part.kind == kind and part.origin == origin and not part.is_signed
        events: _Events = []
        if (text or opaque) and not self._spoken:
            self._spoken = self._thread.next_ordinal
        if text:
            if part is None or not goes_on:
                events += self._close_text()
                part, started = self._start_text(kind, origin)
                events += started
            part.texts.append(text)
            content = ReasoningMessageContentEvent if kind == "reasoning" else TextMessageContentEvent
            events.append(content(message_id=part.message.identifier, delta=text, subagent_run_id=self._author))
        if opaque and part is not None and part.kind == kind:
            part.is_signed = True
        return events

    def _start_text(self, kind: _Kind, origin: str = "") -> tuple[_Part, _Events]:
        is_thought = kind == "reasoning"
        fields = {"role": "reasoning" if is_thought else "assistant", **self._attribution()}
        if kind == "refusal":
            fields["metadata"] = _REFUSAL
        message = self._thread.add_message(**fields)
        part = self._open = _Part(kind, message, origin)
        self._reply.append(part)
        name, author = message.identifier, self._author
        self._turn = None if is_thought else message
        if is_thought:
            return part, [
                ReasoningStartEvent(message_id=name, subagent_run_id=author),
                ReasoningMessageStartEvent(message_id=name, role="reasoning", subagent_run_id=author),
            ]
        metadata = _REFUSAL if kind == "refusal" else None
        start = TextMessageStartEvent(message_id=name, role="assistant", subagent_run_id=author, metadata=metadata)
        return part, [start]

    def _close_text(self) -> _Events:
        part, self._open = self._open, None
        if part is None:
            return []
        part.is_open = False
        name, author = part.message.identifier, self._author
        if part.kind == "reasoning":
            return [
                ReasoningMessageEndEvent(message_id=name, subagent_run_id=author),
                ReasoningEndEvent(message_id=name, subagent_run_id=author),
            ]
        return [TextMessageEndEvent(message_id=name, subagent_run_id=author)]

    # What is called

    def _start_call(self, identifier: str, name: str) -> tuple[_Part, ThreadCall, _Events]:
        if self._is_whole:
            self._confirm_all()
        events = self._close_text()
        if self._turn is None:
            self._turn = self._thread.add_message(role="assistant", **self._attribution())
        call = self._thread.add_call(self._turn, identifier, name)
        part = _Part("call", self._turn, call=call)
        self._reply.append(part)
        start = ToolCallStartEvent(
            tool_call_id=call.identifier,
            tool_call_name=name,
            parent_message_id=self._turn.identifier,
            subagent_run_id=self._author,
        )
        return part, call, [*events, start]

    def _add_arguments(self, part: _Part, text: str) -> _Events:
        if not text or part.call is None or not part.is_open:
            return []
        part.texts.append(text)
        return [ToolCallArgsEvent(tool_call_id=part.call.identifier, delta=text, subagent_run_id=self._author)]

    def _end_call(self, part: _Part, arguments: Mapping[str, Any] | None, raw: str) -> _Events:
        """The rest of the arguments, and the end; what was told otherwise is void."""
        if part.call is None:
            return []
        events: _Events = []
        text, whole = "".join(part.texts), _arguments_text(arguments, raw)
        if part.is_open and whole.startswith(text):
            events = self._add_arguments(part, whole[len(text) :])
        elif text != whole and (arguments is None or _read(text) != arguments):
            part.texts[:] = [whole]
            self._thread.is_stale = True
        if part.is_open:
            part.is_open = False
            events.append(ToolCallEndEvent(tool_call_id=part.call.identifier, subagent_run_id=self._author))
        return events

    def _on_call_started(self, event: InvocationStarted) -> _Events:
        if self._is_whole:
            self._confirm_all()
        events = self._close_call(event.index)
        part, _, started = self._start_call(event.identifier, event.name)
        self._calls[event.index] = part
        return events + started

    def _on_arguments(self, event: ArgumentsPiece) -> _Events:
        part = self._calls.get(event.index)
        return [] if part is None else self._add_arguments(part, event.json)

    def _on_call_ended(self, event: InvocationEnded | InvocationIncomplete) -> _Events:
        arguments = event.arguments if isinstance(event, InvocationEnded) else None
        events: _Events = []
        part = self._calls.pop(event.index, None)
        if part is None:
            part, _, events = self._start_call(event.identifier, event.name)
        self._mark_said()
        self._mark(part.message.ordinal)
        return events + self._end_call(part, arguments, event.raw)

    def _close_call(self, index: int) -> _Events:
        part = self._calls.pop(index, None)
        if part is None or part.call is None or not part.is_open:
            return []
        part.is_open = False
        return [ToolCallEndEvent(tool_call_id=part.call.identifier, subagent_run_id=self._author)]

    # A reply's end, and what becomes of it

    def _close_reply(self) -> _Events:
        events = self._close_text()
        for index in [*self._calls]:
            events += self._close_call(index)
        self._turn = None
        return events

    def _on_reply_started(self, _: ReplyStarted) -> _Events:
        return self._void() if self._reply and not self._is_whole else []

    def _on_reply_ended(self, event: ReplyEnded | ReplyFailed) -> _Events:
        if isinstance(event, ReplyEnded) and event.reason == "retry":
            return self._void()
        events = self._close_reply()
        self._mark_said()
        self._reply_begin = len(self._marks)
        self._is_whole = True
        return events + (self._tell(event) if isinstance(event, ReplyFailed) else [])

    def _confirm_all(self) -> None:
        self._reply.clear()
        self._is_whole = False
        self._turn = None

    def _void(self) -> _Events:
        """The reply as far as it came is no part of the conversation."""
        events = self._close_reply()
        while self._reply:
            part = self._reply.pop()
            if part.call is None:
                self._thread.remove_message(part.message)
            else:
                self._thread.remove_call(part.call)
                if not part.message.calls and not part.message.texts:
                    self._thread.remove_message(part.message)
        self._is_whole = False
        self._spoken = 0
        if not self._has_canisters:
            del self._marks[self._reply_begin :]
        return events

    def _settle(self) -> _Events:
        """What comes behind a reply shows whether the reply came whole."""
        if self._is_whole or not self._reply:
            self._confirm_all()
            return []
        return self._void()

    # Canisters

    def _on_canister(self, canister: Canister) -> _Events:
        if not self._has_canisters:
            self._has_canisters = True
            del self._marks[self._canisters_before :]
        if not self._reply:
            self._is_whole = False
        begin = self._reply[0].message.ordinal if self._reply else self._thread.next_ordinal
        self._marks.append(begin)
        match canister:
            case AssistantCanister(content=content):
                events: _Events = []
                for each in content:
                    match each:
                        case TextualContent(text=text):
                            events += self._confirm_text("text", text)
                        case RefusalContent(text=text):
                            events += self._confirm_text("refusal", text)
                        case ReasoningContent(text=text):
                            events += self._confirm_text("reasoning", text)
                        case _:
                            pass
                return events
            case InvocationCanister():
                return self._confirm_call(canister)
            case ResultCanister():
                return self._answer(canister)
            case _:
                self._prompts.clear()
                return self._settle() + self._add_text(_ROLES[type(canister)], canister.text)

    def _confirm_text(self, kind: _Kind, text: str) -> _Events:
        """A text or thought of a canister, of which pieces may have been told."""
        if not text:
            return []
        events: _Events = []
        if self._reply:
            part = self._reply[0]
            sent = "".join(part.texts)
            if part.kind == kind and (sent == text or (part is self._open and text.startswith(sent))):
                if part is self._open:
                    events = self._say(kind, text[len(sent) :], part.origin) + self._close_text()
                self._reply.popleft()
                self._turn = None if kind == "reasoning" else part.message
                return events
            events = self._void()
        _, started = self._start_text(kind)
        events += started
        events += self._say(kind, text)
        events += self._close_text()
        self._reply.clear()
        self._spoken = 0
        return events

    def _confirm_call(self, canister: InvocationCanister) -> _Events:
        """A call of a canister, of which pieces may have been told; several calls may end in another order."""
        part, events = None, []
        if self._reply:
            calls = takewhile(lambda each: each.call is not None, self._reply)
            part = next((each for each in calls if _is_call(each, canister)), None)
            if part is None:
                events = self._void()
        if part is None:
            part, _, started = self._start_call(canister.identifier, canister.name)
            events += started
        self._reply.remove(part)
        if part.call is not None:
            self._thread.confirm_call(part.call)
        return events + self._end_call(part, canister.arguments, canister.raw)

    def _answer(self, result: ResultCanister) -> _Events:
        call = self._thread.answer(result.invocation_id)
        if call is None:
            return []
        events = self._end_run(result.invocation_id, "cut") if result.invocation_id in self._runs else []
        if self._is_whole or not self._reply or any(each.call is call for each in self._reply):
            # What has a result was said, whether a canister confirms it or not.
            self._confirm_all()
        content = result_content(result)
        metadata = None if result.error is None else {"callboard": {"error": result.error.category}}
        fields: dict[str, Any] = {"role": "tool", "content": content, "toolCallId": call.identifier}
        message = self._thread.add_message(
            **fields, **({"metadata": metadata} if metadata else {}), **self._attribution()
        )
        events.append(
            ToolCallResultEvent(
                message_id=message.identifier,
                tool_call_id=call.identifier,
                content=content,
                metadata=metadata,
                subagent_run_id=self._author,
            )
        )
        return events

    def _on_result(self, event: ResultReady) -> _Events:
        ordinal = self._thread.next_ordinal
        events = self._answer(event.canister)
        if events:
            self._mark(ordinal)
            self._reply_begin = len(self._marks)
        return events

    def _add_text(self, role: str, text: str) -> _Events:
        message = self._thread.add_message(role=role, **self._attribution())
        message.texts.append(text)
        name, author = message.identifier, self._author
        return [
            TextMessageStartEvent(message_id=name, role=role, subagent_run_id=author),
            TextMessageContentEvent(message_id=name, delta=text, subagent_run_id=author),
            TextMessageEndEvent(message_id=name, subagent_run_id=author),
        ]

    # Marks: which message a canister begins with, so that a conversation can be rolled back

    def _mark(self, ordinal: int) -> None:
        if not self._has_canisters:
            self._marks.append(ordinal)

    def _mark_said(self) -> None:
        """Where something was said besides calls, it is a canister of its own."""
        begin, self._spoken = self._spoken, 0
        if begin:
            self._mark(begin)

    def _on_rolled_back(self, event: RolledBack) -> _Events:
        events = self._close_reply()
        if event.to < self._canisters_before:
            self._thread.cut_earlier()
        if event.to < len(self._marks):
            self._thread.cut(self._marks[event.to])
            del self._marks[event.to :]
        self._reply.clear()
        self._is_whole = False
        self._reply_begin = len(self._marks)
        return events + self._tell(event)

    # Steps, prompts, and what is told beside the conversation

    def _on_round(self, event: RoundStarted) -> _Events:
        if self._is_whole:
            self._confirm_all()
        return [*self._add_prompt(), *self._begin_step("round", f"round {event.number}")]

    def _on_phase(self, event: PhaseStarted) -> _Events:
        return [*self._end_step("round"), *self._begin_step("phase", f"phase {event.name}")]

    def _on_phase_end(self, event: PhaseEnded) -> _Events:
        return [*self._end_step("round"), *self._end_step("phase"), *self._tell(event)]

    def begin_round(self, number: int) -> _Events:
        """A round begins, of which there is no event."""
        return self._begin_step("round", f"round {number}")

    def _begin_step(self, kind: str, name: str) -> _Events:
        events = self._end_step(kind)
        self._steps[kind] = name
        return [*events, StepStartedEvent(step_name=name, subagent_run_id=self._author)]

    def _end_step(self, kind: str) -> _Events:
        name = self._steps.pop(kind, "")
        return [StepFinishedEvent(step_name=name, subagent_run_id=self._author)] if name else []

    def _on_prompt(self, step: PromptSent) -> _Events:
        self._prompts.append(step.text)
        return []

    def _add_prompt(self) -> _Events:
        """A prompt that no canister repeats is a message of the user."""
        text, self._prompts = "\n\n".join(self._prompts), []
        return self._settle() + self._add_text("user", text) if text else []

    def _on_resumed(self, step: Resumed) -> _Events:
        return [*(self._void() if not self._is_whole else []), *self._tell(step)]

    def _on_run_ended(self, event: RunEnded) -> _Events:
        return [*self._close_reply(), *self._end_step("round"), *self._tell(event)]

    def _tell(self, item: Any) -> _Events:
        """What the protocol has no event for."""
        event = custom_event(item, self._thread, self._author)
        return [] if event is None else [event]

    # Runs within this one

    def _on_nested(self, event: Nested) -> _Events:
        events: _Events = []
        if event.identifier not in self._runs:
            call = self._thread.find_call(event.identifier)
            name = self._thread.name_subagent(call.identifier if call else event.identifier or event.name)
            self._runs[event.identifier] = (name, AgentStream(self._thread, name))
            events.append(
                SubagentStartedEvent(
                    subagent_run_id=name,
                    name=event.name,
                    parent_subagent_run_id=self._author,
                    parent_tool_call_id=call.identifier if call else "",
                )
            )
        _, stream = self._runs[event.identifier]
        events += stream.feed(event.event)
        if isinstance(event.event, RunEnded):
            events += self._end_run(event.identifier, event.event.state)
        return events

    def _end_run(self, call: str, state: str) -> _Events:
        name, stream = self._runs.pop(call)
        events = stream.close()
        if state in ("completed", "pending"):
            outcome = SubagentOutcome(type="success" if state == "completed" else "suspended")
            return [*events, SubagentFinishedEvent(subagent_run_id=name, outcome=outcome)]
        return [*events, SubagentErrorEvent(subagent_run_id=name, message=f"it did not complete: {state}", code=state)]

    def _attribution(self) -> dict[str, Any]:
        return {"subagentRunId": self._author} if self._author else {}

    _HANDLERS: ClassVar[Mapping[type, Callable[[Any, Any], _Events]]] = {
        TextPiece: _on_text,
        RefusalPiece: _on_refusal,
        ReasoningPiece: _on_reasoning,
        InvocationStarted: _on_call_started,
        ArgumentsPiece: _on_arguments,
        InvocationEnded: _on_call_ended,
        InvocationIncomplete: _on_call_ended,
        ReplyStarted: _on_reply_started,
        ReplyEnded: _on_reply_ended,
        ReplyFailed: _on_reply_ended,
        ResultReady: _on_result,
        RolledBack: _on_rolled_back,
        RoundStarted: _on_round,
        RunEnded: _on_run_ended,
        Nested: _on_nested,
        PhaseStarted: _on_phase,
        PhaseEnded: _on_phase_end,
        PromptSent: _on_prompt,
        Resumed: _on_resumed,
        **dict.fromkeys(
            (
                AssistantCanister,
                DocumentCanister,
                InvocationCanister,
                ResultCanister,
                SupervisorCanister,
                UserCanister,
            ),
            _on_canister,
        ),
    }


def _is_call(part: _Part, canister: InvocationCanister) -> bool:
    return part.call is not None and part.call.source == canister.identifier and part.call.name == canister.name


def _arguments_text(arguments: Mapping[str, Any] | None, raw: str) -> str:
    """As the model wrote them."""
    return raw or ("" if arguments is None else msgspec.json.encode(arguments).decode())


def _read(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None

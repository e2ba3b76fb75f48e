"""What one agent of a run does, as AG-UI events: its replies, the results of its calls, its steps, and runs within it.

Law: what begins has an end, whatever comes in between.

Which message each canister of a conversation begins with, so that a client's messages can be rolled back with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

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
from callboard.servers.agui.conversation import AguiThread, result_content
from callboard.servers.agui.custom_events import custom_event
from callboard.servers.agui.events import (
    StepFinishedEvent,
    StepStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentOutcome,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallResultEvent,
)
from callboard.servers.agui.reply_stream import AguiEvents, Kind, ReplyStream
from callboard.wires.common.sealed_reasoning import seal


class CanisterMarks:
    """The marks of a conversation; messages are named by their ordinals.

    Where canisters are fed, they are the conversation. Else the events of replies tell which canisters they leave: one
    for what is said between two calls, one for each call, one for each result.

    Args:
        count: How many canisters the conversation has before the first that is marked.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._marks = [0] * count
        self._reply_begin = count
        """How many canisters there are before the reply that comes."""
        self._speech = 0
        """Where the canister of what is said just now begins; 0 where nothing was."""
        self._has_canisters = False

    def add_canister(self, ordinal: int) -> None:
        """A canister that is fed."""
        if not self._has_canisters:
            self._has_canisters = True
            del self._marks[self._count :]
        self._speech = 0
        self._marks.append(ordinal)

    def begin_saying(self, ordinal: int) -> None:
        """Something is said, in this message at the earliest."""
        self._speech = self._speech or ordinal

    def end_saying(self) -> None:
        """What was said is a canister."""
        if self._speech:
            self.add(self._speech)
        self._speech = 0

    def add(self, ordinal: int) -> None:
        """A canister that events tell of."""
        if not self._has_canisters:
            self._marks.append(ordinal)

    def end_reply(self) -> None:
        """What was marked stays, whatever becomes of the next reply."""
        self._reply_begin = len(self._marks)

    def revoke_reply(self) -> None:
        """The canisters of the reply that comes are none."""
        self._speech = 0
        if not self._has_canisters:
            del self._marks[self._reply_begin :]

    def roll_back(self, to: int) -> tuple[int | None, bool]:
        """Leave so many canisters: the first message that is void, and whether earlier messages than ours are void too."""
        ordinal = self._marks[to] if to < len(self._marks) else None
        del self._marks[to:]
        self._reply_begin = len(self._marks)
        return ordinal, to < self._count


_ROLES: Final = {UserCanister: "user", SupervisorCanister: "system", DocumentCanister: "user"}
_KINDS: Final[Mapping[type, Kind]] = {
    TextualContent: "text",
    RefusalContent: "refusal",
    ReasoningContent: "reasoning",
}


class AgentStream:
    """The events of one agent.

    Args:
        thread: The messages of the whole thread.
        author: The identifier of the run within the run, "" for the run itself.
        canisters: How many canisters the conversation has before the first that is fed.
    """

    def __init__(self, thread: AguiThread, author: str = "", canisters: int = 0) -> None:
        self.is_recorded = False
        """Whether what is said is void where no canister confirms it, as it is of a job."""
        self._thread = thread
        self._author = author
        self._reply = ReplyStream(thread, author)
        self._marks = CanisterMarks(canisters)
        self._prompts: list[str] = []
        """Those that no canister has repeated."""
        self._counts_through = False
        """Whether rounds are those of a job, which says of each entry which one it is of."""
        self._steps: dict[str, str] = {}
        """The names of the open steps: of the phase, and of the round."""
        self._runs: dict[str, tuple[str, AgentStream]] = {}
        """The runs within this one that go on, by the call that began each."""

    def feed(self, item: Item) -> AguiEvents:
        """What an event, a step or a canister says."""
        handler = self._HANDLERS.get(type(item))
        return self._tell(item) if handler is None else handler(self, item)

    def begin_round(self, number: int) -> AguiEvents:
        """A round of a job begins, which counts its rounds through; a run within it begins anew, so its own do not count."""
        self._counts_through = True
        return self._begin_step("round", f"round {number}")

    def close(self) -> AguiEvents:
        """The ends of all that goes on."""
        events = self._add_prompt()
        events += self._revoke() if self.is_recorded and self._reply.is_unsure else self._reply.close()
        for name in [*self._runs]:
            events += self._end_run(name, "cut")
        for kind in [*self._steps]:
            events += self._end_step(kind)
        return events

    # Replies as events

    def _on_text(self, event: TextPiece) -> AguiEvents:
        return self._say("text", event.text)

    def _on_refusal(self, event: RefusalPiece) -> AguiEvents:
        return self._say("refusal", event.text)

    def _on_reasoning(self, event: ReasoningPiece) -> AguiEvents:
        return self._say("reasoning", event.text, event.origin, _encrypted_value(event))

    def _say(self, kind: Kind, text: str, origin: str = "", encrypted: str = "") -> AguiEvents:
        if text or encrypted:
            self._marks.begin_saying(self._thread.next_ordinal)
        return self._reply.say(kind, text, origin, encrypted)

    def _on_call_started(self, event: InvocationStarted) -> AguiEvents:
        return self._reply.begin_call(event.index, event.identifier, event.name)

    def _on_arguments(self, event: ArgumentsPiece) -> AguiEvents:
        return self._reply.add_arguments(event.index, event.json)

    def _on_call_ended(self, event: InvocationEnded | InvocationIncomplete) -> AguiEvents:
        arguments = event.arguments if isinstance(event, InvocationEnded) else None
        ordinal, events = self._reply.end_call(event.index, event.identifier, event.name, arguments, event.raw)
        self._marks.end_saying()
        self._marks.add(ordinal)
        return events

    def _on_reply_started(self, _: ReplyStarted) -> AguiEvents:
        return self._revoke() if self._reply.is_unsure else []

    def _on_reply_ended(self, event: ReplyEnded | ReplyFailed) -> AguiEvents:
        if isinstance(event, ReplyEnded) and event.reason == "retry":
            return self._revoke()
        events = self._reply.close()
        self._marks.end_saying()
        self._marks.end_reply()
        self._reply.is_whole = True
        return events + (self._tell(event) if isinstance(event, ReplyFailed) else [])

    def _on_result(self, event: ResultReady) -> AguiEvents:
        ordinal = self._thread.next_ordinal
        events = self._answer(event.canister)
        if events:
            self._marks.add(ordinal)
            self._marks.end_reply()
        return events

    def _revoke(self) -> AguiEvents:
        self._marks.revoke_reply()
        return self._reply.revoke()

    # Canisters

    def _on_canister(self, canister: Canister) -> AguiEvents:
        self._marks.add_canister(self._reply.begin)
        match canister:
            case AssistantCanister(content=content):
                events: AguiEvents = []
                for each in content:
                    kind = _KINDS.get(type(each))
                    if kind is not None:
                        encrypted = _encrypted_value(each) if isinstance(each, ReasoningContent) else ""
                        events += self._reply.confirm_text(kind, each.text, encrypted)  # type: ignore[union-attr]  # these have one
                return events
            case InvocationCanister():
                return self._reply.confirm_call(canister)
            case ResultCanister():
                return self._answer(canister)
            case _:
                self._prompts.clear()
                return self._reply.settle() + self._add_text(_ROLES[type(canister)], canister.text)

    def _answer(self, result: ResultCanister) -> AguiEvents:
        call = self._thread.answer(result.invocation_id, self._author)
        if call is None:
            return []
        events = self._end_run(result.invocation_id, "cut") if result.invocation_id in self._runs else []
        if not self._reply.is_unsure or self._reply.has_call(call):
            # What has a result was said, whether a canister confirms it or not.
            self._reply.confirm()
        elif self.is_recorded:
            # The reply whose calls have results was confirmed before: the rest is of one that was asked for again.
            events += self._revoke()
        content = result_content(result)
        metadata = None if result.error is None else {"callboard": {"error": result.error.category}}
        more = {**self._attribution, **({"metadata": metadata} if metadata else {})}
        message = self._thread.add_message(role="tool", content=content, toolCallId=call.identifier, **more)
        result_event = ToolCallResultEvent(
            message_id=message.identifier,
            tool_call_id=call.identifier,
            content=content,
            metadata=metadata,
            subagent_run_id=self._author,
        )
        return [*events, result_event]

    def _add_text(self, role: str, text: str) -> AguiEvents:
        message = self._thread.add_message(role=role, **self._attribution)
        message.texts.append(text)
        name, author = message.identifier, self._author
        content = [TextMessageContentEvent(message_id=name, delta=text, subagent_run_id=author)] if text else []
        return [
            TextMessageStartEvent(message_id=name, role=role, subagent_run_id=author),
            *content,
            TextMessageEndEvent(message_id=name, subagent_run_id=author),
        ]

    def _on_rolled_back(self, event: RolledBack) -> AguiEvents:
        events = self._reply.close()
        ordinal, is_earlier = self._marks.roll_back(event.to)
        if is_earlier:
            self._thread.cut_earlier()
        if ordinal is not None:
            self._thread.cut(ordinal)
        self._reply.confirm()
        return events + self._tell(event)

    # Steps, prompts, and what is told beside the conversation

    def _on_round(self, event: RoundStarted) -> AguiEvents:
        if self._reply.is_whole:
            self._reply.confirm()
        step = [] if self._counts_through else self._begin_step("round", f"round {event.number}")
        return [*self._add_prompt(), *step]

    def _on_phase(self, event: PhaseStarted) -> AguiEvents:
        return [*self._end_step("round"), *self._begin_step("phase", f"phase {event.name}")]

    def _on_phase_end(self, event: PhaseEnded) -> AguiEvents:
        return [*self._end_step("round"), *self._end_step("phase"), *self._tell(event)]

    def _begin_step(self, kind: str, name: str) -> AguiEvents:
        if self._steps.get(kind) == name:
            return []
        events = self._end_step(kind)
        self._steps[kind] = name
        return [*events, StepStartedEvent(step_name=name, subagent_run_id=self._author)]

    def _end_step(self, kind: str) -> AguiEvents:
        name = self._steps.pop(kind, "")
        return [StepFinishedEvent(step_name=name, subagent_run_id=self._author)] if name else []

    def _on_prompt(self, step: PromptSent) -> AguiEvents:
        self._prompts.append(step.text)
        return []

    def _add_prompt(self) -> AguiEvents:
        """A prompt that no canister repeats is a message of the user."""
        text, self._prompts = "\n\n".join(self._prompts), []
        return self._reply.settle() + self._add_text("user", text) if text else []

    def _on_resumed(self, step: Resumed) -> AguiEvents:
        return [*(self._revoke() if self._reply.is_unsure else []), *self._tell(step)]

    def _on_run_ended(self, event: RunEnded) -> AguiEvents:
        return [*self._reply.close(), *self._end_step("round"), *self._tell(event)]

    def _tell(self, item: Any) -> AguiEvents:
        """What the protocol has no event for."""
        event = custom_event(item, self._thread, self._author)
        return [] if event is None else [event]

    # Runs within this one

    def _on_nested(self, event: Nested) -> AguiEvents:
        events: AguiEvents = []
        if event.identifier not in self._runs:
            call = self._thread.find_call(event.identifier, self._author)
            name = self._thread.name_subagent(call.identifier if call else event.identifier or event.name)
            self._runs[event.identifier] = (name, AgentStream(self._thread, name))
            start = SubagentStartedEvent(
                subagent_run_id=name,
                name=event.name,
                parent_subagent_run_id=self._author,
                parent_tool_call_id=call.identifier if call else "",
            )
            events.append(start)
        _, stream = self._runs[event.identifier]
        events += stream.feed(event.event)
        if isinstance(event.event, RunEnded):
            events += self._end_run(event.identifier, event.event.state)
        return events

    def _end_run(self, call: str, state: str) -> AguiEvents:
        name, stream = self._runs.pop(call)
        events = stream.close()
        if state in ("completed", "pending"):
            outcome = SubagentOutcome(type="success" if state == "completed" else "suspended")
            return [*events, SubagentFinishedEvent(subagent_run_id=name, outcome=outcome)]
        return [*events, SubagentErrorEvent(subagent_run_id=name, message=f"it did not complete: {state}", code=state)]

    @property
    def _attribution(self) -> dict[str, Any]:
        return {"subagentRunId": self._author} if self._author else {}

    _HANDLERS: ClassVar[Mapping[type, Callable[[Any, Any], AguiEvents]]] = {
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
        AssistantCanister: _on_canister,
        DocumentCanister: _on_canister,
        InvocationCanister: _on_canister,
        ResultCanister: _on_canister,
        SupervisorCanister: _on_canister,
        UserCanister: _on_canister,
    }


def _encrypted_value(thought: ReasoningPiece | ReasoningContent) -> str:
    """The provider's own form of a thought, with the model's name: no other model gets it when it comes back."""
    return seal(thought.opaque, thought.origin) if thought.opaque else ""

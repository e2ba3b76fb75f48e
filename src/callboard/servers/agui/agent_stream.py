"""The work of one agent as AG-UI events: its replies, the results of its calls, its steps, and its nested runs.

Law: everything that begins also ends, even if other events come in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from callboard.coding.job import PhaseEnded, PhaseStarted, Resumed
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
from callboard.servers.agui.conversation import AguiThread
from callboard.servers.agui.events import custom_event, encode_part, make_event
from callboard.servers.agui.reply_stream import AguiEvents, Kind, ReplyStream
from callboard.wires.common.contents import seal

_ROLES: Final = {UserCanister: "user", SupervisorCanister: "system", DocumentCanister: "user"}
_KINDS: Final[Mapping[type, Kind]] = {
    **dict.fromkeys((TextPiece, TextualContent), "text"),
    **dict.fromkeys((RefusalPiece, RefusalContent), "refusal"),
    **dict.fromkeys((ReasoningPiece, ReasoningContent), "reasoning"),
}


class AgentStream:
    """The events of one agent.

    Args:
        thread: The messages of the whole thread.
        author: Identifier of the nested run, "" for the run itself.
        canisters: Number of canisters of the conversation before the first one that is fed.
    """

    def __init__(self, thread: AguiThread, author: str = "", canisters: int = 0) -> None:
        self.is_recorded = False
        """True for a job: its canisters confirm its replies."""
        self._thread = thread
        self._author = author
        self._reply = ReplyStream(thread, author)
        self._count = canisters
        self._marks = [0] * canisters
        """For each canister of the conversation, the ordinal of its first message."""
        self._steps: dict[str, str] = {}
        """Names of the open steps, for the phase and for the round."""
        self._runs: dict[str, tuple[str, AgentStream]] = {}
        """The open nested runs, by the call that began each of them."""

    def feed(self, item: Item) -> AguiEvents:
        match item:
            case TextPiece() | RefusalPiece():
                return self._reply.say(_KINDS[type(item)], item.text)
            case ReasoningPiece():
                return self._reply.say("reasoning", item.text, item.origin, _encrypted_value(item))
            case InvocationStarted():
                return self._reply.begin_call(item.index, item.identifier, item.name)
            case ArgumentsPiece():
                return self._reply.add_arguments(item.index, item.json)
            case InvocationEnded() | InvocationIncomplete():
                arguments = item.arguments if isinstance(item, InvocationEnded) else None
                call = InvocationCanister(item.identifier, item.name, arguments, item.raw)
                return self._reply.end_call(item.index, call)
            case ReplyStarted() | Resumed():  # the previous reply is void
                return self._reply.revoke() + self._send_custom(item)
            case ReplyEnded(reason="retry"):
                return self._reply.revoke()
            case ReplyEnded() | ReplyFailed():
                events = self._reply.close()
                self._marks += self._reply.confirm()
                return events + self._send_custom(item)
            case ResultReady(canister=canister):
                return self._on_result(canister)
            case RolledBack():
                return self._on_rolled_back(item)
            case RoundStarted(number=number):  # the entries of a job count its rounds themselves
                return [] if self.is_recorded else self.begin_round(number)
            case RunEnded():
                return [*self._reply.close(), *self._end_step("round"), *self._send_custom(item)]
            case Nested():
                return self._on_nested(item)
            case PhaseStarted(name=name):
                return [*self._end_step("round"), *self._begin_step("phase", f"phase {name}")]
            case PhaseEnded():
                return [*self._end_step("round"), *self._end_step("phase"), *self._send_custom(item)]
            case _ if isinstance(item, Canister):
                return self._on_canister(item)
            case _:
                return self._send_custom(item)

    def begin_round(self, number: int) -> AguiEvents:
        return self._begin_step("round", f"round {number}")

    def close(self) -> AguiEvents:
        events = self._reply.revoke() if self.is_recorded else self._reply.close()
        for name in [*self._runs]:
            events += self._end_run(name, "cut")
        for kind in [*self._steps]:
            events += self._end_step(kind)
        return events

    def _on_result(self, canister: ResultCanister) -> AguiEvents:
        self._marks += self._reply.confirm()
        ordinal = self._thread.next_ordinal
        events = self._answer(canister)
        self._marks += [ordinal] if events else []
        return events

    # Canisters

    def _on_canister(self, canister: Canister) -> AguiEvents:
        self._marks.append(self._reply.begin)
        match canister:
            case AssistantCanister(content=content):
                events: AguiEvents = []
                for each in content:
                    if isinstance(each, TextualContent | RefusalContent | ReasoningContent):
                        encrypted = _encrypted_value(each) if isinstance(each, ReasoningContent) else ""
                        events += self._reply.confirm_text(_KINDS[type(each)], each.text, encrypted)
                return events
            case InvocationCanister():
                return self._reply.confirm_call(canister)
            case ResultCanister():
                return self._answer(canister)
            case _:
                return self._reply.revoke() + self._add_text(_ROLES[type(canister)], canister.text)

    def _answer(self, result: ResultCanister) -> AguiEvents:
        call = self._thread.answer(result.invocation_id, self._author)
        if call is None:
            return []
        events = self._end_run(result.invocation_id, "cut") if result.invocation_id in self._runs else []
        # All canisters of the reply came before, so the remaining parts belong to a reply that was retried.
        events += self._reply.revoke()
        content: Any = result.text
        if not all(isinstance(each, TextualContent) for each in result.content):
            content = [part for each in result.content if (part := encode_part(each)) is not None]
        fields: dict[str, Any] = {"toolCallId": call.identifier, "content": content}
        if result.error is not None:
            fields["metadata"] = {"callboard": {"error": result.error.category}}
        message = self._thread.add_message(role="tool", **fields, **self._attribution)
        return [*events, make_event("TOOL_CALL_RESULT", self._author, messageId=message.identifier, **fields)]

    def _add_text(self, role: str, text: str) -> AguiEvents:
        message = self._thread.add_message(role=role, **self._attribution)
        message.texts.append(text)
        name = message.identifier
        events = [make_event("TEXT_MESSAGE_START", self._author, messageId=name, role=role)]
        if text:
            events.append(make_event("TEXT_MESSAGE_CONTENT", self._author, messageId=name, delta=text))
        return [*events, make_event("TEXT_MESSAGE_END", self._author, messageId=name)]

    def _on_rolled_back(self, event: RolledBack) -> AguiEvents:
        events = self._reply.close()
        self._marks += self._reply.confirm()
        if event.to < self._count:
            self._thread.cut_earlier()
        if event.to < len(self._marks):
            self._thread.cut(self._marks[event.to])
        del self._marks[event.to :]
        return events + self._send_custom(event)

    # Steps and custom events

    def _begin_step(self, kind: str, name: str) -> AguiEvents:
        if self._steps.get(kind) == name:
            return []
        events = self._end_step(kind)
        self._steps[kind] = name
        return [*events, make_event("STEP_STARTED", self._author, stepName=name)]

    def _end_step(self, kind: str) -> AguiEvents:
        name = self._steps.pop(kind, "")
        return [make_event("STEP_FINISHED", self._author, stepName=name)] if name else []

    def _send_custom(self, item: Any) -> AguiEvents:
        event = custom_event(item, self._thread, self._author)
        return [] if event is None else [event]

    # Nested runs

    def _on_nested(self, event: Nested) -> AguiEvents:
        events: AguiEvents = []
        if event.identifier not in self._runs:
            call = self._thread.find_call(event.identifier, self._author)
            name = self._thread.name_subagent(call.identifier if call else event.identifier or event.name)
            self._runs[event.identifier] = (name, AgentStream(self._thread, name))
            start = make_event(
                "SUBAGENT_STARTED",
                subagentRunId=name,
                name=event.name,
                parentSubagentRunId=self._author or None,
                parentToolCallId=call.identifier if call else None,
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
            outcome = {"type": "success" if state == "completed" else "suspended"}
            return [*events, make_event("SUBAGENT_FINISHED", name, outcome=outcome)]
        return [*events, make_event("SUBAGENT_ERROR", name, message=f"it did not complete: {state}", code=state)]

    @property
    def _attribution(self) -> dict[str, Any]:
        return {"subagentRunId": self._author} if self._author else {}


def _encrypted_value(thought: ReasoningPiece | ReasoningContent) -> str:
    """Return the provider's own form of a thought, sealed with the model's name, so that no other model receives it."""
    return seal(thought.opaque, thought.origin) if thought.opaque else ""

"""The Stage from the events of a run, or the entries of a job, to the events of AG-UI 1.0.

A run's events are fed as they come. A job's entries are fed together with the pieces of the open reply, as from
`JobHandle.events`, and with the job's row and its open approvals if they are known. `start` begins the run. `finish`
ends it with the state of the last row or of `RunEnded`.

Laws: each start has its end. Identifiers of messages and calls are unique. Entries produce the same conversation with
or without pieces. Each event costs constant work, except a void reply or a rollback: these send all messages again.

Approvals and questions are the interrupts of AG-UI 1.0; resume entries answer them.

The identifier of an interrupt contains the job, the call, and the digest of what would run. An answer therefore finds
its job, and applies only to what was shown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import to_builtins

from callboard.core import ApprovalAnswered, ApprovalAsked, Event, ReplyFailed, RunEnded, Usage, Why
from callboard.errors import CallerError
from callboard.jobs.entries import Item, JobEntry
from callboard.jobs.handle import JobEvent
from callboard.jobs.job import Approval, JobSummary
from callboard.servers.agui.agent_stream import AgentStream
from callboard.servers.agui.conversation import AguiThread
from callboard.servers.agui.events import PROTOCOL_VERSION, AguiEvent, make_event

_APPROVAL_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "editedArgs": {"type": "object", "description": "Arguments in the place of the model's own."},
        "reason": {"type": "string", "description": "Why not; the model reads it."},
    },
    "required": ["approved"],
}
_ANSWER_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
}


class InterruptAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an interrupt, as `DurableStore.answer` takes it."""

    call_id: str
    digest: str
    verdict: Literal["allow", "deny"] = "allow"
    reason: str = ""
    text: str = ""
    edited: dict[str, Any] | None = None


def interrupt_id(approval: Approval, job_id: str) -> str:
    return f"{job_id}/{approval.call_id}:{approval.digest}"


def job_of_interrupt(identifier: str) -> str:
    """Return the job of an interrupt's identifier. Other texts return no existing job."""
    return identifier.partition("/")[0]


def make_interrupt(approval: Approval, job_id: str, tool_call_id: str) -> dict[str, Any]:
    """Make the interrupt of an approval or a question. `tool_call_id` is the client's identifier of the call."""
    interrupt: dict[str, Any] = {
        "id": interrupt_id(approval, job_id),
        "reason": "input_required" if approval.is_question else "tool_call",
        "message": approval.why,
        "toolCallId": tool_call_id,
        "responseSchema": _ANSWER_SCHEMA if approval.is_question else _APPROVAL_SCHEMA,
    }
    subject = {"name": approval.name, "arguments": approval.arguments, "digest": approval.digest}
    return {**{name: value for name, value in interrupt.items() if value}, "metadata": {"callboard": subject}}


def read_answer(approval: Approval, status: str, payload: Any, path: str) -> InterruptAnswer:
    """Read the answer in a `resume` entry. Only the value true allows a call.

    Args:
        approval: The approval that the interrupt asked for.
        status: "resolved", or "cancelled" if nobody answered.
        payload: The answer.
        path: Path of the entry, for errors.

    Raises:
        CallerError: The payload does not fit the interrupt.
    """
    call_id, digest = approval.call_id, approval.digest
    if status == "cancelled":
        return InterruptAnswer(call_id=call_id, digest=digest, verdict="deny", reason="nobody answered")
    if approval.is_question:
        text = payload.get("text") if isinstance(payload, dict) else payload
        if not isinstance(text, str):
            raise CallerError("an answer is wanted", path=f"{path}.payload", hint='give {"text": "..."}')
        return InterruptAnswer(call_id=call_id, digest=digest, text=text)
    if not isinstance(payload, dict) or not isinstance(payload.get("approved"), bool):
        hint = 'give {"approved": true} or {"approved": false}'
        raise CallerError("whether the call may run is wanted", path=f"{path}.payload", hint=hint)
    edited, reason = payload.get("editedArgs"), payload.get("reason", "")
    if edited is not None and not isinstance(edited, dict):
        raise CallerError("arguments are an object", path=f"{path}.payload.editedArgs")
    if not isinstance(reason, str):
        raise CallerError("a reason is a text", path=f"{path}.payload.reason")
    if not payload["approved"]:
        return InterruptAnswer(call_id=call_id, digest=digest, verdict="deny", reason=reason)
    return InterruptAnswer(call_id=call_id, digest=digest, edited=edited)


AguiInput: TypeAlias = Item | Event | JobEvent | JobEntry | JobSummary | Approval

_WHY: Final[Mapping[Why, str]] = {"stop": "completed", "length": "incomplete", "cut": "cut", "cancelled": "cancelled"}
"""State of a run whose events end without a state."""
_JOB_FIELDS: Final = (
    *("id", "kind", "state", "reason", "waits_for", "title", "model", "error", "phase", "parent", "schedule", "rounds"),
    *("calls", "usage", "cost", "entries", "created_at", "started_at", "completed_at", "updated_at"),
)
"""Fields of a job's row that the client receives."""
_JOB_STATES: Final[Mapping[str, str]] = {
    "completed": "completed",
    "cancelled": "cancelled",
    "failed": "failed",
    "interrupted": "failed",
}
"""How a job's final state ends the run. In other states the job continues later."""


class AguiEncoder:
    """A Stage: events, steps, canisters, entries, rows of a job and approvals in, AG-UI events out.

    Args:
        thread_id: The client's identifier of the conversation.
        run_id: The run.
        parent_run_id: The run that began this one.
        job_id: The job of the run. It is the prefix of message and interrupt identifiers; the default is the run's
            identifier. It is unique in the thread.
        messages: Messages that the client already has, in the form that the client sent.
        canisters: Number of canisters of the conversation before the first one that is fed.
        client_tools: The names of the tools that the client runs itself.
    """

    def __init__(
        self,
        thread_id: str,
        run_id: str,
        *,
        parent_run_id: str = "",
        job_id: str = "",
        messages: Iterable[Mapping[str, Any]] = (),
        canisters: int = 0,
        client_tools: Collection[str] = (),
    ) -> None:
        self._ids = {"threadId": thread_id, "runId": run_id}
        self._parent_run_id = parent_run_id or None
        self._job_id = job_id or run_id
        self._thread = AguiThread(self._job_id, messages)
        self._stream = AgentStream(self._thread, canisters=canisters)
        self._client_tools = frozenset(client_tools)
        self._has_started = False
        self._has_ended = False
        self._round = 0
        self._reasons: dict[str, str] = {}
        """Reasons why calls of a run need approval, by call identifier."""
        self._approvals: dict[str, Approval] = {}
        """Approvals that the run waits for, by call identifier."""
        self._state = ""
        self._message = ""
        """Why the run failed."""
        self._code = ""
        self._result: Any = None
        self._usage = Usage()
        self._used: Usage | None = None
        """Usage of the job before this run."""
        self._model = ""

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """The messages of the conversation so far."""
        return self._thread.snapshot()

    def start(self) -> list[AguiEvent]:
        """Return the event that begins the run, or nothing if the run has already begun."""
        if self._has_started:
            return []
        self._has_started = True
        fields = {**self._ids, "protocolVersion": PROTOCOL_VERSION, "parentRunId": self._parent_run_id}
        return [make_event("RUN_STARTED", **fields)]

    def feed(self, item: AguiInput, /) -> list[AguiEvent]:
        """Return the events that `item` makes, or nothing after the end of the run."""
        if self._has_ended:
            return []
        events = self.start()
        match item:
            case JobEntry(round=number) | JobEvent(round=number):
                return events + self._feed_entry(item.item, number)
            case JobSummary():
                return events + self._take_job(item)
            case Approval():
                return events + self._take_approval(item)
            case _:
                pass
        return events + self._feed(item)

    def finish(self, why: Why = "stop", /) -> list[AguiEvent]:
        """Return the events that close everything open, and the run. `why` says how it ended."""
        if self._has_ended:
            return []
        events = [*self.start(), *self._add_snapshot(self._stream.close())]
        self._has_ended = True
        return [*events, self._end(self._state or _WHY[why])]

    def fail(self, message: str, code: str) -> list[AguiEvent]:
        """Return the events that close everything open, and an error with `message` and `code` instead of the run's
        end.
        """
        self._state, self._message, self._code = "failed", message, code
        return self.finish("cut")

    def _feed(self, item: Item) -> list[AguiEvent]:
        match item:
            case ApprovalAsked(invocation=call, why=why):
                self._reasons[call.identifier] = why
            case ApprovalAnswered(invocation=call, verdict="defer"):
                why = self._reasons.get(call.identifier, item.why)
                arguments = None if call.arguments is None else dict(call.arguments)
                self._approvals[call.identifier] = Approval(
                    call_id=call.identifier, name=call.name, arguments=arguments, why=why
                )
            case ApprovalAnswered(invocation=call):
                self._approvals.pop(call.identifier, None)
            case ReplyFailed(message=message, code=code):
                self._message, self._code = message, code
            case RunEnded(state=state, output=output, usage=usage):
                self._state, self._result, self._usage = state, output, usage
            case _:
                pass
        return self._add_snapshot(self._stream.feed(item))

    def _feed_entry(self, item: Item, number: int) -> list[AguiEvent]:
        events: list[AguiEvent] = []
        self._stream.is_recorded = True
        if number > self._round:
            self._round = number
            events = self._stream.begin_round(number)
        return events + self._feed(item)

    def _add_snapshot(self, events: list[AguiEvent]) -> list[AguiEvent]:
        if self._thread.is_stale:
            events.append(make_event("MESSAGES_SNAPSHOT", messages=self._thread.snapshot()))
        return events

    # End of the run

    def _take_job(self, job: JobSummary) -> list[AguiEvent]:
        used = Usage.from_counts(job.usage)
        if self._used is None:
            self._used = used
        self._usage = used - self._used
        self._model = job.model
        self._state = _JOB_STATES.get(job.state, "pending")
        self._message = job.error or job.reason
        self._code = job.state
        value = {name: to_builtins(getattr(job, name)) for name in _JOB_FIELDS}
        return [make_event("CUSTOM", name="callboard.job", value=value)]

    def _take_approval(self, approval: Approval) -> list[AguiEvent]:
        if approval.verdict:
            self._approvals.pop(approval.call_id, None)
        else:
            self._approvals[approval.call_id] = approval
        value = {**to_builtins(approval), "toolCallId": self._thread.client_call_id(approval.call_id)}
        return [make_event("CUSTOM", name="callboard.approval", value=value)]

    def _usages(self) -> list[dict[str, Any]] | None:
        """Return the tokens of the run, without zero counts: the tokens may not have been counted."""
        usage = self._usage
        if usage == Usage():
            return None
        counts = {
            "model": self._model,
            "inputTokens": usage.input,
            "outputTokens": usage.output,
            "totalTokens": usage.input + usage.output,
            "reasoningTokens": usage.reasoning,
            "cachedInputTokens": usage.cached,
        }
        return [{name: value for name, value in counts.items() if value}]

    def _end(self, state: str) -> AguiEvent:
        match state:
            case "failed":
                message = self._message or "the run failed"
                return make_event("RUN_ERROR", message=message, code=self._code or None, usage=self._usages())
            case "cut":
                return make_event("RUN_ERROR", message="the run was cut off", code="cut", usage=self._usages())
            case "incomplete" | "cancelled":
                return self._finish_run({"type": "cancelled"})
            case _:
                pass
        interrupts = [
            make_interrupt(each, self._job_id, self._thread.client_call_id(each.call_id))
            for each in (self._approvals.values() if state == "pending" else ())
            if not (each.name in self._client_tools and each.is_question)
        ]
        if interrupts:
            return self._finish_run({"type": "interrupt", "interrupts": interrupts})
        pending = [name for name, call in self._thread.unanswered.items() if not call.message.author]
        outcome = {"type": "success", **({"pendingToolCallIds": pending} if pending else {})}
        return self._finish_run(outcome, self._result)

    def _finish_run(self, outcome: dict[str, Any], result: Any = None) -> AguiEvent:
        return make_event("RUN_FINISHED", **self._ids, result=result, outcome=outcome, usage=self._usages())

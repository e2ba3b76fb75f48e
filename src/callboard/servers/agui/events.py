"""The events of AG-UI 1.0 that Callboard sends, as values with the names of its specification.

The specification is https://docs.ag-ui.com/spec/1.0 (MIT). Of its 31 events those are left out that are a shorter form of
others (the chunks), that change a shared state, which is the client's alone here, and activities.

Law: what is encoded holds to the schema: no null, and no field that is not declared there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from callboard.coding.jobs.json_encoding import encode_json

PROTOCOL_VERSION: Final = "1.0"

JsonObject: TypeAlias = Mapping[str, Any]


class AguiEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", rename="camel"):
    """Any event. `metadata` says under `callboard` what the protocol has no field for."""

    metadata: JsonObject | None = None


class _Attributable(AguiEvent, frozen=True, kw_only=True):
    subagent_run_id: str = ""
    """The run within the run that it is of; "" is the run itself."""


class AguiInterrupt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a run waits for: an approval of a call, or an answer. `id` is named by whoever answers."""

    id: str
    reason: str
    message: str = ""
    tool_call_id: str = ""
    response_schema: JsonObject | None = None
    metadata: JsonObject | None = None


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """How a run ended that did not fail."""

    type: Literal["success", "interrupt", "cancelled"]
    interrupts: Sequence[AguiInterrupt] = ()
    pending_tool_call_ids: Sequence[str] = ()


class SubagentOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """How a run within the run ended that did not fail."""

    type: Literal["success", "suspended"]


class AguiUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Tokens of a run. A count of zero is left out: nobody may have counted it."""

    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    reasoning_tokens: int = 0
    cached_input_tokens: int = 0


class RunStartedEvent(AguiEvent, frozen=True, kw_only=True, tag="RUN_STARTED"):
    """The first event."""

    thread_id: str
    run_id: str
    protocol_version: str = ""
    parent_run_id: str = ""


class RunFinishedEvent(AguiEvent, frozen=True, kw_only=True, tag="RUN_FINISHED"):
    """The last event of a run that did not fail."""

    thread_id: str
    run_id: str
    result: Any = None
    outcome: RunOutcome | None = None
    usage: Sequence[AguiUsage] = ()


class RunErrorEvent(AguiEvent, frozen=True, kw_only=True, tag="RUN_ERROR"):
    """The last event of a run that failed."""

    message: str
    code: str = ""
    usage: Sequence[AguiUsage] = ()


class _StepEvent(_Attributable, frozen=True, kw_only=True):
    step_name: str


class StepStartedEvent(_StepEvent, frozen=True, tag="STEP_STARTED"):
    """A round or a phase begins."""


class StepFinishedEvent(_StepEvent, frozen=True, tag="STEP_FINISHED"):
    """A round or a phase is over."""


class _MessageEvent(_Attributable, frozen=True, kw_only=True):
    message_id: str


class _MessageStartEvent(_MessageEvent, frozen=True, kw_only=True):
    role: str


class _MessageContentEvent(_MessageEvent, frozen=True, kw_only=True):
    delta: str


class TextMessageStartEvent(_MessageStartEvent, frozen=True, tag="TEXT_MESSAGE_START"):
    """A message begins: of the model, or of the user."""


class TextMessageContentEvent(_MessageContentEvent, frozen=True, tag="TEXT_MESSAGE_CONTENT"):
    """The next piece of a message."""


class TextMessageEndEvent(_MessageEvent, frozen=True, tag="TEXT_MESSAGE_END"):
    """A message is whole."""


class ReasoningStartEvent(_MessageEvent, frozen=True, tag="REASONING_START"):
    """The model begins to think."""


class ReasoningMessageStartEvent(_MessageStartEvent, frozen=True, tag="REASONING_MESSAGE_START"):
    """A thought begins. Its role is written, though it is the only one there is."""


class ReasoningMessageContentEvent(_MessageContentEvent, frozen=True, tag="REASONING_MESSAGE_CONTENT"):
    """The next piece of a thought."""


class ReasoningMessageEndEvent(_MessageEvent, frozen=True, tag="REASONING_MESSAGE_END"):
    """A thought is whole."""


class ReasoningEndEvent(_MessageEvent, frozen=True, tag="REASONING_END"):
    """The model has thought."""


class ReasoningEncryptedValueEvent(_Attributable, frozen=True, kw_only=True, tag="REASONING_ENCRYPTED_VALUE"):
    """The provider's own form of a thought, which the client sends back with the thought's message."""

    subtype: Literal["message"]
    entity_id: str
    encrypted_value: str


class _CallEvent(_Attributable, frozen=True, kw_only=True):
    tool_call_id: str


class ToolCallStartEvent(_CallEvent, frozen=True, kw_only=True, tag="TOOL_CALL_START"):
    """A call begins."""

    tool_call_name: str
    parent_message_id: str = ""


class ToolCallArgsEvent(_CallEvent, frozen=True, kw_only=True, tag="TOOL_CALL_ARGS"):
    """The next piece of a call's arguments."""

    delta: str


class ToolCallEndEvent(_CallEvent, frozen=True, tag="TOOL_CALL_END"):
    """A call is whole; it has not run yet."""


class ToolCallResultEvent(_CallEvent, frozen=True, kw_only=True, tag="TOOL_CALL_RESULT"):
    """What came of a call."""

    message_id: str
    content: str | Sequence[JsonObject]


class MessagesSnapshotEvent(AguiEvent, frozen=True, kw_only=True, tag="MESSAGES_SNAPSHOT"):
    """All messages, in the place of those that were sent: some of these are void."""

    messages: Sequence[JsonObject]


class CustomEvent(_Attributable, frozen=True, kw_only=True, tag="CUSTOM"):
    """What the protocol has no event for; `name` begins with `callboard.`."""

    name: str
    value: Any


class SubagentStartedEvent(AguiEvent, frozen=True, kw_only=True, tag="SUBAGENT_STARTED"):
    """A tool begins a run within the run."""

    subagent_run_id: str
    name: str
    parent_subagent_run_id: str = ""
    parent_tool_call_id: str = ""


class SubagentFinishedEvent(AguiEvent, frozen=True, kw_only=True, tag="SUBAGENT_FINISHED"):
    """A run within the run has ended, or waits."""

    subagent_run_id: str
    outcome: SubagentOutcome | None = None


class SubagentErrorEvent(AguiEvent, frozen=True, kw_only=True, tag="SUBAGENT_ERROR"):
    """A run within the run did not complete."""

    subagent_run_id: str
    message: str
    code: str = ""


def encode_event(event: AguiEvent) -> bytes:
    """The event as one JSON object, in one line."""
    return encode_json(event)

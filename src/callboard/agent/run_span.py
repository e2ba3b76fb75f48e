"""The span of a run if telemetry is on: `invoke_agent`.

The run's generator never makes it the caller's current span. It is current only while the run itself awaits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from callboard.core import Canister, Model
from callboard.errors import CallboardError
from callboard.providers.inference_span import describe_model
from callboard.telemetry import Span, names, open_span, record
from callboard.telemetry.content import encode_messages, encode_reply

if TYPE_CHECKING:
    from callboard.agent.run import RunResult


def open_run_span(model: Model, transcript: Sequence[Canister]) -> Span:
    """Begin the span of a run that continues a conversation with a model."""
    span = open_span(names.INVOKE_AGENT, attributes=_describe(model))
    if span.max_content:
        span.set_content(names.INPUT_MESSAGES, encode_messages(transcript, span.max_content))
    return span


def end_run_span(span: Span, model: Model, result: RunResult[Any] | None, failure: CallboardError | None) -> None:
    """End the span of a run. Without a result the caller left the run early."""
    state = "cancelled" if result is None else result.state
    span.set({names.RUN_STATE: state})
    if result is not None:
        usage = result.usage
        span.set({names.RUN_ROUNDS: result.rounds, names.INPUT_TOKENS: usage.input, names.OUTPUT_TOKENS: usage.output})
        if span.max_content:
            span.set_content(names.OUTPUT_MESSAGES, encode_reply(result.canisters[-1:], state, span.max_content))
    if state in {"failed", "cancelled"}:
        span.fail(names.error_word(getattr(failure, "code", "") or (failure.party if failure else state)))
    failed = {names.ERROR_TYPE: span.error_type} if span.error_type else {}
    record(names.AGENT_DURATION, span.seconds, {**_describe(model), **failed})
    span.end()


def _describe(model: Model) -> Mapping[str, str]:
    return {names.OPERATION: names.INVOKE_AGENT, **describe_model(model)}

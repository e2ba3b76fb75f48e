"""The spans of a coding agent, where telemetry is on: `invoke_agent KIND` around a job, `phase NAME` around a phase.

The phase that plans is a `plan KIND` of the conventions: the requests to the model that make the plan are below it.
"""

from __future__ import annotations

from callboard.core import Model
from callboard.providers.inference_span import describe_model
from callboard.telemetry import NO_SPAN, Span, names, open_span, switch


def open_job_span(kind: str, model: Model, job: str) -> Span:
    """Begin the span of a job of a kind, by its name; runs of its agent are below it."""
    if switch.recorder is None:
        return NO_SPAN
    about = {**describe_model(model), names.OPERATION: names.INVOKE_AGENT, names.AGENT_NAME: kind, names.JOB_ID: job}
    return open_span(f"{names.INVOKE_AGENT} {kind}", attributes=about)


def open_phase_span(kind: str, phase: str) -> Span:
    """Begin the span of a phase of an agent."""
    if switch.recorder is None:
        return NO_SPAN
    about = {names.AGENT_NAME: kind, names.PHASE: phase}
    if phase == names.PLAN:
        return open_span(f"{names.PLAN} {kind}", attributes={**about, names.OPERATION: names.PLAN})
    return open_span(f"phase {phase}", attributes=about)

"""The spans of jobs, where telemetry is on, and what is logged and counted of a segment.

A job is one trace, whoever runs its segments and wherever: its input keeps the `traceparent` of whoever submitted it, or
that of a span of its own, and each segment's span is below that one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from callboard.telemetry import current_headers, names, open_span, switch
from callboard.telemetry.logs import set_log_subject

if TYPE_CHECKING:
    from callboard.jobs.claim import Claim
    from callboard.jobs.job import DurableJob

log = logging.getLogger("callboard.jobs")

TRACE: Final = "traceparent"
"""The key of a job's input."""
OnSegment: TypeAlias = Callable[["DurableJob", "DurableJob", float], None]
"""Called with the job as a segment found it, as the segment left it, and the seconds in between."""


def trace_of_new_job(kind: str) -> Mapping[str, str]:
    """What the input of a new job keeps of the trace that it is in; nothing while telemetry is off."""
    if switch.recorder is None:
        return {}
    headers = current_headers()
    if not headers:
        with open_span(f"submit {kind}", "producer", {names.WORKFLOW_NAME: kind}) as span:
            headers = span.headers
    return {TRACE: headers[TRACE]} if TRACE in headers else {}


@contextmanager
def observe_segment(claim: Claim, on_segment: OnSegment | None) -> Generator[None]:
    """Tell of the segment that runs within: a span, a line of the log, and whoever counts."""
    job = claim.job
    set_log_subject(job=job.id)
    begun = perf_counter()
    attributes: dict[str, str | int] = {
        names.OPERATION: names.INVOKE_WORKFLOW,
        names.WORKFLOW_NAME: job.kind,
        names.JOB_ID: job.id,
        names.JOB_SEGMENT: job.segment,
        names.CONVERSATION_ID: job.id,
    }
    with open_span(f"{names.INVOKE_WORKFLOW} {job.kind}", "consumer", attributes, parent=_parent(job.input)) as span:
        model = f" by {job.model}" if job.model else ""
        log.info("job %s, segment %d: %s%s begins", job.id, job.segment, job.kind, model)
        try:
            yield
        finally:
            seconds, after = perf_counter() - begun, claim.job
            span.set({names.JOB_STATE: after.state})
            if after.state == "failed":
                span.fail(after.reason or "failed")
            log.info("job %s, segment %d: %s in %.3f s", job.id, job.segment, after.state, seconds)
            if on_segment is not None:
                on_segment(job, after, seconds)


def _parent(job_input: Mapping[str, Any]) -> Mapping[str, str] | None:
    parent = job_input.get(TRACE)
    return {TRACE: parent} if isinstance(parent, str) else None

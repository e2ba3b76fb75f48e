"""Durable jobs: runs that survive whatever happens to their process, on one machine or on many.

The conversation is the checkpoint: a job is a row, its canisters are rows (`store`), and a worker drives it segment by
segment from what is written there. The extra `jobs` brings what this needs, and it is imported on first use.

    job = await jobs.submit("crew:clerk", "Reconcile the invoices.")
    async for event in job.events():
        ...
    result = await job.result()
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callboard.jobs.client import JobClient, answer, get, submit
    from callboard.jobs.handle import JobEvent, JobHandle, JobResult

_LAZY = {
    "JobClient": "callboard.jobs.client",
    "JobEvent": "callboard.jobs.handle",
    "JobHandle": "callboard.jobs.handle",
    "JobResult": "callboard.jobs.handle",
    "answer": "callboard.jobs.client",
    "get": "callboard.jobs.client",
    "submit": "callboard.jobs.client",
}

__all__ = ["JobClient", "JobEvent", "JobHandle", "JobResult", "answer", "get", "submit"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  # where one is used

    from callboard.extras import require_extra  # noqa: PLC0415  # as above

    require_extra("jobs")
    return getattr(import_module(_LAZY[name]), name)

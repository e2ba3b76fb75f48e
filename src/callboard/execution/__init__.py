"""Invocations are run here."""

from typing import TYPE_CHECKING, Any

from callboard.execution.execute import DEFAULT_TIMEOUT, OnError, execute_invoker
from callboard.execution.group import DEFAULT_LIMIT, AfterCall, BeforeCall, Group
from callboard.execution.results import result_of

if TYPE_CHECKING:
    from callboard.execution.processor import InvocationsProcessor

__all__ = [
    "DEFAULT_LIMIT",
    "DEFAULT_TIMEOUT",
    "AfterCall",
    "BeforeCall",
    "Group",
    "InvocationsProcessor",
    "OnError",
    "execute_invoker",
    "result_of",
]


def __getattr__(name: str) -> Any:
    """The processor is for whoever works without an agent, and imported when it is asked for."""
    if name != "InvocationsProcessor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from callboard.execution.processor import InvocationsProcessor  # noqa: PLC0415 - as said above

    return InvocationsProcessor

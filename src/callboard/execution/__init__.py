"""Invocations are run here."""

from callboard.execution.execute import DEFAULT_TIMEOUT, OnError, execute_invoker
from callboard.execution.group import AfterCall, BeforeCall, Group
from callboard.execution.processor import InvocationsProcessor
from callboard.execution.results import result_of

__all__ = [
    "DEFAULT_TIMEOUT",
    "AfterCall",
    "BeforeCall",
    "Group",
    "InvocationsProcessor",
    "OnError",
    "execute_invoker",
    "result_of",
]

"""Invocations are run here."""

from callboard.execution.execute import DEFAULT_TIMEOUT, OnError, execute_invoker
from callboard.execution.group import AfterCall, BeforeCall, Group
from callboard.execution.results import result_of

__all__ = ["DEFAULT_TIMEOUT", "AfterCall", "BeforeCall", "Group", "OnError", "execute_invoker", "result_of"]

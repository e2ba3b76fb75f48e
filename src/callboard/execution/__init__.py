"""Invocations are run here."""

from callboard.execution.execute import DEFAULT_TIMEOUT, OnError, execute_invoker
from callboard.execution.group import Group
from callboard.execution.results import result_of

__all__ = ["DEFAULT_TIMEOUT", "Group", "OnError", "execute_invoker", "result_of"]

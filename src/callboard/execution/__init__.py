"""Execution of invocations."""

from callboard.execution.approval import ask_approval, permit
from callboard.execution.execute import DEFAULT_TIMEOUT, OnError, execute_invoker, run_invoker
from callboard.execution.parallel import DEFAULT_LIMIT, AfterCall, BeforeCall, Enclose, ParallelExecutor
from callboard.execution.processor import InvocationsProcessor
from callboard.execution.result_content import make_result

__all__ = [
    "DEFAULT_LIMIT",
    "DEFAULT_TIMEOUT",
    "AfterCall",
    "BeforeCall",
    "Enclose",
    "InvocationsProcessor",
    "OnError",
    "ParallelExecutor",
    "ask_approval",
    "execute_invoker",
    "make_result",
    "permit",
    "run_invoker",
]

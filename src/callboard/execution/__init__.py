"""Invocations are run here."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from callboard.execution.execute import DEFAULT_TIMEOUT, OnError, execute_invoker, run_invoker
from callboard.execution.parallel import DEFAULT_LIMIT, AfterCall, BeforeCall, Enclose, ParallelExecutor
from callboard.execution.result_content import make_result

if TYPE_CHECKING:
    from callboard.execution.approval import ask_approval, permit
    from callboard.execution.processor import InvocationsProcessor

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

_LAZY = {"InvocationsProcessor": "processor", "ask_approval": "approval", "permit": "approval"}
"""What many runs never need, by the module that is imported when it is asked for."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)

"""Turns what any language model emits into validated, executed tool calls."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callboard.agent import Agent, Conversation, RunResult, access_model
    from callboard.errors import CallboardError
    from callboard.execution import execute_invoker
    from callboard.loop import Limits
    from callboard.tools import Context, Ensemble, Invoker, Tool, tool

__version__ = "0.1.0.dev0"

_HOMES = {
    "Agent": "agent",
    "Conversation": "agent",
    "access_model": "agent",
    "Limits": "loop",
    "CallboardError": "errors",
    "Context": "tools",
    "Ensemble": "tools",
    "Invoker": "tools",
    "RunResult": "agent",
    "Tool": "tools",
    "execute_invoker": "execution",
    "tool": "tools",
}

__all__ = [
    "Agent",
    "CallboardError",
    "Context",
    "Conversation",
    "Ensemble",
    "Invoker",
    "Limits",
    "RunResult",
    "Tool",
    "__version__",
    "access_model",
    "execute_invoker",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'callboard' has no attribute {name!r}")
    value = getattr(import_module(f"callboard.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

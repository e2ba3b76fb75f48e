"""Python functions as tools, and tools in ensembles."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from callboard.tools.context import Context
from callboard.tools.ensemble import Ensemble, ToolLike, as_invoker, refuse_clashes, refuse_same_names
from callboard.tools.invalid_calls import (
    check_call,
    denial,
    edited_invocation,
    edited_result,
    quotation_denial,
    quotation_reason,
)
from callboard.tools.invoker import Invocable, Invoker
from callboard.tools.permissions import Decision, Permission, Policy, Rule, read_decision
from callboard.tools.registry import InvokerRegistry
from callboard.tools.tool import Subject, Tool, is_seconds, tool

if TYPE_CHECKING:
    from callboard.tools.descriptors import EnsembleDescriptor, InvokerDescriptor, read_ensemble, read_invoker
    from callboard.tools.invoker_from_descriptor import make_invoker
    from callboard.tools.wrappers import approval_required, cached, filtered, prefixed, renamed

__all__ = [
    "Context",
    "Decision",
    "Ensemble",
    "EnsembleDescriptor",
    "Invocable",
    "Invoker",
    "InvokerDescriptor",
    "InvokerRegistry",
    "Permission",
    "Policy",
    "Rule",
    "Subject",
    "Tool",
    "ToolLike",
    "approval_required",
    "as_invoker",
    "cached",
    "check_call",
    "denial",
    "edited_invocation",
    "edited_result",
    "filtered",
    "is_seconds",
    "make_invoker",
    "prefixed",
    "quotation_denial",
    "quotation_reason",
    "read_decision",
    "read_ensemble",
    "read_invoker",
    "refuse_clashes",
    "refuse_same_names",
    "renamed",
    "tool",
]

_LAZY = {
    "invoker_from_descriptor": ("make_invoker",),
    "descriptors": ("EnsembleDescriptor", "InvokerDescriptor", "read_ensemble", "read_invoker"),
    "wrappers": ("approval_required", "cached", "filtered", "prefixed", "renamed"),
}
"""What an agent with tools of its own never needs, by the module that is imported when it is asked for."""
_HOMES = {name: module for module, names in _LAZY.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

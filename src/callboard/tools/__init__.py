"""Python functions as tools, and tools in ensembles."""

from callboard.tools.context import Context
from callboard.tools.descriptors import (
    EnsembleDescriptor,
    InvokerDescriptor,
    make_invoker,
    read_ensemble,
    read_invoker,
)
from callboard.tools.ensemble import Ensemble, InvokerRegistry, ToolLike, as_invoker, refuse_clashes, refuse_same_names
from callboard.tools.invalid_calls import check_call, denial, edited_invocation, edited_result, judge_call
from callboard.tools.invoker import Invocable, Invoker
from callboard.tools.permissions import Decision, Permission, Policy, Rule, read_decision
from callboard.tools.tool import Subject, Tool, is_seconds, tool
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
    "judge_call",
    "make_invoker",
    "prefixed",
    "read_decision",
    "read_ensemble",
    "read_invoker",
    "refuse_clashes",
    "refuse_same_names",
    "renamed",
    "tool",
]

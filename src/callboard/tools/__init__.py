"""Python functions as tools, and tools in ensembles."""

from callboard.text.near import near
from callboard.tools.context import Context
from callboard.tools.described import make_invoker
from callboard.tools.descriptors import EnsembleDescriptor, InvokerDescriptor, read_ensemble, read_invoker
from callboard.tools.ensemble import Ensemble, ToolLike
from callboard.tools.invoker import Invocable, Invoker
from callboard.tools.permissions import Permission, Policy, Rule
from callboard.tools.refusal import refusal
from callboard.tools.roster import Roster
from callboard.tools.tool import Subject, Tool, tool
from callboard.tools.wrappers import approval_required, cached, filtered, prefixed, renamed

__all__ = [
    "Context",
    "Ensemble",
    "EnsembleDescriptor",
    "Invocable",
    "Invoker",
    "InvokerDescriptor",
    "Permission",
    "Policy",
    "Roster",
    "Rule",
    "Subject",
    "Tool",
    "ToolLike",
    "approval_required",
    "cached",
    "filtered",
    "make_invoker",
    "near",
    "prefixed",
    "read_ensemble",
    "read_invoker",
    "refusal",
    "renamed",
    "tool",
]

"""Python functions as tools, and tools in ensembles."""

from callboard.tools.context import Context
from callboard.tools.ensemble import Ensemble, ToolLike
from callboard.tools.invoker import Invocable, Invoker
from callboard.tools.near import near
from callboard.tools.permissions import Permission, Policy, Rule
from callboard.tools.refusal import refusal
from callboard.tools.roster import Roster
from callboard.tools.tool import Tool, tool

__all__ = [
    "Context",
    "Ensemble",
    "Invocable",
    "Invoker",
    "Permission",
    "Policy",
    "Roster",
    "Rule",
    "Tool",
    "ToolLike",
    "near",
    "refusal",
    "tool",
]

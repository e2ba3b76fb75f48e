"""How models write calls in text, and how to read and write them."""

from callboard.dialects.dialect import CallFrame, Dialect, Fence, Reasoning
from callboard.dialects.grammar import Grammar, NotSpellable
from callboard.dialects.parser import Parser, find_dialects, parse
from callboard.dialects.registry import dialect_of, dialect_of_template, either, get_dialect
from callboard.dialects.render import (
    render_action,
    render_call,
    render_calls,
    render_in_prose,
    render_result,
    render_tools,
)
from callboard.dialects.table import ACTION, AUTO, DIALECTS, JSON, TOOL_COMMANDS

__all__ = [
    "ACTION",
    "AUTO",
    "DIALECTS",
    "JSON",
    "TOOL_COMMANDS",
    "CallFrame",
    "Dialect",
    "Fence",
    "Grammar",
    "NotSpellable",
    "Parser",
    "Reasoning",
    "dialect_of",
    "dialect_of_template",
    "either",
    "find_dialects",
    "get_dialect",
    "parse",
    "render_action",
    "render_call",
    "render_calls",
    "render_in_prose",
    "render_result",
    "render_tools",
]

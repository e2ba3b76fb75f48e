"""How models spell calls in text, and how to read and write it."""

from callboard.dialects.dialect import Dialect, Fence, Frame, Reasoning
from callboard.dialects.parse_state import Body, CannotSay
from callboard.dialects.parser import Parser, parse
from callboard.dialects.registry import dialect_named, dialect_of, dialect_of_template
from callboard.dialects.render import (
    render_action,
    render_call,
    render_calls,
    render_in_prose,
    render_result,
    render_tools,
)
from callboard.dialects.table import ACTION, AUTO, DIALECTS, JSON

__all__ = [
    "ACTION",
    "AUTO",
    "DIALECTS",
    "JSON",
    "Body",
    "CannotSay",
    "Dialect",
    "Fence",
    "Frame",
    "Parser",
    "Reasoning",
    "dialect_named",
    "dialect_of",
    "dialect_of_template",
    "parse",
    "render_action",
    "render_call",
    "render_calls",
    "render_in_prose",
    "render_result",
    "render_tools",
]

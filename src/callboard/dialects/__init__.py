"""How models spell calls in text, and how to read and write it."""

from callboard.dialects.dialect import ACTION, DIALECTS, JSON, Dialect, dialect_named
from callboard.dialects.parser import Parser, parse
from callboard.dialects.render import render_call, render_in_prose, render_result, render_thought, render_tools

__all__ = [
    "ACTION",
    "DIALECTS",
    "JSON",
    "Dialect",
    "Parser",
    "dialect_named",
    "parse",
    "render_call",
    "render_in_prose",
    "render_result",
    "render_thought",
    "render_tools",
]

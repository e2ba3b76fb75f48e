"""How calls are asked for, and where they are found."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from callboard.modes.lowering import lower_request, select_dialect
from callboard.modes.mode import MODES, Mode, Plan, get_mode, get_plan, make_plan
from callboard.modes.text_calls import Watcher
from callboard.modes.tool_choice import ToolChoiceCheck, create_choice_check, remind

if TYPE_CHECKING:
    from callboard.modes.duplicate_check import DuplicateCheck
    from callboard.modes.echoes import Sources, TextCall

_LAZY = {
    "DuplicateCheck": "callboard.modes.duplicate_check",
    "Sources": "callboard.modes.echoes",
    "TextCall": "callboard.modes.echoes",
}

__all__ = [
    "MODES",
    "DuplicateCheck",
    "Mode",
    "Plan",
    "Sources",
    "TextCall",
    "ToolChoiceCheck",
    "Watcher",
    "create_choice_check",
    "get_mode",
    "get_plan",
    "lower_request",
    "make_plan",
    "remind",
    "select_dialect",
]


def __getattr__(name: str) -> Any:
    """What only replies with tools need is imported when it is asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)

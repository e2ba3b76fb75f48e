"""How models are asked for calls, and where calls are found."""

from callboard.modes.filters.echoes import Sources, TextCall
from callboard.modes.filters.made_up_results import HallucinatedResultFilter
from callboard.modes.lowering import lower_request, select_dialect
from callboard.modes.mode import MODES, Mode, Plan, get_mode, get_plan, make_plan
from callboard.modes.text_calls import Watcher
from callboard.modes.tool_choice import ToolChoiceCheck, create_choice_check, remind

__all__ = [
    "MODES",
    "HallucinatedResultFilter",
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

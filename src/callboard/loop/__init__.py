"""The run's state machine."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from callboard.loop.actions import Action, AskApproval, CallModel, CheckOutput, Execute, Finish, HandOver
from callboard.loop.limits import Budget, Limits
from callboard.loop.loop import GO_ON, AnswerAfter, Loop, LoopRules, QuotedCalls, ends_with_model
from callboard.profiles import OnRepeatedCall

if TYPE_CHECKING:
    from callboard.loop.context_window import ContextWindow
    from callboard.loop.hallucinated_results import HallucinatedResultFilter
    from callboard.loop.repetition import RepetitionFilter

_LAZY = {
    "HallucinatedResultFilter": "callboard.loop.hallucinated_results",
    "ContextWindow": "callboard.loop.context_window",
    "RepetitionFilter": "callboard.loop.repetition",
}

__all__ = [
    "GO_ON",
    "Action",
    "AnswerAfter",
    "AskApproval",
    "Budget",
    "CallModel",
    "CheckOutput",
    "ContextWindow",
    "Execute",
    "Finish",
    "HallucinatedResultFilter",
    "HandOver",
    "Limits",
    "Loop",
    "LoopRules",
    "OnRepeatedCall",
    "QuotedCalls",
    "RepetitionFilter",
    "ends_with_model",
]


def __getattr__(name: str) -> Any:
    """What only some runs need is imported when it is asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)

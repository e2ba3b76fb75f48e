"""The run's state machine."""

from callboard.loop.actions import Action, AskApproval, CallModel, CheckOutput, Execute, Finish, HandOver
from callboard.loop.context_window import ContextWindow
from callboard.loop.limits import Budget, Limits
from callboard.loop.loop import GO_ON, AnswerAfter, Loop, LoopRules, QuotedCalls, ends_with_model
from callboard.loop.repetition import RepetitionFilter
from callboard.profiles import OnRepeatedCall

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
    "HandOver",
    "Limits",
    "Loop",
    "LoopRules",
    "OnRepeatedCall",
    "QuotedCalls",
    "RepetitionFilter",
    "ends_with_model",
]

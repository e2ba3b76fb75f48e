"""The run's state machine."""

from callboard.loop.actions import Action, AskApproval, CallModel, Execute, Finish
from callboard.loop.limits import Limits
from callboard.loop.loop import AnswerAfter, Check, Loop

__all__ = [
    "Action",
    "AnswerAfter",
    "AskApproval",
    "CallModel",
    "Check",
    "Execute",
    "Finish",
    "Limits",
    "Loop",
]

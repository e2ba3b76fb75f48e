"""The run's state machine."""

from callboard.loop.actions import Action, AskApproval, CallModel, Execute, Finish
from callboard.loop.loop import MAX_ROUNDS, AnswerAfter, Loop

__all__ = ["MAX_ROUNDS", "Action", "AnswerAfter", "AskApproval", "CallModel", "Execute", "Finish", "Loop"]

"""A model with its tools, and its runs."""

from callboard.agent.access import ConversingModel, access_model
from callboard.agent.agent import Agent
from callboard.agent.conversation import Conversation
from callboard.agent.run import Run, RunResult
from callboard.agent.transcript import Transcript

__all__ = ["Agent", "Conversation", "ConversingModel", "Run", "RunResult", "Transcript", "access_model"]

"""A model with its tools, and its runs."""

from callboard.agent.agent import Agent
from callboard.agent.conversation import Conversation, Transcript
from callboard.agent.conversing_model import ConversingModel, access_model
from callboard.agent.run import Run, RunResult
from callboard.agent.sync_run import SyncRun

__all__ = ["Agent", "Conversation", "ConversingModel", "Run", "RunResult", "SyncRun", "Transcript", "access_model"]

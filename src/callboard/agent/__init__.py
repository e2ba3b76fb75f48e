"""A model with its tools, and its runs."""

from callboard.agent.agent import Agent
from callboard.agent.run import Run, RunResult
from callboard.agent.transcript import Transcript

__all__ = ["Agent", "Run", "RunResult", "Transcript"]

"""A model with its tools, and its runs."""

from typing import TYPE_CHECKING, Any

from callboard.agent.agent import Agent
from callboard.agent.conversation import Conversation
from callboard.agent.conversing_model import ConversingModel, access_model
from callboard.agent.run import Run, RunResult
from callboard.agent.transcript import Transcript

if TYPE_CHECKING:
    from callboard.agent.sync_run import SyncRun

__all__ = ["Agent", "Conversation", "ConversingModel", "Run", "RunResult", "SyncRun", "Transcript", "access_model"]


def __getattr__(name: str) -> Any:
    if name != "SyncRun":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from callboard.agent.sync_run import SyncRun  # noqa: PLC0415  # only some runs need it

    return SyncRun

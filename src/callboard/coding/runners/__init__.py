"""Runners of tests: how each is recognised, called and read, and what came of a run."""

from callboard.coding.runners.detection import RUNNERS, detect, folder_of
from callboard.coding.runners.report import Failure, Tally, TestReport
from callboard.coding.runners.runner import Folder, Kind, Runner, Selection
from callboard.coding.runners.running import run_tests

__all__ = [
    "RUNNERS",
    "Failure",
    "Folder",
    "Kind",
    "Runner",
    "Selection",
    "Tally",
    "TestReport",
    "detect",
    "folder_of",
    "run_tests",
]

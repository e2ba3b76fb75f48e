"""Runners of tests: how each is recognised, called and read, and what came of a run."""

from callboard.coding.test_runners.detection import RUNNERS, detect, folder_of
from callboard.coding.test_runners.report import Failure, Tally, TestReport
from callboard.coding.test_runners.run_tests import run_tests
from callboard.coding.test_runners.runner import Folder, Kind, Runner, Selection

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
